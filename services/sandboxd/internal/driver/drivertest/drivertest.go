// Package drivertest is the suite that every driver passes: what a box can do, what it cannot reach, how much it may
// use, and that it outlives the process that created it. It observes a box as its tenant does, by commands and files,
// through the guest.
package drivertest

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	guestv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/guest/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/retry"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/client"
)

// Harness creates the subject and states what it lacks.
type Harness struct {
	// New returns a driver that stores its state in dir. A second call with the same dir is a later process.
	New func(t *testing.T, dir string) driver.Driver
	// OneUser means that boxes have a single user.
	OneUser bool
	// Unisolated means that boxes can be created only if a part of the isolation may be missing: no cgroup bounds
	// memory, which is bounded for each process only.
	Unisolated bool
	// OwnSystem means that a box's system folders are its own: root may write them.
	OwnSystem bool
	// NoDiskBound means that writes are not bounded, except for the size of one file.
	NoDiskBound bool
	// GuestInside means that the guest shares the box's memory and processors with its commands.
	GuestInside bool
	// NoWatches means that commands cannot watch files, since such watches would count as the machine's.
	NoWatches bool
	// NoCheckMounts means that checks have no mount namespace of their own, so that they cannot change modes of
	// commands' files.
	NoCheckMounts bool
	// Slow says that the machine is emulated: tests that repeat a thing hundreds of times repeat it less often.
	Slow bool
	// Image is an image that was built from Dockerfile; empty for a driver without images.
	Image string
	// Secrets are files and folders of the host that no box may see.
	Secrets []string
	// Unwritable are paths that exist in a box and that no process in it can write.
	Unwritable []string
}

// Run runs the suite.
func Run(t *testing.T, h Harness) {
	if h.Unisolated {
		build := h.New
		h.New = func(t *testing.T, dir string) driver.Driver { return allowing{build(t, dir)} }
	}
	t.Run("commands", func(t *testing.T) { t.Parallel(); commands(t, h) })
	t.Run("ends", func(t *testing.T) { t.Parallel(); ends(t, h) })
	t.Run("streams", func(t *testing.T) { t.Parallel(); streams(t, h) })
	t.Run("keys", func(t *testing.T) { t.Parallel(); keys(t, h) })
	t.Run("files", func(t *testing.T) { t.Parallel(); files(t, h) })
	t.Run("checks", func(t *testing.T) { t.Parallel(); checks(t, h) })
	t.Run("isolation", func(t *testing.T) { t.Parallel(); isolation(t, h) })
	t.Run("escapes", func(t *testing.T) { t.Parallel(); escapes(t, h) })
	t.Run("attacks", func(t *testing.T) { t.Parallel(); attacks(t, h) })
	t.Run("limits", func(t *testing.T) { t.Parallel(); bounds(t, h) })
	t.Run("system calls", func(t *testing.T) { t.Parallel(); calls(t, h) })
	t.Run("images", func(t *testing.T) { t.Parallel(); images(t, h) })
	t.Run("life", func(t *testing.T) { t.Parallel(); life(t, h) })
}

const owner = "drivertest"

// runWhere runs a subtest of a promise that holds for a driver with this harness.
func runWhere(t *testing.T, promised bool, name string, f func(t *testing.T)) {
	if promised {
		t.Run(name, f)
	}
}

// patience is the timeout of commands that end by themselves, far above their duration on an emulated machine whose
// processors are busy.
const patience = 10 * time.Minute

// createTime bounds how long the creation of a box that has to wait is retried.
const createTime = 10 * time.Minute

// small bounds the boxes of the suite.
var small = driver.Limits{MemoryBytes: 256 << 20, PIDs: 64, OpenFiles: 256, FileSizeBytes: 64 << 20, DiskBytes: 96 << 20}

// box is a box and a connection to its guest.
type box struct {
	*testing.T
	driver driver.Driver
	spec   driver.Spec
	report driver.Report
	client *client.Client
}

// allowing creates boxes even if a part of the isolation is missing.
type allowing struct{ driver.Driver }

func (a allowing) Create(ctx context.Context, spec driver.Spec) (driver.Report, error) {
	spec.AllowUnisolated = true
	return a.Driver.Create(ctx, spec)
}

// newBox creates a box that is destroyed with the test.
func newBox(t *testing.T, d driver.Driver, change func(*driver.Spec)) *box {
	t.Helper()
	spec := driver.Spec{
		ID: "t-" + strings.ToLower(rand.Text()), Owner: owner, Deadline: time.Now().Add(time.Hour), OrphanTimeout: 30 * time.Minute, Limits: small,
	}
	if change != nil {
		change(&spec)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		assert.NoError(t, d.Destroy(ctx, spec.ID))
	})
	b := &box{T: t, driver: d, spec: spec, report: create(t, d, spec)}
	b.client = b.connect("")
	return b
}

// create creates a box. It waits for a shortage, or a late guest on a busy machine, as a run does.
func create(t *testing.T, d driver.Driver, spec driver.Spec) driver.Report {
	t.Helper()
	for last := time.Now().Add(createTime); ; {
		report, err := d.Create(t.Context(), spec)
		if err == nil || !rpcerr.Transient(err) || time.Now().After(last) {
			require.NoError(t, err)
			return report
		}
		t.Logf("a box has to wait: %v", err)
		require.NoError(t, retry.Sleep(t.Context(), max(rpcerr.RetryAfter(err), 100*time.Millisecond)))
	}
}

// connect returns a client of the box's guest, like that of a process that has only the record of the box.
func (b *box) connect(boot string) *client.Client {
	hello := &guestv1.HelloRequest{
		Sandbox: b.spec.ID, Env: b.report.Env, Workdir: b.report.Workdir, User: b.report.User,
		Deadline: timestamppb.New(b.spec.Deadline), OrphanTimeout: durationpb.New(b.spec.OrphanTimeout),
	}
	c := client.New(client.Config{
		Connect: func(ctx context.Context) (net.Conn, error) { return b.driver.Connect(ctx, b.spec.ID) }, Hello: hello, BootID: boot, Sandbox: b.spec.ID,
	})
	b.Cleanup(c.Close)
	return c
}

// sub is the box for a subtest.
func (b *box) sub(t *testing.T) *box {
	c := *b
	c.T = t
	return &c
}

// exec runs a command.
func (b *box) exec(spec *sandboxv1.ExecSpec) (*sandboxv1.ExecResult, error) {
	b.Helper()
	return b.run(b.client, "", spec)
}

// run runs a command under a key, over any client. After a cut connection it repeats the request if it has a key.
func (b *box) run(c *client.Client, key string, spec *sandboxv1.ExecSpec) (*sandboxv1.ExecResult, error) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), patience+time.Minute)
	defer cancel()
	call := c.Once
	if key != "" {
		call = c.Again
	}
	var result *sandboxv1.ExecResult
	err := call(ctx, func(api guestv1.GuestServiceClient) error {
		resp, err := api.Run(ctx, &guestv1.RunRequest{Key: key, Spec: spec, MaxAnswerBytes: 3 << 20})
		result = resp.GetResult()
		return err
	})
	return result, err
}

// timesOut runs a command that never ends by itself until its timeout, which is doubled until the command has printed
// its first output: a loaded machine may need longer for that.
func (b *box) timesOut(begins string, argv ...string) {
	b.Helper()
	for timeout := 5 * time.Second; ; timeout *= 2 {
		r, err := b.exec(&sandboxv1.ExecSpec{Argv: argv, Timeout: durationpb.New(timeout)})
		require.NoError(b, err)
		require.True(b, r.GetTimedOut(), "exit code %d: %s", r.GetExitCode(), r.GetStderr())
		assert.NotZero(b, r.GetExitCode())
		if string(r.GetStdout()) == begins {
			return // Output from before the timeout is there.
		}
		require.Less(b, timeout, patience, "stdout: %s\nstderr: %s", r.GetStdout(), r.GetStderr())
	}
}

// sh runs a script that must succeed and returns its output.
func (b *box) sh(format string, args ...any) string {
	b.Helper()
	script := fmt.Sprintf(format, args...)
	r, err := b.exec(&sandboxv1.ExecSpec{Argv: []string{"bash", "-c", script}, Timeout: durationpb.New(patience)})
	require.NoError(b, err, script)
	require.Zero(b, r.GetExitCode(), "%s\nstdout: %s\nstderr: %s\ntimed out: %v", script, r.GetStdout(), r.GetStderr(), r.GetTimedOut())
	return string(r.GetStdout())
}

// fails runs a script that must not end well.
func (b *box) fails(format string, args ...any) {
	b.Helper()
	script := fmt.Sprintf(format, args...)
	r, err := b.exec(&sandboxv1.ExecSpec{Argv: []string{"bash", "-c", script}, Timeout: durationpb.New(patience)})
	require.NoError(b, err, script)
	require.NotZero(b, r.GetExitCode(), "%s\nstdout: %s\nstderr: %s", script, r.GetStdout(), r.GetStderr())
}

// python runs a program that must succeed and returns its output.
func (b *box) python(program string, args ...string) string {
	b.Helper()
	r, err := b.exec(&sandboxv1.ExecSpec{Argv: append([]string{"python3", "-c", program}, args...), Timeout: durationpb.New(patience)})
	require.NoError(b, err)
	require.Zero(b, r.GetExitCode(), "%s\nstdout: %s\nstderr: %s", program, r.GetStdout(), r.GetStderr())
	return strings.TrimSpace(string(r.GetStdout()))
}

// running counts the processes of the box that were started with exactly these arguments.
func (b *box) running(argv ...string) string {
	b.Helper()
	return b.python(`
import os, sys
want = b'\0'.join(a.encode() for a in sys.argv[1:]) + b'\0'
n = 0
for pid in filter(str.isdigit, os.listdir('/proc')):
    try: n += open('/proc/%s/cmdline' % pid, 'rb').read() == want
    except OSError: pass
print(n)`, argv...)
}
