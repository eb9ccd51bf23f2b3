package command_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/command"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/process"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/spool"
)

// table is the program's one table.
var table *process.Table

func TestMain(m *testing.M) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		panic(err)
	}
	signal.Ignore(syscall.SIGPIPE)
	t, err := process.NewTable(process.Config{})
	if err != nil {
		panic(err)
	}
	table = t
	code := m.Run()
	table.KillAll()
	table.Close()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func newRunner(t *testing.T, keptBytes int64) *command.Runner {
	t.Helper()
	r, err := command.NewRunner(command.Config{Table: table, Grace: 50 * time.Millisecond, KeptBytes: keptBytes})
	require.NoError(t, err)
	t.Cleanup(r.Close)
	require.NoError(t, r.Configure(command.Settings{Env: map[string]string{"PATH": "/usr/bin:/bin"}, Workdir: t.TempDir()}))
	return r
}

func sh(script string) *sandboxv1.ExecSpec {
	return &sandboxv1.ExecSpec{Argv: []string{"sh", "-c", script}, Timeout: durationpb.New(waittest.Bound)}
}

// run runs a command to its end.
func run(t *testing.T, r *command.Runner, key string, spec *sandboxv1.ExecSpec) (*sandboxv1.ExecResult, bool) {
	t.Helper()
	c, replayed, err := r.Run(t.Context(), key, nil, spec)
	require.NoError(t, err)
	waittest.For(t, c.Done(), "the end of the command")
	require.NoError(t, c.Err())
	return c.Result(1 << 30), replayed
}

func TestManyAtOnceKeepTheirOwn(t *testing.T) {
	t.Parallel()
	r := newRunner(t, 0)
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			key := fmt.Sprint("key", i%20) // each key is requested twice
			c, _, err := r.Run(t.Context(), key, nil, sh(fmt.Sprintf("echo out-%s; echo err-%s >&2; exit %d", key, key, i%20)))
			if !assert.NoError(t, err) {
				return
			}
			waittest.Hold(t, c.Done())
			got := c.Result(1 << 20)
			assert.EqualValues(t, i%20, got.GetExitCode())
			assert.Equal(t, "out-"+key+"\n", string(got.GetStdout()))
			assert.Equal(t, "err-"+key+"\n", string(got.GetStderr()))
		})
	}
	waittest.Return(t, wg.Wait, "every command to end")
	assert.Len(t, r.Keys(), 20)
}

func TestKillAtAnyMomentEndsTheCommand(t *testing.T) {
	t.Parallel()
	r := newRunner(t, 0)
	for i := range 30 {
		key := fmt.Sprint("key", i)
		began := make(chan *command.Command, 1)
		go func() {
			c, _, err := r.Run(t.Context(), key, nil, sh("sleep 1000 & sleep 1000"))
			if err != nil {
				assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_EFFECT_CANCELLED), "%v", err)
			}
			began <- c
		}()
		if i%3 == 0 {
			time.Sleep(time.Duration(i) * 100 * time.Microsecond)
		}
		_, err := r.Kill(t.Context(), key)
		require.NoError(t, err)
		if c := waittest.For(t, began, "the start of the command, or its refusal"); c != nil {
			waittest.For(t, c.Done(), "the end of the command that was killed")
			assert.True(t, c.Result(0).GetCancelled())
		}
	}
}

func TestACommandWithoutAKeyEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	r := newRunner(t, 0)
	ctx, leave := context.WithCancel(t.Context())
	c, _, err := r.Run(ctx, "", nil, sh("sleep 1000"))
	require.NoError(t, err)
	pid, _ := c.Started()
	assert.Positive(t, pid)
	leave()
	waittest.For(t, c.Done(), "the end of the command whose caller left")
	assert.True(t, c.Result(0).GetCancelled())
	assert.Empty(t, r.Keys())
	c, _, err = r.Run(ctx, "key", nil, sh("echo on"))
	require.NoError(t, err)
	waittest.For(t, c.Done(), "the end of the command")
	assert.Equal(t, "on\n", string(c.Result(10).GetStdout()), "one with a key does not")
}

func TestOldOutputMakesRoomExplicitly(t *testing.T) {
	t.Parallel()
	r := newRunner(t, 10_000)
	for i := range 5 {
		got, _ := run(t, r, fmt.Sprint("key", i), sh("head -c 4000 /dev/zero"))
		require.Len(t, got.GetStdout(), 4000)
	}
	require.Eventually(t, func() bool {
		c, _, err := r.Run(t.Context(), "key0", nil, nil)
		return err == nil && len(c.Result(1<<20).GetStdout()) == 0
	}, waittest.Bound, time.Millisecond)
	c, replayed, err := r.Run(t.Context(), "key0", nil, nil)
	require.NoError(t, err)
	got := c.Result(1 << 20)
	assert.True(t, replayed)
	assert.EqualValues(t, 4000, got.GetStdoutBytes(), "the count stays true")
	assert.NotNil(t, got.StdoutCutAt, "and the cut is told")
	last, _ := run(t, r, "key4", sh("head -c 4000 /dev/zero"))
	assert.Len(t, last.GetStdout(), 4000, "the newest stay")
	r.Release(r.Keys())
	assert.Empty(t, r.Keys())
}

// A reader that reads everything has the whole output of its command, however much is printed after the command's end.
func TestOutputThatAReaderHoldsMakesNoRoom(t *testing.T) {
	t.Parallel()
	r := newRunner(t, 10_000)
	var hold *spool.Hold
	held, _, err := r.Follow(t.Context(), "held", nil, sh("head -c 4000 /dev/zero"), func(c *command.Command) { hold = c.Stdout().Hold(0) })
	require.NoError(t, err)
	waittest.For(t, held.Done(), "the end of the command")
	for i := range 5 {
		run(t, r, fmt.Sprint("key", i), sh("head -c 4000 /dev/zero"))
	}
	require.Eventually(t, func() bool {
		c, _, err := r.Run(t.Context(), "key0", nil, nil)
		return err == nil && c.Stdout().Kept() == 0
	}, waittest.Bound, time.Millisecond, "others make room")
	assert.EqualValues(t, 4000, held.Stdout().Kept())
	hold.Advance(4000)
	hold.Release()
	for i := range 5 {
		run(t, r, fmt.Sprint("later", i), sh("head -c 4000 /dev/zero"))
	}
	require.Eventually(t, func() bool { return held.Stdout().Kept() == 0 }, waittest.Bound, time.Millisecond, "it makes room when it is taken")
}

func TestLargeOutputOnBothStreams(t *testing.T) {
	t.Parallel()
	r := newRunner(t, 0)
	got, _ := run(t, r, "", sh("head -c 3000000 /dev/zero & head -c 3000000 /dev/zero >&2; wait"))
	assert.Len(t, got.GetStdout(), 3_000_000)
	assert.Len(t, got.GetStderr(), 3_000_000)
}

func TestInputThatIsNotReadDoesNotHoldTheEnd(t *testing.T) {
	t.Parallel()
	r := newRunner(t, 0)
	spec := sh("exec sleep 0.05")
	spec.Stdin, spec.StdinOpen = bytes.Repeat([]byte("x"), 1<<20), true
	got, _ := run(t, r, "in", spec)
	assert.Zero(t, got.GetExitCode())
	_, err := r.Write("in", 1<<20, []byte("more"), false)
	require.Error(t, err)
	_, err = r.Write("none", 0, nil, false)
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_EFFECT_UNKNOWN))
}

// A caller that sends a command and its input in two calls need not know when the command has begun.
func TestInputThatComesBeforeTheCommandHasBegunWaitsForIt(t *testing.T) {
	t.Parallel()
	r := newRunner(t, 0)
	for i := range 50 {
		key, spec := fmt.Sprint("early", i), sh("exec cat")
		spec.StdinOpen = true
		c, _, err := r.Run(t.Context(), key, nil, spec)
		require.NoError(t, err)
		accepted, err := r.Write(key, 0, []byte("early"), true)
		require.NoError(t, err)
		assert.EqualValues(t, 5, accepted)
		waittest.For(t, c.Done(), "the end of the command")
		assert.Equal(t, "early", string(c.Result(10).GetStdout()))
	}
}

func TestArgumentsThatCannotBe(t *testing.T) {
	t.Parallel()
	r := newRunner(t, 0)
	for name, spec := range map[string]*sandboxv1.ExecSpec{
		"no program": {}, "empty program": {Argv: []string{""}}, "no time": {Argv: []string{"true"}, Timeout: &durationpb.Duration{}},
		"less than nothing": {Argv: []string{"true"}, MaxOutputBytes: new(int64(-1))},
	} {
		_, _, err := r.Run(t.Context(), "", nil, spec)
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST), "%s: %v", name, err)
	}
	for name, spec := range map[string]*sandboxv1.ExecSpec{
		"NUL in an argument": {Argv: []string{"echo", "a\x00b"}}, "NUL in the environment": {Argv: []string{"env"}, Env: map[string]string{"A": "\x00"}},
	} {
		c, _, err := r.Run(t.Context(), "", nil, spec)
		require.NoError(t, err)
		waittest.For(t, c.Done(), "the end of the command")
		assert.True(t, rpcerr.Is(c.Err(), errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST), "%s: %v", name, c.Err())
	}
}

// The model may choose the length of a command: a shell would print the same error for a command that is too long.
func TestACommandThatIsTooLongIsAResult(t *testing.T) {
	t.Parallel()
	r := newRunner(t, 0)
	long := strings.Repeat("x", 128<<10)
	for name, spec := range map[string]*sandboxv1.ExecSpec{
		"an argument": {Argv: []string{"echo", long}}, "a variable": {Argv: []string{"env"}, Env: map[string]string{"A": long}},
	} {
		got, _ := run(t, r, "", spec)
		assert.EqualValues(t, 126, got.GetExitCode(), name)
		assert.Equal(t, spec.GetArgv()[0]+": arguments and environment are longer than the kernel allows, which is 128 KiB for each; pass longer texts in a file\n", string(got.GetStderr()), name)
	}
}

// Its reader waits for the start, and reads nothing before.
func TestACommandThatCannotBeStartedWaitsForNoReader(t *testing.T) {
	t.Parallel()
	r := newRunner(t, 0)
	broken := filepath.Join(t.TempDir(), "broken")
	require.NoError(t, os.WriteFile(broken, []byte("\x7fELF"), 0o755))
	for program, exit := range map[string]int32{"no-such-program": 127, broken: 126} {
		spec := &sandboxv1.ExecSpec{Argv: []string{program}, MaxOutputBytes: proto.Int64(10)}
		waittest.Return(t, func() {
			c, _, err := r.Follow(t.Context(), program, nil, spec, func(c *command.Command) {
				out, errout := c.Stdout().Hold(0), c.Stderr().Hold(0)
				t.Cleanup(out.Release)
				t.Cleanup(errout.Release)
			})
			if assert.NoError(t, err) {
				<-c.Done()
				assert.Equal(t, exit, c.Result(10).GetExitCode())
			}
		}, "the end of "+program)
		got, _ := run(t, r, "", sh("exit 3"))
		assert.EqualValues(t, 3, got.GetExitCode(), "others start")
	}
}
