package drivertest

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
)

// bounds: a box uses no more than it may, and can be used after it tried.
func bounds(t *testing.T, h Harness) {
	d := h.New(t, t.TempDir())
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		b := newBox(t, d, nil)
		r, err := b.exec(&sandboxv1.ExecSpec{Argv: []string{"python3", "-c", "x = b'x' * (1 << 30); print(len(x))"}, Timeout: durationpb.New(30 * time.Second)})
		require.NoError(t, err)
		assert.NotZero(t, r.GetExitCode())
		assert.False(t, r.GetTimedOut())
		assert.Empty(t, r.GetStdout())
		if !h.PerProcess {
			assert.True(t, r.GetOom(), "the result tells why")
			assert.EqualValues(t, 137, r.GetExitCode())
		}
		assert.Equal(t, "fine\n", b.sh("echo fine"))
	})
	t.Run("memory of many processes", func(t *testing.T) {
		t.Parallel()
		if h.PerProcess {
			t.Skip("the driver bounds each process alone")
		}
		b := newBox(t, d, nil)
		r, err := b.exec(&sandboxv1.ExecSpec{
			Argv:    []string{"bash", "-c", `for i in $(seq 20); do python3 -c "import time; x = b'x' * (40 << 20); time.sleep(60)" & done; wait -n; kill $(jobs -p); exit 9`},
			Timeout: durationpb.New(30 * time.Second),
		})
		require.NoError(t, err)
		assert.False(t, r.GetTimedOut())
		assert.True(t, r.GetOom())
		assert.Equal(t, "fine\n", b.sh("echo fine"))
	})
	t.Run("a fork bomb", func(t *testing.T) {
		t.Parallel()
		b, other := newBox(t, d, nil), newBox(t, d, nil)
		begin := time.Now()
		r, err := b.exec(&sandboxv1.ExecSpec{Argv: []string{"bash", "-c", "bomb() { bomb | bomb & }; bomb; sleep 1000"}, Timeout: durationpb.New(2 * time.Second)})
		require.NoError(t, err)
		assert.True(t, r.GetTimedOut())
		assert.Less(t, time.Since(begin), 40*time.Second)
		assert.Equal(t, "fine\n", b.sh("echo fine"))
		assert.Equal(t, "fine\n", other.sh("echo fine"))
	})
	t.Run("processes", func(t *testing.T) {
		t.Parallel()
		b := newBox(t, d, nil)
		assert.Equal(t, "bounded", b.python(`
import os, signal, time
pids = []
try:
    while len(pids) < 500:
        pid = os.fork()
        if pid == 0: time.sleep(1000)
        pids.append(pid)
except BlockingIOError:
    print('bounded')
for pid in pids: os.kill(pid, signal.SIGKILL)`))
		assert.Equal(t, "fine\n", b.sh("echo fine"))
	})
	t.Run("processors", func(t *testing.T) {
		t.Parallel()
		b := newBox(t, d, func(s *driver.Spec) { s.Limits.CPUMillis = 500 })
		if !slices.Contains(b.report.Isolation.Parts, "cgroup cpu") {
			assert.Contains(t, strings.Join(b.report.Isolation.Weaker, "\n"), "cpu: ", "a box that is asked to be bounded says that it is not")
			return
		}
		// Four processes that do nothing but compute have used so much when two seconds are over; alone on four processors it were eight.
		used, err := strconv.ParseFloat(b.python(`
import os, resource, time
end = time.monotonic() + 2
pids = []
for _ in range(4):
    pid = os.fork()
    if pid == 0:
        while time.monotonic() < end: pass
        os._exit(0)
    pids.append(pid)
for pid in pids: os.waitpid(pid, 0)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime)`), 64)
		require.NoError(t, err)
		assert.Less(t, used, 1.5, "half a processor for two seconds, and what the kernel lends")
	})
	t.Run("disk", func(t *testing.T) {
		t.Parallel()
		b := newBox(t, d, nil)
		if h.NoDiskBound {
			assert.Contains(t, strings.Join(b.report.Isolation.Weaker, "\n"), "disk: unbounded", "a box that is asked to be bounded says that it is not")
			return
		}
		b.fails("for i in 1 2 3; do head -c 60000000 /dev/zero > /tmp/$i || exit 1; done")
		b.sh("rm /tmp/*; echo fine > /tmp/x")
	})
	t.Run("file size and open files", func(t *testing.T) {
		t.Parallel()
		b := newBox(t, d, nil)
		b.fails("head -c 70000000 /dev/zero > /tmp/big")
		assert.Equal(t, "256\n", b.sh("ulimit -n"))
		b.fails("ulimit -n 1024")
		assert.Equal(t, "0\n", b.sh("ulimit -c"))
	})
}
