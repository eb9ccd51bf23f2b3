// Package sandbox implements tool.Sandbox over sandboxd's API. No other package of the service uses that API.
//
// Every command of a call has a key, so that a call which is retried after a crash attaches to the commands that it had
// started, and each command runs once. The actions of a call are recorded for the transcript.
package sandbox

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/evalfleet/evalfleet/pkg/effect"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/retry"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/tool"
)

// killTime bounds the request that kills a command whose caller has left.
const killTime = 10 * time.Second

// Sandbox returns the sandbox of an environment. An unknown environment is an error that is not for the model.
func (a *Access) Sandbox(environment string) (tool.Sandbox, error) {
	name, ok := a.environments[environment]
	switch {
	case ok:
		return &sandbox{access: a, name: name}, nil
	case len(a.environments) == 0:
		return nil, rpcerr.NotFound(environment, "the tool needs a sandbox and the run has none; name one in the task or the run")
	default:
		return nil, rpcerr.NotFound(environment,
			"the run has no sandbox environment %q; it has: %s", environment, strings.Join(slices.Sorted(maps.Keys(a.environments)), ", "))
	}
}

// sandbox is one sandbox, as used by one call.
type sandbox struct {
	access *Access
	name   string
}

// Exec runs a command until it ends. If ctx ends before, the command is killed, except when the service stops: then the
// command continues for the process that takes over the call.
func (s *sandbox) Exec(ctx context.Context, spec *sandboxv1.ExecSpec) (*sandboxv1.ExecResult, error) {
	if err := checkSpec(spec); err != nil {
		return nil, err
	}
	key, end, err := s.access.begin(s.name)
	if err != nil {
		return nil, err
	}
	defer end()
	request := &sandboxv1.ExecRequest{Sandbox: s.name, RequestId: key, Spec: spec, Attribution: s.access.attribution}
	response, err := s.exec(ctx, request)
	if err != nil && ctx.Err() != nil && request.GetRequestId() != "" && !errors.Is(context.Cause(ctx), effect.ErrDraining) {
		s.kill(ctx, request.GetRequestId())
	}
	err = explain("exec", "", err)
	s.access.recordExec(s.name, spec, response, err)
	if err != nil {
		return nil, err
	}
	return response.GetResult(), nil
}

// patience bounds how long a command waits for an unreachable sandboxd, in addition to its own time.
const patience = 30 * time.Second

// exec retries while sandboxd is unreachable or the sandbox is full of processes: the key makes the retry idempotent.
func (s *sandbox) exec(ctx context.Context, request *sandboxv1.ExecRequest) (*sandboxv1.ExecResponse, error) {
	backoff := retry.Backoff{First: 50 * time.Millisecond, Max: 4 * time.Second}
	for waited := time.Duration(0); waited < patience; {
		response, err := s.access.client.Exec(ctx, request)
		if err == nil || request.GetRequestId() == "" || !isUnavailable(err) && !isFull(err) {
			return response, err
		}
		pause := max(backoff.Next(), rpcerr.RetryAfter(err))
		waited += pause
		if err := retry.Sleep(ctx, pause); err != nil {
			return nil, err
		}
	}
	return s.access.client.Exec(ctx, request)
}

func (s *sandbox) kill(ctx context.Context, key string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTime)
	defer cancel()
	// If this fails, the command ends with its own time-out or with its sandbox.
	_, _ = s.access.client.CancelExec(ctx, &sandboxv1.CancelExecRequest{Sandbox: s.name, RequestId: key})
}

// ReadFile returns the content of a file.
func (s *sandbox) ReadFile(ctx context.Context, path string) ([]byte, error) {
	if strings.ContainsRune(path, 0) {
		return nil, tool.ErrNullByte
	}
	response, err := s.access.client.ReadFile(ctx, &sandboxv1.ReadFileRequest{Sandbox: s.name, Path: path})
	err = explain("read", path, err)
	s.access.recordFile(toolv1.SandboxActionType_SANDBOX_ACTION_TYPE_READ_FILE, s.name, path, err)
	return response.GetContent(), err
}

// WriteFile replaces a file.
func (s *sandbox) WriteFile(ctx context.Context, path string, content []byte) error {
	if strings.ContainsRune(path, 0) {
		return tool.ErrNullByte
	}
	_, err := s.access.client.WriteFile(ctx, &sandboxv1.WriteFileRequest{Sandbox: s.name, Path: path, Body: &sandboxv1.WriteFileRequest_Content{Content: content}})
	err = explain("write", path, err)
	s.access.recordFile(toolv1.SandboxActionType_SANDBOX_ACTION_TYPE_WRITE_FILE, s.name, path, err)
	return err
}

// GuestPath returns the path of the guest program inside the sandbox.
func (s *sandbox) GuestPath(ctx context.Context) (string, error) {
	response, err := s.access.client.GetSandbox(ctx, &sandboxv1.GetSandboxRequest{Name: s.name})
	return response.GetGuestPath(), explain("get", "", err)
}

// checkSpec rejects a specification that no operating system accepts.
func checkSpec(spec *sandboxv1.ExecSpec) error {
	texts := append([]string{spec.GetCwd(), spec.GetUser()}, spec.GetArgv()...)
	for name, value := range spec.GetEnv() {
		texts = append(texts, name, value)
	}
	if slices.ContainsFunc(texts, func(text string) bool { return strings.ContainsRune(text, 0) }) {
		return tool.ErrNullByte
	}
	return nil
}
