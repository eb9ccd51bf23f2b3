package guest

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	guestv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/guest/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/version"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/command"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/process"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/spool"
)

const (
	maxMessage = 8 << 20
	window     = 1 << 20
	// chunk bounds one piece of a stream.
	chunk = 256 << 10
	// heartbeat is how long a stream is silent at most.
	heartbeat = 15 * time.Second
)

// guest is the served program.
type guest struct {
	guestv1.UnimplementedGuestServiceServer

	bootID string
	table  *process.Table
	runner *command.Runner
	log    *slog.Logger
	notes  []string
	server *grpc.Server

	orphanTimeout atomic.Int64 // a time.Duration; 0: for ever

	mu       sync.Mutex
	deadline *time.Timer
}

// Hello returns the guest's description, and applies the settings of commands.
func (g *guest) Hello(_ context.Context, req *guestv1.HelloRequest) (*guestv1.HelloResponse, error) {
	env := req.GetEnv()
	if err := g.runner.Configure(command.Settings{Env: env, Workdir: req.GetWorkdir(), User: req.GetUser()}); err != nil {
		return nil, err
	}
	if d := req.GetDeadline(); d != nil {
		g.setDeadline(d.AsTime(), true)
	}
	if d := req.GetOrphanTimeout(); d != nil {
		g.orphanTimeout.Store(int64(d.AsDuration()))
	}
	return &guestv1.HelloResponse{BootId: g.bootID, Version: version.String(), Keys: g.runner.Keys(), Notes: g.notes}, nil
}

// Run starts a command or attaches to it, and waits for its end.
func (g *guest) Run(ctx context.Context, req *guestv1.RunRequest) (*guestv1.RunResponse, error) {
	c, replayed, err := g.runner.Run(ctx, req.GetKey(), req.GetContentHash(), req.GetSpec())
	if err != nil {
		return nil, err
	}
	defer g.runner.Forget(c)
	select {
	case <-c.Done():
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if c.Err() != nil {
		return nil, c.Err()
	}
	result := c.Result(req.GetMaxAnswerBytes())
	result.Replayed = replayed
	return &guestv1.RunResponse{Result: result}, nil
}

// Stream starts a command or attaches to it, and sends its output from the caller's offsets on.
func (g *guest) Stream(req *guestv1.StreamRequest, stream grpc.ServerStreamingServer[sandboxv1.StreamExecResponse]) error {
	ctx, run := stream.Context(), req.GetRun()
	out := follower{at: req.GetStdoutOffset(), name: sandboxv1.ExecStream_EXEC_STREAM_STDOUT}
	errout := follower{at: req.GetStderrOffset(), name: sandboxv1.ExecStream_EXEC_STREAM_STDERR}
	c, replayed, err := g.runner.Follow(ctx, run.GetKey(), run.GetContentHash(), run.GetSpec(), func(c *command.Command) {
		out.follow(c.Stdout(), req.GetLossless())
		errout.follow(c.Stderr(), req.GetLossless())
	})
	if err != nil {
		return err
	}
	defer g.runner.Forget(c)
	defer out.leave()
	defer errout.leave()
	pid, began := c.Started()
	started := &sandboxv1.ExecStarted{Pid: int64(pid), StartTime: timestamppb.New(began)}
	if err := stream.Send(&sandboxv1.StreamExecResponse{Event: &sandboxv1.StreamExecResponse_Started{Started: started}}); err != nil {
		return err
	}
	for {
		moreOut, err := out.send(stream)
		if err != nil {
			return err
		}
		moreErr, err := errout.send(stream)
		if err != nil {
			return err
		}
		if out.end && errout.end {
			break
		}
		select {
		case <-moreOut:
		case <-moreErr:
		case <-time.After(heartbeat):
			beat := &sandboxv1.StreamExecResponse_Heartbeat{Heartbeat: &sandboxv1.ExecHeartbeat{}}
			if err := stream.Send(&sandboxv1.StreamExecResponse{Event: beat}); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	<-c.Done()
	if c.Err() != nil {
		return c.Err()
	}
	result := c.Result(0)
	result.StdoutCutAt, result.StderrCutAt = nil, nil // The reader had the output, and knows what was skipped.
	result.Replayed = replayed
	return stream.Send(&sandboxv1.StreamExecResponse{Event: &sandboxv1.StreamExecResponse_Ended{Ended: result}})
}

// follower sends one stream of a command.
type follower struct {
	spool *spool.Spool
	hold  *spool.Hold // nil where the command does not wait
	name  sandboxv1.ExecStream
	at    int64
	end   bool
}

// follow begins with a stream. The caller leaves it.
func (f *follower) follow(s *spool.Spool, lossless bool) {
	f.spool = s
	if lossless {
		f.hold = s.Hold(f.at)
	}
}

func (f *follower) leave() {
	if f.hold != nil {
		f.hold.Release()
	}
}

// send sends all that is there, and gives what to wait on for more; nil at the end.
func (f *follower) send(stream grpc.ServerStreamingServer[sandboxv1.StreamExecResponse]) (<-chan struct{}, error) {
	for !f.end {
		c := f.spool.Read(f.at, chunk)
		if len(c.Data) > 0 || c.Skipped > 0 {
			out := &sandboxv1.ExecOutput{Stream: f.name, Offset: c.Offset, Data: c.Data, SkippedBytes: c.Skipped}
			if err := stream.Send(&sandboxv1.StreamExecResponse{Event: &sandboxv1.StreamExecResponse_Output{Output: out}}); err != nil {
				return nil, err
			}
		}
		f.at = c.Offset + int64(len(c.Data))
		if f.hold != nil {
			f.hold.Advance(f.at)
		}
		f.end = c.End
		if c.More != nil {
			return c.More, nil
		}
	}
	return nil, nil
}

// WriteInput writes to a command's standard input.
func (g *guest) WriteInput(_ context.Context, req *guestv1.WriteInputRequest) (*guestv1.WriteInputResponse, error) {
	at, err := g.runner.Write(req.GetKey(), req.GetOffset(), req.GetData(), req.GetEof())
	if err != nil {
		return nil, err
	}
	return &guestv1.WriteInputResponse{Offset: at}, nil
}

// Kill ends a command with all that it started.
func (g *guest) Kill(ctx context.Context, req *guestv1.KillRequest) (*guestv1.KillResponse, error) {
	done, err := g.runner.Kill(ctx, req.GetKey())
	if err != nil {
		return nil, err
	}
	return &guestv1.KillResponse{AlreadyDone: done}, nil
}

// Release forgets results.
func (g *guest) Release(_ context.Context, req *guestv1.ReleaseRequest) (*guestv1.ReleaseResponse, error) {
	g.runner.Release(req.GetKeys())
	return &guestv1.ReleaseResponse{}, nil
}

// Shutdown ends the guest with all processes of the sandbox, after the answer has been sent.
func (g *guest) Shutdown(context.Context, *guestv1.ShutdownRequest) (*guestv1.ShutdownResponse, error) {
	time.AfterFunc(50*time.Millisecond, func() { g.exit("asked by the host") })
	return &guestv1.ShutdownResponse{}, nil
}

// setDeadline sets when the guest ends by itself; set is false for never.
func (g *guest) setDeadline(at time.Time, set bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.deadline != nil {
		g.deadline.Stop()
	}
	if set {
		g.deadline = time.AfterFunc(time.Until(at), func() { g.exit("the sandbox's time is over") })
	}
}

// checkOrphaned ends the guest when there has been no host for too long.
func (g *guest) checkOrphaned(since time.Time) {
	if limit := time.Duration(g.orphanTimeout.Load()); limit > 0 && time.Since(since) > limit {
		g.exit("there has been no host for " + limit.String())
	}
}

// exit ends the sandbox: its processes, then the guest itself.
func (g *guest) exit(why string) {
	g.log.Info("the sandbox ends", "reason", why)
	g.table.KillAll()
	os.Exit(0)
}

func unaryErrors(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	resp, err := handle(ctx, req)
	if err != nil {
		return nil, rpcerr.ToPeer(err).Err()
	}
	return resp, nil
}

func streamErrors(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	if err := handle(srv, stream); err != nil {
		return rpcerr.ToPeer(err).Err()
	}
	return nil
}
