package sandboxd_test

import (
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
)

// BenchmarkExec runs `true` with a key through the service and, in turn, by a bare fork and exec; the ratio of the
// medians counts.
func BenchmarkExec(b *testing.B) {
	in := install(b, nil)
	box, err := in.client.CreateSandbox(b.Context(), &sandboxv1.CreateSandboxRequest{Parent: project, Spec: &sandboxv1.SandboxSpec{}})
	require.NoError(b, err)
	var bare, boxed []time.Duration
	n := 0
	for b.Loop() {
		n++
		begin := time.Now()
		forkExec(b)
		between := time.Now()
		key := strconv.Itoa(n)
		_, err := in.client.Exec(b.Context(), &sandboxv1.ExecRequest{Sandbox: box.GetName(), RequestId: key, Spec: &sandboxv1.ExecSpec{Argv: []string{"/bin/true"}}})
		require.NoError(b, err)
		bare, boxed = append(bare, between.Sub(begin)), append(boxed, time.Since(between))
		_, err = in.client.ReleaseExec(b.Context(), &sandboxv1.ReleaseExecRequest{Sandbox: box.GetName(), RequestIds: []string{key}})
		require.NoError(b, err)
	}
	b.ReportMetric(median(bare), "bare-µs")
	b.ReportMetric(median(boxed), "exec-µs")
	b.ReportMetric(median(boxed)/median(bare), "ratio")
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
