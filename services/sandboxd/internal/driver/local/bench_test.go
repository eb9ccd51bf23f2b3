package local_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
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

func BenchmarkTry(b *testing.B) {
	gdir := b.TempDir()
	d, err := local.New(local.Config{Dir: gdir, GuestPath: "/tmp/guestd", SearchPath: os.Getenv("PATH")})
	require.NoError(b, err)
	defer d.Close()
	ctx := b.Context()
	id := "t" + fmt.Sprint(time.Now().UnixNano())
	rep, err := d.Create(ctx, driver.Spec{ID: id, Owner: "me", Deadline: time.Now().Add(time.Minute), Limits: driver.Limits{MemoryBytes: 256 << 20, PIDs: 64}})
	require.NoError(b, err)
	defer func() {
		data, _ := os.ReadFile(gdir + "/" + id + "/guestd.log")
		println(string(data))
		d.Destroy(context.Background(), id)
	}()
	c := client.New(client.Config{
		Connect: func(ctx context.Context) (net.Conn, error) { return d.Connect(ctx, id) },
		Hello:   &guestv1.HelloRequest{Env: rep.Env, Workdir: rep.Workdir, User: rep.User},
	})
	var fork, bare, box, ping []time.Duration
	n := 0
	for b.Loop() {
		n++
		t0 := time.Now()
		pid, err := syscall.ForkExec("/bin/true", []string{"true"}, &syscall.ProcAttr{Files: []uintptr{0, 1, 2}})
		require.NoError(b, err)
		tf := time.Now()
		fork = append(fork, tf.Sub(t0))
		var ws syscall.WaitStatus
		for {
			if _, err = syscall.Wait4(pid, &ws, 0, nil); err != syscall.EINTR {
				break
			}
		}
		t1 := time.Now()
		require.NoError(b, c.Once(ctx, func(api guestv1.GuestServiceClient) error {
			_, err := api.Run(ctx, &guestv1.RunRequest{Key: fmt.Sprint(n), Spec: &sandboxv1.ExecSpec{Argv: []string{"/bin/true"}}, MaxAnswerBytes: 1 << 20})
			return err
		}))
		t2 := time.Now()
		require.NoError(b, c.Once(ctx, func(api guestv1.GuestServiceClient) error {
			_, err := api.Release(ctx, &guestv1.ReleaseRequest{Keys: []string{fmt.Sprint(n)}})
			return err
		}))
		t3 := time.Now()
		bare, box, ping = append(bare, t1.Sub(t0)), append(box, t2.Sub(t1)), append(ping, t3.Sub(t2))
	}
	p50 := func(d []time.Duration) float64 { slices.Sort(d); return float64(d[len(d)/2].Microseconds()) }
	b.ReportMetric(p50(fork), "fork-µs")
	b.ReportMetric(p50(bare), "bare-µs")
	b.ReportMetric(p50(box), "box-µs")
	b.ReportMetric(p50(ping), "ping-µs")
	p10 := func(d []time.Duration) float64 { slices.Sort(d); return float64(d[len(d)/10].Microseconds()) }
	b.ReportMetric(p50(box)/p50(bare), "ratio")
	b.ReportMetric(p10(box), "box10-µs")
	b.ReportMetric(p10(bare), "bare10-µs")
	b.ReportMetric(p10(ping), "ping10-µs")
	b.ReportMetric(p10(box)/p10(bare), "ratio10")
}
