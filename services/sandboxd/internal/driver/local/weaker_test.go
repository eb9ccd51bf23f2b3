package local

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	guestv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/guest/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver/boxstore"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/box"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/client"
)

// newTestDriver returns a driver whose measurements a test may change before it creates boxes.
func newTestDriver(t *testing.T) *Driver {
	t.Helper()
	guest := os.Getenv("EVALFLEET_TEST_GUEST") // built by TestMain
	d, err := New(Config{Dir: t.TempDir(), GuestPath: guest, SearchPath: os.Getenv("PATH")})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, d.Close()) })
	d.look(t.Context())
	return d
}

func make1(t *testing.T, d *Driver, allow bool) (driver.Report, func(argv ...string) *sandboxv1.ExecResult, error) {
	t.Helper()
	return makeWith(t, d, allow, driver.Limits{MemoryBytes: 256 << 20, PIDs: 64, CPUMillis: 700})
}

func makeWith(t *testing.T, d *Driver, allow bool, limits driver.Limits) (driver.Report, func(argv ...string) *sandboxv1.ExecResult, error) {
	t.Helper()
	id := "w-" + strings.ToLower(rand.Text())
	t.Cleanup(func() { assert.NoError(t, d.Destroy(context.Background(), id)) })
	report, err := d.Create(t.Context(), driver.Spec{
		ID: id, Owner: "test", Deadline: time.Now().Add(time.Minute), AllowUnisolated: allow, Limits: limits,
	})
	c := client.New(client.Config{
		Connect: func(ctx context.Context) (net.Conn, error) { return d.Connect(ctx, id) },
		Hello:   &guestv1.HelloRequest{Env: report.Env, Workdir: report.Workdir, User: report.User},
	})
	t.Cleanup(c.Close)
	return report, func(argv ...string) (r *sandboxv1.ExecResult) {
		t.Helper()
		require.NoError(t, c.Once(t.Context(), func(api guestv1.GuestServiceClient) error {
			spec := &sandboxv1.ExecSpec{Argv: argv}
			if argv[0] == "timeout-me" {
				spec.Argv, spec.Timeout = argv[1:], durationpb.New(2*time.Second)
			}
			resp, err := api.Run(t.Context(), &guestv1.RunRequest{Spec: spec, MaxAnswerBytes: 1 << 20})
			r = resp.GetResult()
			return err
		}))
		return r
	}, err
}

func TestAMissingPartIsNamedUnlessItIsAllowed(t *testing.T) {
	t.Parallel()
	d := newTestDriver(t)
	// A missing folder cannot be mounted, which represents any part that this machine may lack.
	d.system.trees = append(d.system.trees, box.Tree{Target: "/no/such/folder", Mount: box.Mount{Source: "/no/such/folder"}})
	_, _, err := make1(t, d, false)
	require.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_ISOLATION_UNAVAILABLE), "%v", err)
	require.ErrorContains(t, err, "system folders")
	require.ErrorContains(t, err, "--allow-unisolated")
	e, _ := rpcerr.As(err)
	assert.Equal(t, "system folders", e.Metadata["missing"])
	entries, err := os.ReadDir(d.boxes.Dir())
	require.NoError(t, err)
	assert.Len(t, entries, 1, "nothing is left but the guest program")

	report, run, err := make1(t, d, true)
	require.NoError(t, err)
	assert.True(t, report.Isolation.Unisolated)
	assert.Contains(t, strings.Join(report.Isolation.Weaker, "; "), "system folders")
	r := run("sh", "-c", "pwd; env | sort; touch here")
	require.Zero(t, r.GetExitCode(), "%s", r.GetStderr())
	assert.Contains(t, string(r.GetStdout()), report.Workdir+"\n")
	assert.Contains(t, string(r.GetStdout()), "HOME="+report.Env["HOME"]+"\n")
	assert.NotContains(t, string(r.GetStdout()), "GOPATH")
	assert.FileExists(t, filepath.Join(report.Workdir, "here"))
	assert.NotEqual(t, int32(0), run("unshare", "-U", "true").GetExitCode(), "what can be taken from commands is")
}

// A guest program that cannot run is named, with the remedy. Weaker isolation is not a remedy.
func TestAGuestProgramThatWasBuiltWithCgoIsNamed(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "guestd")
	answer := `#!/bin/sh
cat <&3 >/dev/null
echo '{"Failed": "guest program", "Reason": "it was built with cgo"}' >&4
`
	require.NoError(t, os.WriteFile(program, []byte(answer), 0o755))
	d, err := New(Config{Dir: t.TempDir(), GuestPath: program, SearchPath: os.Getenv("PATH")})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, d.Close()) })
	for _, allow := range []bool{false, true} {
		_, _, err = make1(t, d, allow)
		require.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_ISOLATION_UNAVAILABLE), "%v", err)
		for _, words := range []string{program, "it was built with cgo", "CGO_ENABLED=0", "make build"} {
			require.ErrorContains(t, err, words)
		}
		assert.NotContains(t, err.Error(), "allow-unisolated")
	}
}

func TestDestroyEndsWhatAnUnisolatedBoxStarted(t *testing.T) {
	t.Parallel()
	d := newTestDriver(t)
	d.system.trees = append(d.system.trees, box.Tree{Target: "/no/such/folder", Mount: box.Mount{Source: "/no/such/folder"}})
	report, run, err := make1(t, d, true)
	require.NoError(t, err)
	r := run("sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 & echo $! > pid; until [ -s pid ]; do sleep 0.01; done")
	require.Zero(t, r.GetExitCode())
	data, err := os.ReadFile(filepath.Join(report.Workdir, "pid"))
	require.NoError(t, err)
	pid := strings.TrimSpace(string(data))
	require.DirExists(t, "/proc/"+pid)
	entries, err := os.ReadDir(d.boxes.Dir())
	require.NoError(t, err)
	for _, e := range entries {
		if e.IsDir() {
			require.NoError(t, d.Destroy(t.Context(), e.Name()))
		}
	}
	assertEnded(t, pid)
}

// assertEnded fails the test if a process runs. A zombie may be there.
func assertEnded(t *testing.T, pid string) {
	t.Helper()
	state, err := os.ReadFile("/proc/" + pid + "/stat")
	assert.True(t, err != nil || strings.Contains(string(state), ") Z "), "it runs: %s", state)
}

// A process that left its session and its parent ends with the timeout of its command, also without isolation.
func TestATimeoutEndsWhatAnUnisolatedBoxStarted(t *testing.T) {
	t.Parallel()
	d := newTestDriver(t)
	d.system.trees = append(d.system.trees, box.Tree{Target: "/no/such/folder", Mount: box.Mount{Source: "/no/such/folder"}})
	report, run, err := make1(t, d, true)
	require.NoError(t, err)
	t.Log(report.Isolation.Weaker)
	r := run("timeout-me", "sh", "-c", "(setsid sh -c 'echo $$ > pid; exec sleep 1000' >/dev/null 2>&1 &); until [ -s pid ]; do sleep 0.01; done; sleep 1000")
	require.True(t, r.GetTimedOut())
	data, err := os.ReadFile(filepath.Join(report.Workdir, "pid"))
	require.NoError(t, err)
	assertEnded(t, strings.TrimSpace(string(data)))
}

func TestWithoutCgroupsABoxNeedsLeave(t *testing.T) {
	t.Parallel()
	d := newTestDriver(t)
	d.cgroups, d.noGroup, d.asked = nil, errors.New("none here"), true
	_, _, err := make1(t, d, false)
	require.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_ISOLATION_UNAVAILABLE), "%v", err)
	require.ErrorContains(t, err, "cgroups for memory and pids: none here")
	for _, next := range map[bool][]string{true: {"CAP_SYS_ADMIN"}, false: {"systemd-run --user --scope -p Delegate=yes", "run as root"}}[d.root] {
		require.ErrorContains(t, err, next)
	}
	require.ErrorContains(t, err, "another driver")
	require.ErrorContains(t, err, "--allow-unisolated")

	report, run, err := make1(t, d, true)
	require.NoError(t, err)
	assert.True(t, report.Isolation.Unisolated)
	assert.Contains(t, report.Isolation.Parts, "network namespace", "the rest is as ever")
	weaker := strings.Join(report.Isolation.Weaker, "; ")
	assert.Contains(t, weaker, "RLIMIT_DATA")
	assert.Contains(t, weaker, "RLIMIT_NPROC")
	assert.Contains(t, weaker, "cpu: a number of whole processors")
	assert.Equal(t, "1 refused\n", string(run("python3", "-c", `
import os
try: os.sched_setaffinity(0, range(64)); left = 'moved'
except PermissionError: left = 'refused'
print(len(os.sched_getaffinity(0)), left)`).GetStdout()))
	assert.NotZero(t, run("python3", "-c", "x = b'x' * (1 << 30)").GetExitCode(), "a bound per process")
}

func TestCgroupsOfOurOwnMount(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount")
	}
	d := newTestDriver(t)
	own, err := ownCgroups()
	require.NoError(t, err)
	t.Cleanup(func() { closeAll(own.mounts) })
	d.cgroups = own
	report, run, err := make1(t, d, false)
	require.NoError(t, err)
	assert.Contains(t, report.Isolation.Parts, "cgroup memory")
	r := run("python3", "-c", "x = b'x' * (1 << 30)")
	assert.EqualValues(t, 137, r.GetExitCode())
	assert.True(t, r.GetOom())
}

func TestMountedHierarchiesAreRead(t *testing.T) {
	t.Parallel()
	const v1 = `31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
39 31 0:36 / /sys/fs/cgroup/pids rw,relatime shared:9 - cgroup cgroup rw,pids
36 31 0:33 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
42 31 0:39 /docker/abc /elsewhere rw,relatime - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
`
	own := map[string]string{"memory": "/a", "pids": "/b", "cpu": "/c", "": "/d"}
	assert.Equal(t, hierarchies{
		"memory": {"/sys/fs/cgroup/memory", "/a"}, "pids": {"/sys/fs/cgroup/pids", "/b"}, "cpu": {"/sys/fs/cgroup/cpu,cpuacct", "/c"},
		unified: {"/sys/fs/cgroup/unified", "/d"},
	}, parseMounts(v1, own))
	assert.Equal(t, hierarchies{unified: {"/sys/fs/cgroup", "/user.slice"}},
		parseMounts("30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n", map[string]string{"": "/user.slice"}))
}

func TestARecordIsNotTakenForAnotherProcess(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sleep", "100")
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	rec := &record{Namespaces: true}
	require.NoError(t, rec.identify(cmd.Process.Pid))
	assert.True(t, lives(t, rec))
	for name, change := range map[string]func(*record){
		"start": func(r *record) { r.Start++ }, "boot": func(r *record) { r.Boot = "another" }, "process": func(r *record) { r.PID = 0 },
	} {
		other := *rec
		change(&other)
		assert.False(t, lives(t, &other), name)
		require.NoError(t, other.kill(t.Context()), name)
	}
	threads, err := os.ReadDir("/proc/self/task")
	require.NoError(t, err)
	for _, thread := range threads { // The kernel reuses ids of ended processes for threads too.
		other := *rec
		other.PID, err = strconv.Atoi(thread.Name())
		require.NoError(t, err)
		require.NoError(t, other.kill(t.Context()), thread.Name())
	}
	require.NoError(t, cmd.Process.Signal(syscall.Signal(0)), "nobody killed it")
	require.NoError(t, rec.kill(t.Context()))
	assert.False(t, lives(t, rec))
}

func lives(t *testing.T, rec *record) bool {
	t.Helper()
	alive, err := rec.alive()
	require.NoError(t, err)
	return alive
}

// A Python that was installed for one user alone may have the home for its prefix, with all that is in there.
func TestPythonThatHoldsWhatIsPrivateIsNotShown(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	require.NoError(t, os.MkdirAll(filepath.Join(home, "bin"), 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(home, "data"), 0o755))
	program := "#!/bin/sh\necho " + home + "\n"
	require.NoError(t, os.WriteFile(filepath.Join(home, "bin", "python3"), []byte(program), 0o755))
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(home, link))
	guest := os.Getenv("EVALFLEET_TEST_GUEST")
	for _, python := range []string{home, home + "/", filepath.Dir(home), "/", link, filepath.Join(home, "bin", "..")} {
		_, err := New(Config{Dir: t.TempDir(), GuestPath: guest, Python: python})
		require.ErrorContains(t, err, "cannot be shown in sandboxes", python)
	}
	_, err := New(Config{Dir: filepath.Join(home, "python", "boxes"), GuestPath: guest, Python: filepath.Join(home, "python")})
	require.ErrorContains(t, err, "cannot be shown in sandboxes")

	var said bytes.Buffer
	d, err := New(Config{Dir: t.TempDir(), GuestPath: guest, SearchPath: filepath.Join(home, "bin"), Logger: slog.New(slog.NewTextHandler(&said, nil))})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, d.Close()) })
	d.look(t.Context())
	assert.Contains(t, said.String(), home)
	assert.Empty(t, d.system.python)
	for _, tree := range d.system.trees {
		assert.False(t, within(home, tree.Source), tree.Source)
	}
}

func TestPythonElsewhereIsShownByANeutralName(t *testing.T) {
	t.Parallel()
	s := findSystem(t.Context(), "/home/someone/pythons/3.12", "", []string{"/home/someone", "/home/someone/pythons/3.1"}, slog.New(slog.DiscardHandler))
	assert.Equal(t, pythonTarget+"/bin:"+systemPath, s.path)
	assert.Equal(t, "/home/someone/pythons/3.12", s.links[pythonTarget])
	modes := map[string]uint32{}
	for _, f := range s.folders(0, userID, workdir) {
		modes[f.Path] = f.Mode
	}
	for _, path := range []string{"/home", "/home/someone", "/home/someone/pythons"} {
		assert.Equal(t, uint32(0o711), modes[path], path)
	}
	assert.Equal(t, systemPath, (&system{}).hostPath())
	assert.Empty(t, findPython(t.Context(), "/nowhere"))
}

func TestABoxWhoseGuestIsLostByMemorySaysSo(t *testing.T) {
	t.Parallel()
	d := newTestDriver(t)
	groups, err := d.groups()
	if err != nil {
		t.Skip("SKIP: this user can make no cgroups: ", err)
	}
	id := "w-" + strings.ToLower(rand.Text())
	t.Cleanup(func() { assert.NoError(t, d.Destroy(context.Background(), id)) })
	report, err := d.Create(t.Context(), driver.Spec{
		ID: id, Owner: "test", Deadline: time.Now().Add(10 * time.Minute), Limits: driver.Limits{MemoryBytes: 256 << 20, PIDs: 64},
	})
	require.NoError(t, err)
	c := client.New(client.Config{
		Connect: func(ctx context.Context) (net.Conn, error) { return d.Connect(ctx, id) },
		Hello:   &guestv1.HelloRequest{Env: report.Env, Workdir: report.Workdir, User: report.User},
	})
	t.Cleanup(c.Close)
	ctx, cancel := context.WithTimeout(t.Context(), waittest.Bound)
	defer cancel()
	fill := func() error { // the guest stores the output of a command
		return c.Once(ctx, func(api guestv1.GuestServiceClient) error {
			spec := &sandboxv1.ExecSpec{Argv: []string{"head", "-c", "10M", "/dev/zero"}, Timeout: durationpb.New(waittest.Bound)}
			_, err := api.Run(ctx, &guestv1.RunRequest{Key: rand.Text(), Spec: spec})
			return err
		})
	}
	require.NoError(t, fill())
	seen, err := d.List(t.Context(), "test")
	require.NoError(t, err)
	require.Len(t, seen, 1)
	assert.True(t, seen[0].Alive)
	rec, err := boxstore.Read[record](d.boxes, id)
	require.NoError(t, err)
	file := map[string]string{unified: "memory.max"}
	for _, ref := range rec.Cgroups {
		if filepath.Base(ref.Path) == guestGroup && (ref.Tree == unified || ref.Tree == "memory") {
			limit := filepath.Join(groups.path(ref.Tree, ref.Path), cmp.Or(file[ref.Tree], "memory.limit_in_bytes"))
			for bytes := 4 << 20; put(limit, strconv.Itoa(bytes)) != nil; bytes += 4 << 20 { // less than it has is refused by version 1
				require.Less(t, bytes, 1<<30)
			}
		}
	}
	for err == nil {
		err = fill()
	}
	require.NoError(t, ctx.Err(), "it lives on")
	_, err = d.Connect(ctx, id)
	lost, _ := rpcerr.As(err)
	require.NotNil(t, lost)
	assert.Equal(t, errorsv1.ErrorReason_ERROR_REASON_SANDBOX_LOST, lost.Reason)
	assert.Equal(t, "oom", lost.Metadata["cause"])
	seen, err = d.List(t.Context(), "test")
	require.NoError(t, err)
	assert.False(t, seen[0].Alive)
	assert.Equal(t, driver.OutOfMemory, seen[0].Ended)
}
