package local_test

import (
	"context"
	"crypto/rand"
	"net"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	guestv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/guest/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver/local"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/client"
)

// BenchmarkExec runs `true` with a key at the guest's socket and, in turn, by a bare fork and exec; the ratio of the
// medians counts.
func BenchmarkExec(b *testing.B) {
	d, err := local.New(local.Config{Dir: b.TempDir(), GuestPath: guestPath})
	require.NoError(b, err)
	id := "bench-" + rand.Text()
	report, err := d.Create(b.Context(), driver.Spec{ID: id, Owner: "bench", Deadline: time.Now().Add(time.Hour), Limits: driver.Limits{MemoryBytes: 256 << 20, PIDs: 64}})
	require.NoError(b, err)
	c := client.New(client.Config{
		Connect: func(ctx context.Context) (net.Conn, error) { return d.Connect(ctx, id) },
		Hello:   &guestv1.HelloRequest{Env: report.Env, Workdir: report.Workdir, User: report.User},
	})
	b.Cleanup(func() {
		c.Close()
		require.NoError(b, d.Destroy(context.Background(), id))
		require.NoError(b, d.Close())
	})
	var bare, boxed []time.Duration
	n := 0
	for b.Loop() {
		n++
		begin := time.Now()
		forkExec(b)
		between := time.Now()
		require.NoError(b, c.Once(b.Context(), func(api guestv1.GuestServiceClient) error {
			_, err := api.Run(b.Context(), &guestv1.RunRequest{Key: strconv.Itoa(n), Spec: &sandboxv1.ExecSpec{Argv: []string{"/bin/true"}}, MaxAnswerBytes: 1 << 20})
			return err
		}))
		bare, boxed = append(bare, between.Sub(begin)), append(boxed, time.Since(between))
		require.NoError(b, c.Once(b.Context(), func(api guestv1.GuestServiceClient) error {
			_, err := api.Release(b.Context(), &guestv1.ReleaseRequest{Keys: []string{strconv.Itoa(n)}})
			return err
		}))
	}
	b.ReportMetric(median(bare), "bare-µs")
	b.ReportMetric(median(boxed), "box-µs")
	b.ReportMetric(median(boxed)/median(bare), "ratio")
}

// BenchmarkCreate creates a box, runs a first command and destroys it.
func BenchmarkCreate(b *testing.B) {
	d, err := local.New(local.Config{Dir: b.TempDir(), GuestPath: guestPath})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, d.Close()) })
	var ready []time.Duration
	for b.Loop() {
		id := "bench-" + rand.Text()
		begin := time.Now()
		report, err := d.Create(b.Context(), driver.Spec{ID: id, Owner: "bench", Deadline: time.Now().Add(time.Hour), Limits: driver.Limits{MemoryBytes: 256 << 20, PIDs: 64}})
		require.NoError(b, err)
		c := client.New(client.Config{
			Connect: func(ctx context.Context) (net.Conn, error) { return d.Connect(ctx, id) },
			Hello:   &guestv1.HelloRequest{Env: report.Env, Workdir: report.Workdir, User: report.User},
		})
		require.NoError(b, c.Once(b.Context(), func(api guestv1.GuestServiceClient) error {
			_, err := api.Run(b.Context(), &guestv1.RunRequest{Spec: &sandboxv1.ExecSpec{Argv: []string{"/bin/true"}}})
			return err
		}))
		ready = append(ready, time.Since(begin))
		c.Close()
		require.NoError(b, d.Destroy(b.Context(), id))
	}
	b.ReportMetric(median(ready), "first-exec-µs")
}

func forkExec(b *testing.B) {
	b.Helper()
	pid, err := syscall.ForkExec("/bin/true", []string{"true"}, &syscall.ProcAttr{Files: []uintptr{0, 1, 2}})
	require.NoError(b, err)
	var status syscall.WaitStatus
	for {
		if _, err = syscall.Wait4(pid, &status, 0, nil); err != syscall.EINTR {
			require.NoError(b, err)
			return
		}
	}
}

func median(d []time.Duration) float64 {
	slices.Sort(d)
	return float64(d[len(d)/2].Nanoseconds()) / 1000
}
