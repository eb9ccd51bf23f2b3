package process_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/process"
)

// table is the program's one table.
var table *process.Table

func TestMain(m *testing.M) {
	// Orphans become children of this program as they become children of the first process of a sandbox.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		panic(err)
	}
	signal.Ignore(syscall.SIGPIPE)
	t, err := process.NewTable(process.Config{OOMScoreAdj: 500})
	if err != nil {
		panic(err)
	}
	table = t
	switch os.Getenv(without) {
	case "clone3":
		table.DoWithoutClone3()
	case "openat2":
		table.DoWithoutOpenat2()
	}
	code := m.Run()
	table.KillAll()
	table.Close()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// start starts a process and waits for its end beside the test.
func start(c process.Command) (*process.Process, error) {
	type outcome struct {
		p   *process.Process
		err error
	}
	started := make(chan outcome, 1)
	table.Start(c, func(p *process.Process, err error) { started <- outcome{p, err} })
	var o outcome
	select {
	case o = <-started:
	case <-time.After(waittest.Bound):
		return nil, errors.New("the table has started nothing")
	}
	if o.err == nil {
		go func() {
			if !o.p.Wait(5 * time.Millisecond) {
				o.p.Wait(0)
			}
		}()
	}
	return o.p, o.err
}

func sh(t *testing.T, script string) process.Command {
	t.Helper()
	return command(t, "/bin/sh", "sh", "-c", script)
}

func command(t *testing.T, path string, argv ...string) process.Command {
	t.Helper()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	require.NoError(t, err)
	t.Cleanup(func() { null.Close() })
	fd := null.Fd()
	return process.Command{Path: path, Argv: argv, Env: []string{"PATH=" + os.Getenv("PATH")}, Dir: "/", Files: [3]uintptr{fd, fd, fd}}
}

func TestEndsAreToldAsTheyWere(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]string{
		"exit 0":       "exit 0",
		"exit 7":       "exit 7",
		"kill -9 $$":   "signal 9",
		"kill -TERM 0": "signal 15",
	} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			p, err := start(sh(t, script))
			require.NoError(t, err)
			waittest.For(t, p.Done(), "the end of the program")
			got := fmt.Sprintf("exit %d", p.Status().ExitStatus())
			if p.Status().Signaled() {
				got = fmt.Sprintf("signal %d", p.Status().Signal())
			}
			assert.Equal(t, want, got)
		})
	}
}

func TestStartGivesTheSystemsReason(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	require.NoError(t, os.WriteFile(plain, []byte("x"), 0o644))
	garbled := filepath.Join(dir, "garbled")
	require.NoError(t, os.WriteFile(garbled, []byte{1, 2, 3}, 0o755))
	for path, want := range map[string]error{"/no/such": syscall.ENOENT, plain: syscall.EACCES, dir: syscall.EACCES, garbled: syscall.ENOEXEC} {
		_, err := start(command(t, path, path))
		require.ErrorIs(t, err, want, path)
	}
}

func TestNoEndIsLostAmongMany(t *testing.T) {
	t.Parallel()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 20 {
				code := (i*20 + j) % 200
				p, err := start(sh(t, "exit "+strconv.Itoa(code)))
				if assert.NoError(t, err) {
					waittest.Hold(t, p.Done())
					assert.Equal(t, code, p.Status().ExitStatus())
				}
			}
		})
	}
	waittest.Return(t, wg.Wait, "the end of every program")
}

func TestChildrenAreTheFirstToGoWhenMemoryEnds(t *testing.T) {
	t.Parallel()
	p, err := start(sh(t, "sleep 100"))
	require.NoError(t, err)
	defer p.KillTree(0)
	require.Eventually(t, func() bool {
		score, _ := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", p.PID()))
		return strings.TrimSpace(string(score)) == "500"
	}, waittest.Bound, time.Millisecond)
}

// escapes are ways in which a process gets away from the one that started it.
var escapes = map[string]string{
	"child":            "sleep 1000 & echo $! >>%[1]s; wait",
	"own session":      "setsid sh -c 'echo $$ >>%[1]s; exec sleep 1000' & wait",
	"double fork":      "(setsid sh -c '(sh -c \"echo \\$\\$ >>%[1]s; exec sleep 1000\" &) &' &) ; sleep 1000",
	"no environment":   "setsid env -i /bin/sh -c '(echo $$ >>%[1]s; exec sleep 1000) & echo $! >>%[1]s' & sleep 1000",
	"ignores TERM":     "trap '' TERM; echo $$ >>%[1]s; while :; do sleep 1000; done",
	"stopped":          "sh -c 'echo $$ >>%[1]s; kill -STOP $$' & wait",
	"forks for ever":   "echo $$ >>%[1]s; loop() { while :; do (setsid sleep 1000 &) ; sleep 0.01; done; }; trap '' TERM; loop",
	"leader goes away": "trap 'exit 0' TERM; setsid sh -c 'trap \"\" TERM; echo $$ >>%[1]s; while :; do sleep 1000; done' & wait",
}

func TestKillTreeLeavesNoSurvivor(t *testing.T) {
	t.Parallel()
	for name, script := range escapes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "pids")
			p, err := start(sh(t, fmt.Sprintf(script, file)))
			require.NoError(t, err)
			var pids []int
			require.Eventually(t, func() bool { pids = readPIDs(file); return len(pids) > 0 }, waittest.Bound, 5*time.Millisecond)

			assert.Zero(t, p.KillTree(100*time.Millisecond))
			for _, pid := range readPIDs(file) {
				assert.False(t, alive(pid), "process %d lives on", pid)
			}
			waittest.For(t, p.Done(), "the end of the program that was killed")
		})
	}
}

// What KillTree has ended is reaped when it returns; otherwise it would count among the processes of the sandbox, and
// the next command might be refused. All of it is reaped under one lock. The test is not parallel, since the commands
// of other tests start the reaper of orphans.
func TestKillTreeReaps(t *testing.T) { //nolint:paralleltest // see above
	require.Eventually(t, func() bool { return !table.Reaping() }, waittest.Bound, time.Millisecond)
	file := filepath.Join(t.TempDir(), "pids")
	begin := func(script string) *process.Process {
		started := make(chan *process.Process, 1)
		table.Start(sh(t, script), func(p *process.Process, err error) {
			assert.NoError(t, err)
			started <- p
		})
		p := <-started
		require.NotNil(t, p)
		go p.Wait(0)
		return p
	}
	other := begin("sleep 1000")
	// The leader reaps no child.
	p := begin("for i in $(seq 100); do sleep 1000 & echo $! >>" + file + "; done; exec sleep 1000")
	require.Eventually(t, func() bool { return len(readPIDs(file)) == 100 }, waittest.Bound, 5*time.Millisecond)
	pids := readPIDs(file)
	killed, between := make(chan struct{}), make(chan int)
	go func() {
		some := 0
		for {
			select {
			case <-killed:
				between <- some
				return
			default:
			}
			table.WhileStarting(func() {
				gone := 0
				for _, pid := range pids {
					if syscall.Kill(pid, 0) != nil {
						gone++
					}
				}
				if gone > 0 && gone < len(pids) {
					some++
				}
			})
		}
	}()
	assert.Zero(t, p.KillTree(0))
	close(killed)
	some := waittest.For(t, between, "the starts beside it")
	assert.Zero(t, some, "starts between the reaping of one process and of the next")
	for _, pid := range pids {
		assert.Equal(t, syscall.ESRCH, syscall.Kill(pid, 0), "process %d counts as one that lives on", pid)
	}
	assert.Zero(t, other.KillTree(0))
}

// A chain of processes, each of which forks and ends, has none that is there for long, so that a list of processes that
// is read one after another may have none of them.
func TestKillTreeOutrunsAChain(t *testing.T) {
	t.Parallel()
	chain := filepath.Join(t.TempDir(), "chain.py")
	require.NoError(t, os.WriteFile(chain, []byte(`
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.write(1, b"begun")
end = time.monotonic() + 60  # if nobody ends it
while time.monotonic() < end:
    if os.fork(): os._exit(0)
`), 0o600))
	for range 20 {
		ours, theirs, err := os.Pipe() // those who can write into it are alive
		require.NoError(t, err)
		defer ours.Close()
		c := sh(t, "python3 "+chain+" & trap '' TERM; exec >/dev/null; sleep 1000")
		c.Files[1] = theirs.Fd()
		p, err := start(c)
		require.NoError(t, err)
		require.NoError(t, theirs.Close())
		require.NoError(t, ours.SetReadDeadline(time.Now().Add(waittest.Bound)))
		_, err = io.ReadFull(ours, make([]byte, len("begun")))
		require.NoError(t, err)

		require.Zero(t, p.KillTree(0))
		_, err = ours.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF, "a process of the chain lives on")
	}
}

func TestKillTreeLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	one, err := start(sh(t, "sleep 1000 & wait"))
	require.NoError(t, err)
	two, err := start(sh(t, "sleep 1000 & wait"))
	require.NoError(t, err)
	assert.Zero(t, one.KillTree(time.Second))
	assert.True(t, alive(two.PID()))
	assert.Zero(t, two.KillTree(0))
	assert.Zero(t, two.KillTree(0), "killing again does nothing")
}

// The remains of a process are ended by its id, among others, which may have been reused by then.
func TestAnIdThatWasGivenAwayEndsNobody(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pids")
	other, err := start(sh(t, "sleep 1000 & echo $! >"+file+"; wait"))
	require.NoError(t, err)
	var below []int
	require.Eventually(t, func() bool { below = readPIDs(file); return len(below) == 1 }, waittest.Bound, 5*time.Millisecond)
	table.Ended(other.PID()).KillLeft()
	assert.True(t, alive(other.PID()))
	assert.True(t, alive(below[0]))
	assert.Zero(t, other.KillTree(0))
}

func TestOrphansAreReaped(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pids")
	p, err := start(sh(t, "(sh -c 'echo $$ >>"+file+"; exec sleep 0.05' &)"))
	require.NoError(t, err)
	waittest.For(t, p.Done(), "the end of the program")
	require.Eventually(t, func() bool {
		pids := readPIDs(file)
		return len(pids) == 1 && syscall.Kill(pids[0], 0) == syscall.ESRCH
	}, waittest.Bound, 5*time.Millisecond)
}

func TestLookPath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "bin"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "bin", "tool"), nil, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "bin", "data"), nil, 0o644))
	for _, tt := range []struct {
		name, path, want string
		err              error
	}{
		{"tool", "/nowhere:" + dir + "/bin", dir + "/bin/tool", nil},
		{"tool", "bin", dir + "/bin/tool", nil},
		{"data", dir + "/bin", "", syscall.EACCES},
		{"bin", dir, "", syscall.ENOENT},
		{"tool", "", "", syscall.ENOENT},
		{"", dir, "", syscall.ENOENT},
		{"./x", "", "./x", nil},
	} {
		got, err := process.LookPath(tt.name, tt.path, dir)
		assert.Equal(t, tt.want, got)
		assert.ErrorIs(t, err, tt.err)
	}
}

func readPIDs(file string) []int {
	data, _ := os.ReadFile(file)
	var pids []int
	for f := range strings.FieldsSeq(string(data)) {
		if pid, err := strconv.Atoi(f); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// alive is true unless the process is gone or a zombie.
func alive(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}
