package drivertest

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	guestv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/guest/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// attacks: attempts of a tenant to block or to break the guest end as outcomes of the tenant's own calls, and never as
// a fault.
func attacks(t *testing.T, h Harness) {
	d := h.New(t, t.TempDir())
	t.Run("no signal holds up the start of a command", func(t *testing.T) {
		t.Parallel()
		b := newBox(t, d, nil)
		b.python(`
import os, signal, time
if os.fork() == 0:
    os.setsid()
    for f in range(3): os.close(f)
    end = time.monotonic() + 30
    while time.monotonic() < end:
        last = int(open('/proc/loadavg').read().split()[-1])
        for n in range(20):
            for pid in range(last + 20, last, -1):
                try: os.kill(pid, signal.SIGSTOP)
                except OSError: pass`)
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				for range 4 {
					r, err := b.exec(&sandboxv1.ExecSpec{Argv: []string{"true"}, Timeout: durationpb.New(100 * time.Millisecond)})
					// One that was stopped once it ran has its timeout.
					if !assert.True(t, err == nil && (r.GetExitCode() == 0 || r.GetTimedOut() || r.GetExitCode() == 126), "%v: %v", r, err) {
						return
					}
				}
			})
		}
		all.Wait()
	})
	t.Run("a program that is locked or written to does not start", func(t *testing.T) {
		t.Parallel()
		b := newBox(t, d, nil)
		b.sh("cp /bin/true locked; cp /bin/true written; cp /bin/true broken; truncate -s 100 broken")
		b.python(`
import fcntl, os, signal, time
signal.signal(signal.SIGIO, signal.SIG_IGN)
written = os.open('written', os.O_RDWR)
locked = os.open('locked', os.O_RDONLY)
fcntl.fcntl(locked, fcntl.F_SETLEASE, fcntl.F_WRLCK)
r, w = os.pipe()
if os.fork() == 0:
    for f in range(3): os.close(f)
    os.setsid()
    time.sleep(1000)`)
		for program, why := range map[string]string{"./written": "open for writing", "./locked": "lease", "./broken": "not a program"} {
			r, err := b.exec(&sandboxv1.ExecSpec{Argv: []string{program}})
			require.NoError(t, err, program)
			assert.EqualValues(t, 126, r.GetExitCode(), program)
			assert.Contains(t, string(r.GetStderr()), why)
		}
		_, _, err := b.read(&guestv1.ReadFileRequest{Path: "locked"})
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INVALID_PATH), "%v", err)
		_, err = b.write(&guestv1.WriteFileRequest{Path: "locked"}, []byte("replaced"))
		require.NoError(t, err, "another file takes its place")
		_, err = b.write(&guestv1.WriteFileRequest{Path: "written"}, []byte("replaced"))
		require.NoError(t, err)
	})
	t.Run("a folder of any depth is listed and removed", func(t *testing.T) {
		t.Parallel()
		b := newBox(t, d, nil)
		b.python(`
import os
os.mkdir('deep'); os.chdir('deep')
for _ in range(10_000): os.mkdir('d'); os.chdir('d')`)
		var listed []*sandboxv1.FileInfo
		require.NoError(t, b.client.Once(t.Context(), func(api guestv1.GuestServiceClient) error {
			resp, err := api.ListFiles(t.Context(), &guestv1.ListFilesRequest{Path: "deep", MaxDepth: 1 << 30})
			listed = resp.GetFiles()
			return err
		}))
		assert.True(t, strings.HasPrefix(listed[0].GetPath(), "d"))
		require.NoError(t, b.remove("deep"))
		b.fails("ls deep")
	})
}
