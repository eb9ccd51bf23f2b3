package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/evalfleet/evalfleet/pkg/effect"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/sandbox"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/tool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const boxName = "projects/default/sandboxes/s1"

// scriptedService answers commands and file operations with functions and records the requests.
type scriptedService struct {
	sandboxv1.SandboxServiceClient

	answer func(ctx context.Context, n int) (*sandboxv1.ExecResponse, error)
	fault  error // of file operations

	mu                        sync.Mutex
	execs                     []*sandboxv1.ExecRequest
	killed, released, written []string
}

func (s *scriptedService) Exec(ctx context.Context, request *sandboxv1.ExecRequest, _ ...grpc.CallOption) (*sandboxv1.ExecResponse, error) {
	s.mu.Lock()
	s.execs = append(s.execs, request)
	n := len(s.execs)
	s.mu.Unlock()
	if s.answer == nil {
		return &sandboxv1.ExecResponse{Result: &sandboxv1.ExecResult{}}, nil
	}
	return s.answer(ctx, n)
}

func (s *scriptedService) CancelExec(ctx context.Context, request *sandboxv1.CancelExecRequest, _ ...grpc.CallOption) (*sandboxv1.CancelExecResponse, error) {
	s.killed = append(s.killed, request.GetRequestId())
	return &sandboxv1.CancelExecResponse{}, ctx.Err()
}

func (s *scriptedService) ReleaseExec(_ context.Context, request *sandboxv1.ReleaseExecRequest, _ ...grpc.CallOption) (*sandboxv1.ReleaseExecResponse, error) {
	s.released = append(s.released, request.GetRequestIds()...)
	return &sandboxv1.ReleaseExecResponse{}, s.fault
}

func (s *scriptedService) ReadFile(_ context.Context, request *sandboxv1.ReadFileRequest, _ ...grpc.CallOption) (*sandboxv1.ReadFileResponse, error) {
	if s.fault != nil {
		return nil, s.fault
	}
	return &sandboxv1.ReadFileResponse{Content: []byte("content of " + request.GetPath())}, nil
}

func (s *scriptedService) WriteFile(_ context.Context, request *sandboxv1.WriteFileRequest, _ ...grpc.CallOption) (*sandboxv1.WriteFileResponse, error) {
	s.written = append(s.written, request.GetPath())
	return &sandboxv1.WriteFileResponse{}, s.fault
}

func (s *scriptedService) GetSandbox(_ context.Context, request *sandboxv1.GetSandboxRequest, _ ...grpc.CallOption) (*sandboxv1.Sandbox, error) {
	return &sandboxv1.Sandbox{Name: request.GetName(), GuestPath: "/run/guest"}, s.fault
}

func numbered(n int) string { return fmt.Sprintf("call/exec-%d", n) }

func open(t *testing.T, service *scriptedService, key func(int) string) (tool.Sandbox, *sandbox.Access) {
	t.Helper()
	access := sandbox.NewAccess(service, map[string]string{"default": boxName}, key, nil)
	box, err := access.Sandbox("default")
	require.NoError(t, err)
	return box, access
}

var echo = &sandboxv1.ExecSpec{Argv: []string{"echo", "it's"}}

func TestCommandsAreNumbered(t *testing.T) {
	t.Parallel()
	service := &scriptedService{}
	box, access := open(t, service, numbered)
	for range 2 {
		_, err := box.Exec(t.Context(), echo)
		require.NoError(t, err)
	}
	assert.Equal(t, "call/exec-1", service.execs[0].GetRequestId())
	assert.Equal(t, "call/exec-2", service.execs[1].GetRequestId())
	assert.Equal(t, boxName, service.execs[0].GetSandbox())

	require.NoError(t, access.Release(t.Context()))
	assert.Equal(t, []string{"call/exec-1", "call/exec-2"}, service.released)
	require.NoError(t, access.Release(t.Context()))
	assert.Len(t, service.released, 2, "once")
}

// TestCommandsWithKeysRunOneAfterAnother: the numbers of concurrent commands would depend on chance.
func TestCommandsWithKeysRunOneAfterAnother(t *testing.T) {
	t.Parallel()
	var box tool.Sandbox
	service := &scriptedService{}
	service.answer = func(ctx context.Context, n int) (*sandboxv1.ExecResponse, error) {
		if n == 1 {
			_, err := box.Exec(ctx, echo)
			assert.ErrorContains(t, err, "two commands at once")
		}
		return &sandboxv1.ExecResponse{Result: &sandboxv1.ExecResult{}}, nil
	}
	box, _ = open(t, service, numbered)
	for range 2 {
		_, err := box.Exec(t.Context(), echo)
		require.NoError(t, err)
	}
	assert.Len(t, service.execs, 2)
}

func TestWithoutAKeyCommandsHaveNone(t *testing.T) {
	t.Parallel()
	service := &scriptedService{answer: func(ctx context.Context, _ int) (*sandboxv1.ExecResponse, error) {
		return nil, context.Cause(ctx)
	}}
	box, access := open(t, service, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := box.Exec(ctx, echo)
	require.ErrorIs(t, err, context.Canceled)
	assert.Empty(t, service.execs[0].GetRequestId())
	assert.Empty(t, service.killed, "it ends with its caller by itself")
	require.NoError(t, access.Release(t.Context()))
	assert.Empty(t, service.released)
}

func TestACommandWhoseCallEndsIsKilled(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cause  error
		killed []string
	}{
		"a deadline or a sibling":     {errors.New("any"), []string{"call/exec-1"}},
		"the service leaves it alone": {effect.ErrDraining, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(t.Context())
			service := &scriptedService{answer: func(context.Context, int) (*sandboxv1.ExecResponse, error) {
				cancel(c.cause)
				return nil, context.Canceled
			}}
			box, _ := open(t, service, numbered)
			_, err := box.Exec(ctx, echo)
			require.Error(t, err)
			assert.Equal(t, c.killed, service.killed)
		})
	}
}

func isUnavailable() error {
	return rpcerr.ServiceUnavailable("sandboxd", time.Second, "sandboxd is starting")
}

func TestAskedAgainUnderTheSameKeyWhileTheServiceIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		service := &scriptedService{answer: func(_ context.Context, n int) (*sandboxv1.ExecResponse, error) {
			if n < 4 {
				return nil, isUnavailable()
			}
			return &sandboxv1.ExecResponse{Result: &sandboxv1.ExecResult{Replayed: true}}, nil
		}}
		box, _ := open(t, service, numbered)
		result, err := box.Exec(t.Context(), echo)
		require.NoError(t, err)
		assert.True(t, result.GetReplayed())
		require.Len(t, service.execs, 4)
		for _, request := range service.execs {
			assert.Equal(t, "call/exec-1", request.GetRequestId())
		}
	})
}

func TestAServiceThatStaysAwayIsAnError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		service := &scriptedService{answer: func(context.Context, int) (*sandboxv1.ExecResponse, error) { return nil, isUnavailable() }}
		box, _ := open(t, service, numbered)
		begun := time.Now()
		_, err := box.Exec(t.Context(), echo)
		assertTold(t, err, toolv1.ToolErrorType_TOOL_ERROR_TYPE_SANDBOX_UNAVAILABLE, "sandboxd is starting")
		assert.InDelta(t, 30, time.Since(begun).Seconds(), 5)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = box.Exec(ctx, echo)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

// Processes that an agent left running must not block its run permanently.
func TestASandboxFullOfProcessesIsForTheModel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		service := &scriptedService{answer: func(_ context.Context, n int) (*sandboxv1.ExecResponse, error) {
			if n == 2 {
				return &sandboxv1.ExecResponse{Result: &sandboxv1.ExecResult{}}, nil
			}
			return nil, rpcerr.SandboxQuota("processes", 0, time.Second, "no room for another process")
		}}
		box, _ := open(t, service, numbered)
		_, err := box.Exec(t.Context(), echo)
		require.NoError(t, err, "room again a second later")
		_, err = box.Exec(t.Context(), echo)
		assertTold(t, err, toolv1.ToolErrorType_TOOL_ERROR_TYPE_UNKNOWN, "no room for another process")
	})
}

func TestAQuotaThatTheServiceFreesIsARunsWait(t *testing.T) {
	t.Parallel()
	service := &scriptedService{answer: func(context.Context, int) (*sandboxv1.ExecResponse, error) {
		return nil, rpcerr.SandboxQuota("results", 7, time.Second, "release results")
	}}
	box, _ := open(t, service, numbered)
	_, err := box.Exec(waittest.Context(t), echo)
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_SANDBOX_QUOTA), "%v", err)
}

func assertTold(t *testing.T, err error, kind toolv1.ToolErrorType, says string) {
	t.Helper()
	told, ok := tool.Explain("t", err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, kind, told.Type)
	assert.Contains(t, told.Message, says)
}

func TestErrorsOfTheService(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault *rpcerr.Error
		want  toolv1.ToolErrorType
		says  string
	}{
		{rpcerr.FileNotFound("/f", "as sandboxd says"), toolv1.ToolErrorType_TOOL_ERROR_TYPE_FILE_NOT_FOUND, ": /f."},
		{rpcerr.IsADirectory("/f", "as sandboxd says"), toolv1.ToolErrorType_TOOL_ERROR_TYPE_IS_A_DIRECTORY, ": /f."},
		{rpcerr.SandboxPermission("/f", "as sandboxd says"), toolv1.ToolErrorType_TOOL_ERROR_TYPE_PERMISSION, ": /f."},
		{rpcerr.InvalidPath("/f", "as sandboxd says"), toolv1.ToolErrorType_TOOL_ERROR_TYPE_UNKNOWN, "as sandboxd says"},
		{rpcerr.FileTooLarge("/f", 3<<20, "as sandboxd says"), toolv1.ToolErrorType_TOOL_ERROR_TYPE_LIMIT, "3 MiB"},
		{rpcerr.SandboxLost("s", "gone", "as sandboxd says"), toolv1.ToolErrorType_TOOL_ERROR_TYPE_SANDBOX_UNAVAILABLE, "as sandboxd says"},
		{rpcerr.SandboxTerminated("s", "as sandboxd says"), toolv1.ToolErrorType_TOOL_ERROR_TYPE_SANDBOX_UNAVAILABLE, "as sandboxd says"},
		{rpcerr.NotFound("s", "as sandboxd says"), toolv1.ToolErrorType_TOOL_ERROR_TYPE_SANDBOX_UNAVAILABLE, "as sandboxd says"},
		{rpcerr.EffectCancelled("k", "as sandboxd says"), toolv1.ToolErrorType_TOOL_ERROR_TYPE_CANCELLED, "cancelled"},
	} {
		t.Run(rpcerr.ReasonName(c.fault.Reason), func(t *testing.T) {
			t.Parallel()
			service := &scriptedService{fault: c.fault}
			box, access := open(t, service, numbered)
			_, err := box.ReadFile(waittest.Context(t), "/f")
			assertTold(t, err, c.want, c.says)
			assertTold(t, box.WriteFile(waittest.Context(t), "/f", nil), c.want, c.says)
			require.Len(t, access.Actions(), 2)
			assert.NotEmpty(t, access.Actions()[0].GetError())
		})
	}

	service := &scriptedService{fault: rpcerr.Internal("a bug")}
	box, _ := open(t, service, numbered)
	_, err := box.GuestPath(t.Context())
	_, told := tool.Explain("t", err)
	assert.False(t, told)
}

func TestNullBytesNeverLeave(t *testing.T) {
	t.Parallel()
	service := &scriptedService{}
	box, _ := open(t, service, numbered)
	for _, spec := range []*sandboxv1.ExecSpec{
		{Argv: []string{"a\x00"}}, {Cwd: "\x00"}, {User: "\x00"}, {Env: map[string]string{"A": "\x00"}}, {Env: map[string]string{"\x00": ""}},
	} {
		_, err := box.Exec(t.Context(), spec)
		require.ErrorIs(t, err, tool.ErrNullByte)
	}
	_, err := box.ReadFile(waittest.Context(t), "\x00")
	require.ErrorIs(t, err, tool.ErrNullByte)
	require.ErrorIs(t, box.WriteFile(waittest.Context(t), "\x00", nil), tool.ErrNullByte)
	assert.Empty(t, service.execs)
	assert.Empty(t, service.written)
}

func TestFiles(t *testing.T) {
	t.Parallel()
	box, access := open(t, &scriptedService{}, numbered)
	content, err := box.ReadFile(waittest.Context(t), "a.txt")
	require.NoError(t, err)
	assert.Equal(t, "content of a.txt", string(content))
	require.NoError(t, box.WriteFile(waittest.Context(t), "b.txt", []byte("x")))
	path, err := box.GuestPath(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "/run/guest", path)

	require.Len(t, access.Actions(), 2)
	assert.Equal(t, toolv1.SandboxActionType_SANDBOX_ACTION_TYPE_READ_FILE, access.Actions()[0].GetAction())
	assert.Equal(t, "a.txt", access.Actions()[0].GetFile())
	assert.Equal(t, toolv1.SandboxActionType_SANDBOX_ACTION_TYPE_WRITE_FILE, access.Actions()[1].GetAction())
}

func TestUnknownEnvironments(t *testing.T) {
	t.Parallel()
	for environments, says := range map[string]string{"": "has none", "default,db": "db, default"} {
		known := map[string]string{}
		for name := range strings.SplitSeq(environments, ",") {
			if name != "" {
				known[name] = boxName
			}
		}
		_, err := sandbox.NewAccess(&scriptedService{}, known, nil, nil).Sandbox("elsewhere")
		require.ErrorContains(t, err, says)
		_, told := tool.Explain("t", err)
		assert.False(t, told)
	}
}

func TestWhatIsRecordedOfACommand(t *testing.T) {
	t.Parallel()
	service := &scriptedService{answer: func(context.Context, int) (*sandboxv1.ExecResponse, error) {
		return &sandboxv1.ExecResponse{Result: &sandboxv1.ExecResult{ExitCode: new(int32(2)), Stdout: []byte(strings.Repeat("line\n", 30)), Stderr: []byte("e\xff")}}, nil
	}}
	box, access := open(t, service, numbered)
	_, err := box.Exec(t.Context(), &sandboxv1.ExecSpec{
		Argv: []string{"sh", "-c", "echo 'a b'", ""}, Stdin: []byte(strings.Repeat("in", 5000)), Cwd: "/tmp", Timeout: durationpb.New(1500 * time.Millisecond),
	})
	require.NoError(t, err)

	action := access.Actions()[0]
	assert.Equal(t, toolv1.SandboxActionType_SANDBOX_ACTION_TYPE_EXEC, action.GetAction())
	assert.Equal(t, boxName, action.GetSandbox())
	assert.Equal(t, `sh -c 'echo '\''a b'\''' ''`, action.GetCommand())
	assert.JSONEq(t, `{"cwd": "/tmp", "timeout": 1.5}`, action.GetOptionsJson())
	assert.EqualValues(t, 2, action.GetExitCode())
	assert.Equal(t, "e\ufffd\n"+strings.Repeat("line\n", 19)+"…", action.GetOutput())
	assert.Len(t, action.GetInput(), 4<<10)

	service.answer = func(context.Context, int) (*sandboxv1.ExecResponse, error) { return nil, rpcerr.Internal("a bug") }
	_, err = box.Exec(t.Context(), echo)
	require.Error(t, err)
	assert.Equal(t, "a bug", access.Actions()[1].GetError())
	assert.Nil(t, access.Actions()[1].ExitCode)
	assert.Empty(t, access.Actions()[1].GetOptionsJson())

	for cause, want := range map[error]string{context.DeadlineExceeded: "timed out with its call", context.Canceled: "cancelled with its call"} {
		service.answer = func(context.Context, int) (*sandboxv1.ExecResponse, error) { return nil, cause }
		_, err = box.Exec(t.Context(), echo)
		require.ErrorIs(t, err, cause)
		assert.Equal(t, want, access.Actions()[len(access.Actions())-1].GetError())
	}
}
