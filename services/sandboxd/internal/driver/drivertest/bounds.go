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
		r, err := b.exec(&sandboxv1.ExecSpec{Argv: []string{"python3", "-c", "x = b'x' * (1 << 30); print(len(x))"}, Timeout: durationpb.New(patience)})
		require.NoError(t, err)
		assert.NotZero(t, r.GetExitCode())
		assert.False(t, r.GetTimedOut())
		assert.Empty(t, r.GetStdout())
		if !h.Unisolated {
			assert.True(t, r.GetOom(), "the result tells why")
			assert.EqualValues(t, 137, r.GetExitCode())
		}
		assert.Equal(t, "fine\n", b.sh("echo fine"))
	})
	runWhere(t, !h.Unisolated, "memory of many processes", func(t *testing.T) {
		t.Parallel()
		b := newBox(t, d, nil)
		r, err := b.exec(&sandboxv1.ExecSpec{
			Argv:    []string{"bash", "-c", `for i in $(seq 8); do python3 -c "import time; x = b'x' * (40 << 20); time.sleep(60)" & done; wait -n; kill $(jobs -p); exit 9`},
			Timeout: durationpb.New(patience),
		})
		require.NoError(t, err)
		assert.False(t, r.GetTimedOut())
		assert.True(t, r.GetOom())
		b.recovers("")
	})
	runWhere(t, !h.Unisolated && !h.GuestInside, "the guest outlives the end of memory", func(t *testing.T) {
		t.Parallel()
		b := newBox(t, d, func(s *driver.Spec) { s.Limits.PIDs = 500 })
		hello, err := b.client.Hello(t.Context())
		require.NoError(t, err)
		for _, user := range b.users(h) {
			// Many small processes that are as likely victims as the guest: that is the greatest of them.
			r, err := b.exec(&sandboxv1.ExecSpec{Argv: []string{"python3", "-c", `
import os, time
open('/proc/self/oom_score_adj', 'w').write('0')
for _ in range(400):
    if os.fork() == 0:
        x = b'x' * (3 << 20); time.sleep(1000)
time.sleep(1000)`}, User: user, Timeout: durationpb.New(5 * time.Second)})
			require.NoError(t, err)
			assert.NotZero(t, r.GetExitCode())
			b.recovers(user)
		}
		again, err := b.client.Hello(t.Context())
		require.NoError(t, err)
		assert.Equal(t, hello.GetBootId(), again.GetBootId())
		assert.Equal(t, "fine\n", b.sh("echo fine"))
	})
	t.Run("the guest keeps no more output than fits", func(t *testing.T) {
		t.Parallel()
		b := newBox(t, d, func(s *driver.Spec) { s.Limits.MemoryBytes, s.Limits.DiskBytes = 64<<20, 16<<20 })
		hello, err := b.client.Hello(t.Context())
		require.NoError(t, err)
		for i := range 6 {
			r, err := b.run(b.client, "output"+strconv.Itoa(i), &sandboxv1.ExecSpec{
				Argv: []string{"sh", "-c", "head -c 11000000 /dev/zero & head -c 11000000 /dev/zero >&2; wait; echo end"}, Timeout: durationpb.New(patience),
			})
			require.NoError(t, err)
			require.EqualValues(t, 11_000_004, r.GetStdoutBytes())
			assert.NotNil(t, r.StdoutCutAt, "what is not kept is told")
			assert.True(t, strings.HasSuffix(string(r.GetStdout()), "end\n"))
		}
		again, err := b.client.Hello(t.Context())
		require.NoError(t, err)
		assert.Equal(t, hello.GetBootId(), again.GetBootId())
	})
	t.Run("a fork bomb", func(t *testing.T) {
		t.Parallel()
		b, other := newBox(t, d, nil), newBox(t, d, nil)
		begin := time.Now()
		r, err := b.exec(&sandboxv1.ExecSpec{Argv: []string{"bash", "-c", "bomb() { bomb | bomb & }; bomb; sleep 1000"}, Timeout: durationpb.New(2 * time.Second)})
		require.NoError(t, err)
		assert.True(t, r.GetTimedOut())
		assert.Less(t, time.Since(begin), patience)
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
	runWhere(t, !h.Unisolated, "buffers of sockets", func(t *testing.T) {
		t.Parallel()
		b := newBox(t, d, func(s *driver.Spec) { s.Limits.MemoryBytes = 128 << 20 })
		if strings.Contains(strings.Join(b.report.Isolation.Weaker, "\n"), "memory: buffers of ") {
			return // a box that does not bound them reports that
		}
		sent, err := strconv.ParseInt(b.python(`
import os, socket, time
children = []
for _ in range(4):
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        sent, kept = 0, [b'x' * (8 << 20)]   # larger than its parent, which shall outlive it
        try:
            server = socket.create_server(('127.0.0.1', 0))
            for _ in range(100):
                kept += [socket.create_connection(server.getsockname()), server.accept()[0]]
                kept[-2].setblocking(False)
                try:
                    while True: sent += kept[-2].send(bytes(65536))
                except BlockingIOError: pass
        except OSError: pass
        os.write(w, b'%d' % sent)
        os.close(w)
        time.sleep(1000)
    os.close(w)
    children.append((pid, int(os.read(r, 100) or 0)))
# What a process sent that was ended for want of memory is gone with it.
print(sum(sent for pid, sent in children if os.waitpid(pid, os.WNOHANG) == (0, 0)))`), 10, 64)
		require.NoError(t, err)
		assert.Less(t, sent, int64(192<<20), "no more than what the box may have, with what the kernel lends")
		b.sh("echo fine")
	})
	t.Run("processors", func(t *testing.T) {
		t.Parallel()
		b := newBox(t, d, func(s *driver.Spec) { s.Limits.CPUMillis = 500 })
		if !slices.Contains(b.report.Isolation.Parts, "cgroup cpu") {
			assert.Contains(t, strings.Join(b.report.Isolation.Weaker, "\n"), "cpu: ", "a box that is asked to be bounded says that it is not")
			return
		}
		// Four processes that do nothing but compute have used so much when two seconds are over; alone on four
		// processors it were eight.
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
	t.Run("counters of the whole machine", func(t *testing.T) {
		t.Parallel()
		b := newBox(t, d, func(s *driver.Spec) { s.Limits.OpenFiles = 1024 })
		watches := 64
		if h.NoWatches {
			watches = 0
		}
		for _, user := range b.users(h) {
			r, err := b.exec(&sandboxv1.ExecSpec{Argv: []string{"python3", "-c", callPrelude + `
import signal
def most(name, bound, f):
    n = 0
    while n <= bound:
        try: r = f()
        except OSError: break
        if isinstance(r, int) and r < 0: break
        n += 1
    if n > bound: print(name, 'unbounded')
watcher = libc.inotify_init1(0)
if watcher >= 0:
    os.mkdir('/tmp/w' + str(os.getuid())); os.chdir('/tmp/w' + str(os.getuid()))
    for i in range(8300): os.mkdir(str(i))
    watched = iter(range(8300))
    most('inotify watches', 8192, lambda: libc.inotify_add_watch(watcher, str(next(watched)).encode(), 2))
    os.close(watcher)
most('inotify instances', int(sys.argv[1]), lambda: libc.inotify_init1(0))
most('terminals', 64, os.openpty)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
most('signals', 1024, lambda: libc.sigqueue(os.getpid(), int(signal.SIGRTMIN), None))
most('message queues', 10, lambda: libc.mq_open(('/' + os.urandom(8).hex()).encode(), 0o102, 0o600, None))
if resource.getrlimit(resource.RLIMIT_MEMLOCK)[1] > 8 << 20: print('locked memory unbounded')
try:
    open('/proc/pressure/memory', 'r+').close(); print('pressure writable')
except OSError: pass`, strconv.Itoa(watches)}, User: user, Timeout: durationpb.New(patience)})
			require.NoError(t, err)
			require.Zero(t, r.GetExitCode(), "%s", r.GetStderr())
			assert.Empty(t, string(r.GetStdout()), "as %q", user)
		}
	})
}

// recovers ends the remains of a command of a user, which fill the memory until then, and waits until commands run.
func (b *box) recovers(user string) {
	b.Helper()
	require.Eventually(b, func() bool {
		r, err := b.exec(&sandboxv1.ExecSpec{Argv: []string{"bash", "-c", "kill -9 -1; echo fine"}, User: user})
		return err != nil || string(r.GetStdout()) == "fine\n"
	}, patience, 10*time.Millisecond, "the processes of %q do not end", user)
}
