package drivertest

import (
	"bytes"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
)

// chain is the rest of a Python program that prints `begun` and becomes a chain of processes, each of which forks and
// ends, in a session of its own.
const chain = `
import os, signal, time
print('begun', flush=True)
if os.fork(): time.sleep(1000)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
while True:
    if os.fork(): os._exit(0)
    os.setsid()`

// commands: the input and the output of a command.
func commands(t *testing.T, h Harness) {
	b := newBox(t, h.New(t, t.TempDir()), nil)
	large := bytes.Repeat([]byte("0123456789abcdef"), 1<<17) // 2 MiB
	for name, tt := range map[string]struct {
		spec *sandboxv1.ExecSpec
		want *sandboxv1.ExecResult
	}{
		"code and streams": {
			&sandboxv1.ExecSpec{Argv: []string{"sh", "-c", "echo a; echo b >&2; exit 4"}},
			&sandboxv1.ExecResult{ExitCode: new(int32(4)), Stdout: []byte("a\n"), Stderr: []byte("b\n")},
		},
		"no shell reads arguments": {
			&sandboxv1.ExecSpec{Argv: []string{"echo", "$HOME; rm x", "*", "a  b"}},
			&sandboxv1.ExecResult{Stdout: []byte("$HOME; rm x * a  b\n")},
		},
		"a signal is told at once": {
			&sandboxv1.ExecSpec{Argv: []string{"sh", "-c", "kill -9 $$"}, Timeout: durationpb.New(patience)},
			&sandboxv1.ExecResult{ExitCode: new(int32(137)), Signal: 9},
		},
		"environment":       {&sandboxv1.ExecSpec{Argv: []string{"sh", "-c", "echo $X"}, Env: map[string]string{"X": "a b"}}, &sandboxv1.ExecResult{Stdout: []byte("a b\n")}},
		"input":             {&sandboxv1.ExecSpec{Argv: []string{"cat"}, Stdin: []byte("$(ls)\n\x00\xff")}, &sandboxv1.ExecResult{Stdout: []byte("$(ls)\n\x00\xff")}},
		"no input":          {&sandboxv1.ExecSpec{Argv: []string{"cat"}}, &sandboxv1.ExecResult{}},
		"large input":       {&sandboxv1.ExecSpec{Argv: []string{"cat"}, Stdin: large}, &sandboxv1.ExecResult{Stdout: large}},
		"input not read":    {&sandboxv1.ExecSpec{Argv: []string{"true"}, Stdin: large}, &sandboxv1.ExecResult{}},
		"UTF-8":             {&sandboxv1.ExecSpec{Argv: []string{"printf", "héllo 🌍"}}, &sandboxv1.ExecResult{Stdout: []byte("héllo 🌍")}},
		"default directory": {&sandboxv1.ExecSpec{Argv: []string{"pwd"}}, &sandboxv1.ExecResult{Stdout: []byte(b.report.Workdir + "\n")}},
		"absolute directory": {
			&sandboxv1.ExecSpec{Argv: []string{"pwd"}, Cwd: "/usr"}, &sandboxv1.ExecResult{Stdout: []byte("/usr\n")},
		},
		"login shell keeps PATH": {
			&sandboxv1.ExecSpec{Argv: []string{"bash", "--login", "-c", "echo $PATH"}}, &sandboxv1.ExecResult{Stdout: []byte(b.report.Env["PATH"] + "\n")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := b.sub(t).exec(tt.spec)
			require.NoError(t, err)
			require.NotNil(t, r.ExitCode, "a reader of JSON sees the code of a command that succeeded too")
			assert.Equal(t, tt.want.GetExitCode(), r.GetExitCode())
			assert.Equal(t, tt.want.GetSignal(), r.GetSignal())
			assert.True(t, bytes.Equal(tt.want.GetStdout(), r.GetStdout()), "stdout %.200q", r.GetStdout())
			assert.Equal(t, string(tt.want.GetStderr()), string(r.GetStderr()))
			assert.Equal(t, int64(len(tt.want.GetStdout())), r.GetStdoutBytes())
			assert.False(t, r.GetTimedOut() || r.GetCancelled() || r.GetOom() || r.GetReplayed())
			assert.Nil(t, r.StdoutCutAt)
			assert.Positive(t, r.GetDuration().AsDuration())
		})
	}
	t.Run("relative directory", func(t *testing.T) {
		t.Parallel()
		b := b.sub(t)
		b.sh("mkdir -p sub/dir")
		r, err := b.exec(&sandboxv1.ExecSpec{Argv: []string{"pwd"}, Cwd: "sub/dir"})
		require.NoError(t, err)
		assert.Equal(t, b.report.Workdir+"/sub/dir\n", string(r.GetStdout()))
	})
	t.Run("programs that are missing", func(t *testing.T) {
		t.Parallel()
		b := b.sub(t)
		b.sh("printf '#!/no/such/interpreter' > bad.sh; chmod +x bad.sh")
		for _, program := range []string{"no-such-program", "/no/such/program", "./no-such-program", "./bad.sh"} {
			r, err := b.exec(&sandboxv1.ExecSpec{Argv: []string{program}})
			require.NoError(t, err, program)
			assert.EqualValues(t, 127, r.GetExitCode(), program)
			assert.Contains(t, string(r.GetStderr()), program)
		}
	})
	t.Run("what cannot be started", func(t *testing.T) {
		t.Parallel()
		b := b.sub(t)
		b.sh("echo x > plain.txt")
		for reason, spec := range map[errorsv1.ErrorReason]*sandboxv1.ExecSpec{
			errorsv1.ErrorReason_ERROR_REASON_SANDBOX_PERMISSION: {Argv: []string{"./plain.txt"}},
			errorsv1.ErrorReason_ERROR_REASON_FILE_NOT_FOUND:     {Argv: []string{"true"}, Cwd: "nowhere"},
			errorsv1.ErrorReason_ERROR_REASON_INVALID_PATH:       {Argv: []string{"true"}, Cwd: "plain.txt"},
			errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST:    {},
		} {
			_, err := b.exec(spec)
			assert.Equal(t, reason, rpcerr.Reason(err), "%v: %v", spec, err)
		}
		_, err := b.exec(&sandboxv1.ExecSpec{Argv: []string{"/usr"}})
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_SANDBOX_PERMISSION), "%v", err)
	})
	t.Run("users", func(t *testing.T) {
		t.Parallel()
		b := b.sub(t)
		assert.NotEqual(t, "0", strings.TrimSpace(b.sh("id -u")), "commands have no root")
		_, err := b.exec(&sandboxv1.ExecSpec{Argv: []string{"true"}, User: "no-such-user"})
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST), "%v", err)
		for user, want := range map[string]string{"root": "0 /root", "nobody": "65534 /nonexistent", "4711": "4711 /"} {
			r, err := b.exec(&sandboxv1.ExecSpec{Argv: []string{"sh", "-c", "echo $(id -u) $HOME"}, User: user})
			if h.OneUser {
				assert.Error(t, err)
				continue
			}
			require.NoError(t, err)
			assert.Equal(t, want+"\n", string(r.GetStdout()))
		}
	})
	t.Run("python", func(t *testing.T) {
		t.Parallel()
		assert.Equal(t, "6", b.sub(t).python("import json, hashlib, ssl, sqlite3; print(json.loads('6'))"))
	})
}

// headless starts a process whose first thread has ended while another lives, and writes its id to the file headless.
const headless = `cat > headless.py <<'END'
import ctypes, os, threading, time
def live():
    open('headless.new', 'w').write(str(os.getpid())); os.rename('headless.new', 'headless')
    time.sleep(7654)
threading.Thread(target=live).start()
ctypes.CDLL(None).syscall({'x86_64': 60, 'aarch64': 93}[os.uname().machine], 0)
END
rm -f headless; (setsid python3 headless.py >/dev/null 2>&1 &); until [ -s headless ]; do sleep 0.01; done`

// ends: how commands end, and what they leave.
func ends(t *testing.T, h Harness) {
	b := newBox(t, h.New(t, t.TempDir()), func(s *driver.Spec) {
		s.Limits.MemoryBytes = 512 << 20
		s.Limits.PIDs = 1024 // Chains make zombies faster than a busy machine lets the guest reap them.
	})
	t.Run("a timeout ends the whole tree", func(t *testing.T) {
		t.Parallel()
		b := b.sub(t)
		b.timesOut("before\n", "bash", "-c", "echo before; sleep 4321 & setsid sleep 4321 & (setsid env -i /bin/sleep 4321 &) ; wait")
		assert.Equal(t, "0", b.running("sleep", "4321"))
		assert.Equal(t, "0", b.running("/bin/sleep", "4321"))
	})
	t.Run("a timeout ends a process whose first thread has ended", func(t *testing.T) {
		t.Parallel()
		b := b.sub(t)
		b.timesOut("headless\n", "bash", "-c", headless+"; echo headless; sleep 5432") // Other tests count their own sleeps.
		b.sh("pid=$(cat headless) && ! grep -s 'Threads:.*2' /proc/$pid/status")
	})
	t.Run("a timeout ends what ignores SIGTERM", func(t *testing.T) {
		t.Parallel()
		begin := time.Now()
		r, err := b.sub(t).exec(&sandboxv1.ExecSpec{Argv: []string{"bash", "-c", "trap '' TERM; while :; do sleep 0.1; done"}, Timeout: durationpb.New(200 * time.Millisecond)})
		require.NoError(t, err)
		assert.True(t, r.GetTimedOut())
		assert.Less(t, time.Since(begin), patience)
	})
	t.Run("a timeout ends a chain of processes, each of which forks and ends", func(t *testing.T) {
		t.Parallel()
		b := b.sub(t)
		b.timesOut("begun\n", "python3", "-c", `
import fcntl, os
fcntl.flock(os.open('chain', os.O_CREAT | os.O_RDWR), fcntl.LOCK_EX)   # held until the last one has ended`+chain)
		b.python("import fcntl, os; fcntl.flock(os.open('chain', os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB)")
	})
	t.Run("chains that are ended at the same time leave other commands running", func(t *testing.T) {
		t.Parallel()
		b := b.sub(t)
		b.sh("(while :; do touch beat; sleep 0.01; done) >/dev/null 2>&1 & echo $! >other")
		t.Run("chains", func(t *testing.T) {
			for i := range 2 {
				t.Run(strconv.Itoa(i), func(t *testing.T) {
					t.Parallel()
					b.sub(t).timesOut("begun\n", "python3", "-c", chain)
				})
			}
		})
		b.sh("rm -f beat; for i in $(seq 3000); do [ -e beat ] && exec kill $(cat other); sleep 0.01; done; exit 1")
	})
	for name, disguise := range map[string]string{
		"timer slack":              "libc.prctl(29, 50000, 0, 0, 0)",
		"timer slack by its file":  "open('/proc/self/timerslack_ns', 'w').write('50000')",
		"core dumps":               "open('/proc/self/coredump_filter', 'w').write('0x33')",
		"limit of locks":           "resource.setrlimit(10, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))",
		"limit of locks by number": "libc.prlimit(os.getpid(), 10, struct.pack('QQ', 1 << 40, 1 << 63), None)",
		"environment and name":     "libc.prctl(15, b'sleep', 0, 0, 0); os.environ.clear()",
	} {
		t.Run("a timeout ends what left its session and changed its "+name, func(t *testing.T) {
			t.Parallel()
			b := b.sub(t)
			seconds := strconv.Itoa(10_000 + len(name)) // distinguishes the tests
			b.timesOut("left\n", "python3", "-c", `
import ctypes, os, resource, struct, sys, time
libc = ctypes.CDLL(None)
ready, go = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        try: `+disguise+`
        except (OSError, ValueError): pass
        os.write(go, b'x')
        os.execv('/bin/sleep', ['sleep', sys.argv[1]])
    os._exit(0)
os.read(ready, 1)
print('left', flush=True)
time.sleep(1000)`, seconds)
			assert.Equal(t, "0", b.running("sleep", seconds))
		})
	}
	t.Run("background children do not hold the call, nor die of its end", func(t *testing.T) {
		t.Parallel()
		b := b.sub(t)
		begin := time.Now()
		out := b.sh("(while :; do echo noise || exit; sleep 0.01; touch beat; done) & echo $!")
		assert.Less(t, time.Since(begin), patience)
		pid := strings.Fields(out)[0]
		if pid == "noise" {
			pid = strings.Fields(out)[1]
		}
		b.sh("rm -f beat; for i in $(seq 3000); do [ -e beat ] && exit 0; sleep 0.01; done; exit 1")
		b.sh("kill %s", pid)
	})
	t.Run("output over its limit keeps head and tail and says so", func(t *testing.T) {
		t.Parallel()
		const written = 12 << 20
		r, err := b.sub(t).exec(&sandboxv1.ExecSpec{
			Argv: []string{"sh", "-c", "echo begin; head -c 12582912 /dev/zero | tr '\\0' x; echo end"}, MaxOutputBytes: new(int64(1 << 20)),
		})
		require.NoError(t, err)
		assert.EqualValues(t, written+len("begin\nend\n"), r.GetStdoutBytes())
		require.NotNil(t, r.StdoutCutAt)
		assert.Len(t, r.GetStdout(), 1<<20)
		assert.EqualValues(t, 1<<19, r.GetStdoutCutAt())
		assert.True(t, bytes.HasPrefix(r.GetStdout(), []byte("begin\nxxx")))
		assert.True(t, bytes.HasSuffix(r.GetStdout(), []byte("xxxend\n")))
		assert.Nil(t, r.StderrCutAt)
	})
	t.Run("a command without a key ends with its caller", func(t *testing.T) {
		t.Parallel()
		b := b.sub(t)
		b.abandon(&sandboxv1.ExecSpec{Argv: []string{"bash", "-c", "touch started; exec sleep 8765"}}, "started")
		require.Eventually(t, func() bool { return b.running("sleep", "8765") == "0" }, waittest.Bound, 20*time.Millisecond)
	})
}
