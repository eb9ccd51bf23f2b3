package server

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"

	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/failpoint"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	guestv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/guest/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/filebody"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/client"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/lifecycle"
)

const (
	// maxUnaryOutput bounds each stream in the answer of Exec.
	maxUnaryOutput = 3 << 19 // 1.5 MiB
	// maxInput bounds what a request may carry for standard input or a file.
	maxInput = 3 << 20
)

// Exec runs one command and answers when it has ended. With a key, a cut connection to the guest does not matter: the
// command is in the sandbox, and the call attaches to it again.
func (s *Server) Exec(ctx context.Context, req *sandboxv1.ExecRequest) (*sandboxv1.ExecResponse, error) {
	if err := s.ready(ctx, req.GetSandbox(), req.GetSpec()); err != nil {
		return nil, err
	}
	run := &guestv1.RunRequest{Key: req.GetRequestId(), Spec: req.GetSpec(), MaxAnswerBytes: maxUnaryOutput}
	resp := &sandboxv1.ExecResponse{}
	err := s.use(ctx, req.GetSandbox(), func(c *client.Client) error {
		return call(c, run.GetKey())(ctx, func(api guestv1.GuestServiceClient) error {
			answer, err := api.Run(ctx, run)
			failpoint.Hit("sandboxd/after-exec")
			resp.Result = answer.GetResult()
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	resp.Timing = &effectv1.Timing{StartTime: resp.Result.GetStartTime(), EndTime: now(), Working: resp.Result.GetDuration(), Attempts: 1}
	return resp, nil
}

// call is how a command is run: with a key it may be asked for again over a new connection, without one it ends with
// its connection.
func call(c *client.Client, key string) func(context.Context, func(guestv1.GuestServiceClient) error) error {
	if key == "" {
		return c.Once
	}
	return c.Again
}

// StreamExec runs one command, or attaches to one, and streams what it prints.
func (s *Server) StreamExec(req *sandboxv1.StreamExecRequest, stream grpc.ServerStreamingServer[sandboxv1.StreamExecResponse]) error {
	ctx := stream.Context()
	if req.GetSpec() != nil {
		if err := s.ready(ctx, req.GetSandbox(), req.GetSpec()); err != nil {
			return err
		}
	} else if req.GetRequestId() == "" {
		return rpcerr.InvalidField("spec", "give a command, or the request id of one to attach to")
	}
	f := &forwarder{to: stream, request: &guestv1.StreamRequest{
		Run:          &guestv1.RunRequest{Key: req.GetRequestId(), Spec: req.GetSpec()},
		StdoutOffset: req.GetStdoutOffset(), StderrOffset: req.GetStderrOffset(), Lossless: req.GetLossless(),
	}}
	return s.use(ctx, req.GetSandbox(), func(c *client.Client) error {
		return call(c, req.GetRequestId())(ctx, func(api guestv1.GuestServiceClient) error { return f.forward(ctx, api) })
	})
}

// forwarder forwards a guest's stream, and resumes it after the connection to the guest was cut.
type forwarder struct {
	to      grpc.ServerStreamingServer[sandboxv1.StreamExecResponse]
	request *guestv1.StreamRequest
	started bool
}

func (f *forwarder) forward(ctx context.Context, api guestv1.GuestServiceClient) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	from, err := api.Stream(ctx, f.request)
	if err != nil {
		return err
	}
	for {
		event, err := from.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if event.GetStarted() != nil && f.started {
			continue
		}
		if f.to.Send(event) != nil {
			return context.Canceled // the caller is gone; this says nothing of the guest
		}
		f.started = f.started || event.GetStarted() != nil
		if out := event.GetOutput(); out != nil {
			end := out.GetOffset() + int64(len(out.GetData()))
			if out.GetStream() == sandboxv1.ExecStream_EXEC_STREAM_STDOUT {
				f.request.StdoutOffset = end
			} else {
				f.request.StderrOffset = end
			}
		}
	}
}

// WriteExecInput writes to the standard input of a running command.
func (s *Server) WriteExecInput(ctx context.Context, req *sandboxv1.WriteExecInputRequest) (*sandboxv1.WriteExecInputResponse, error) {
	if len(req.GetData()) > maxInput {
		return nil, tooLarge("data", maxInput)
	}
	resp := &sandboxv1.WriteExecInputResponse{}
	err := s.use(ctx, req.GetSandbox(), func(c *client.Client) error {
		return c.Again(ctx, func(api guestv1.GuestServiceClient) error {
			answer, err := api.WriteInput(ctx, &guestv1.WriteInputRequest{Key: req.GetRequestId(), Offset: req.GetOffset(), Data: req.GetData(), Eof: req.GetEof()})
			resp.Offset = answer.GetOffset()
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// CancelExec kills the whole process tree of a command. In a sandbox that is over, every command has ended.
func (s *Server) CancelExec(ctx context.Context, req *sandboxv1.CancelExecRequest) (*sandboxv1.CancelExecResponse, error) {
	resp := &sandboxv1.CancelExecResponse{}
	err := s.use(ctx, req.GetSandbox(), func(c *client.Client) error {
		return c.Again(ctx, func(api guestv1.GuestServiceClient) error {
			answer, err := api.Kill(ctx, &guestv1.KillRequest{Key: req.GetRequestId()})
			resp.AlreadyDone = answer.GetAlreadyDone()
			return err
		})
	})
	if over(err) {
		return &sandboxv1.CancelExecResponse{AlreadyDone: true}, nil
	}
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// ReleaseExec drops kept results. In a sandbox that is over, none are kept.
func (s *Server) ReleaseExec(ctx context.Context, req *sandboxv1.ReleaseExecRequest) (*sandboxv1.ReleaseExecResponse, error) {
	err := s.use(ctx, req.GetSandbox(), func(c *client.Client) error {
		return c.Again(ctx, func(api guestv1.GuestServiceClient) error {
			_, err := api.Release(ctx, &guestv1.ReleaseRequest{Keys: req.GetRequestIds()})
			return err
		})
	})
	if err != nil && !over(err) {
		return nil, err
	}
	return &sandboxv1.ReleaseExecResponse{}, nil
}

// over reports whether an error means that the sandbox has ended.
func over(err error) bool {
	return rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_SANDBOX_TERMINATED) || rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_SANDBOX_LOST)
}

// ready checks a command, and reads the contents of the files of its check that are blobs.
func (s *Server) ready(ctx context.Context, sandbox string, spec *sandboxv1.ExecSpec) error {
	req := &sandboxv1.ExecRequest{Sandbox: sandbox, Spec: spec}
	err := s.load(ctx, req, "spec.check.files", spec.GetCheck().GetFiles(), &req.Offloaded, bound.CheckFiles)
	switch {
	case rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_REQUEST_TOO_LARGE):
		return tooLarge("spec.check.files", bound.CheckFiles)
	case err != nil:
		return err
	}
	return checkExec(spec)
}

func checkExec(spec *sandboxv1.ExecSpec) error {
	switch {
	case len(spec.GetArgv()) == 0 || spec.GetArgv()[0] == "":
		return rpcerr.InvalidField("spec.argv", "name a program")
	case len(spec.GetStdin()) > maxInput:
		return tooLarge("spec.stdin", maxInput)
	}
	size := 0
	for _, file := range spec.GetCheck().GetFiles() {
		size += len(filebody.Bytes(file))
	}
	if size > bound.CheckFiles {
		return tooLarge("spec.check.files", bound.CheckFiles)
	}
	return lifecycle.CheckEnv(spec.GetEnv())
}

func tooLarge(field string, limit int) error {
	return rpcerr.RequestTooLarge(field, limit, "%s is larger than %d bytes", field, limit)
}
