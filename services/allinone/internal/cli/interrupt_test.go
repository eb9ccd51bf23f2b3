package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/evalfleet/evalfleet/pkg/daemon"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/taskfile"
	"github.com/evalfleet/evalfleet/services/allinone"
)

// An interrupt that comes just before a step succeeds is not lost: the command does what it does at an interrupt.

// sentAnInterrupt is an application that an interrupt has been sent to.
func sentAnInterrupt() *app {
	signals := make(chan os.Signal, 1)
	signals <- os.Interrupt
	return &app{Process: Process{Name: "evalfleet", Stdout: io.Discard, Stderr: io.Discard, Signals: signals}, project: "default"}
}

// startsAllTheSame is a server that starts although an interrupt came meanwhile.
type startsAllTheSame struct{ stopped bool }

func (s *startsAllTheSame) Start(ctx context.Context) error { <-ctx.Done(); return nil }
func (s *startsAllTheSame) Failed() <-chan error            { return nil }
func (s *startsAllTheSame) Address() string                 { return "127.0.0.1:1" }
func (s *startsAllTheSame) Stop(context.Context, time.Duration) error {
	s.stopped = true
	return nil
}

func TestAnInterruptWhileAServerStartsStopsIt(t *testing.T) {
	t.Parallel()
	s := &startsAllTheSame{}
	require.NoError(t, sentAnInterrupt().serveUntilInterrupt(t.Context(), s, time.Second, func(server) error { return nil }))
	assert.True(t, s.stopped)
}

func TestCallsInFlightHaveTheGraceThatIsConfigured(t *testing.T) {
	t.Parallel()
	one, all := &daemon.Process{}, &startsAllTheSame{}
	var cfg allinone.Config
	assert.Equal(t, 25*time.Second, graceOf(one, cfg))
	assert.Equal(t, 4*time.Second, graceOf(all, cfg))
	cfg.StopGrace = time.Minute
	assert.Equal(t, time.Minute, graceOf(one, cfg))
	assert.Equal(t, time.Minute, graceOf(all, cfg))
}

// made makes runs and evaluations although an interrupt came meanwhile, and notes what is cancelled.
type made struct {
	agentv1.RunServiceClient
	agentv1.EvalServiceClient

	cancelled []string
}

func (m *made) CreateRun(ctx context.Context, _ *agentv1.CreateRunRequest, _ ...grpc.CallOption) (*agentv1.Run, error) {
	<-ctx.Done()
	return &agentv1.Run{Name: "projects/default/runs/r1"}, nil
}

func (m *made) CancelRun(_ context.Context, req *agentv1.CancelRunRequest, _ ...grpc.CallOption) (*agentv1.Run, error) {
	m.cancelled = append(m.cancelled, req.GetName())
	return &agentv1.Run{}, nil
}

func (m *made) CreateEval(ctx context.Context, _ *agentv1.CreateEvalRequest, _ ...grpc.CallOption) (*agentv1.Eval, error) {
	<-ctx.Done()
	return &agentv1.Eval{Name: "projects/default/evals/e1"}, nil
}

var errStop = errors.New("what follows a cancel is no matter here")

func (m *made) CancelEval(_ context.Context, req *agentv1.CancelEvalRequest, _ ...grpc.CallOption) (*agentv1.Eval, error) {
	m.cancelled = append(m.cancelled, req.GetName())
	return nil, errStop
}

func TestAnInterruptWhileARunIsMadeCancelsIt(t *testing.T) {
	t.Parallel()
	m := &made{}
	s := &session{app: sentAnInterrupt(), runs: m}
	require.ErrorIs(t, s.runAgent(t.Context(), "hello", runFlags{model: "mockllm/model"}), errInterrupted)
	assert.Equal(t, []string{"projects/default/runs/r1"}, m.cancelled)
}

func TestAnInterruptWhileAnEvaluationIsMadeCancelsIt(t *testing.T) {
	t.Parallel()
	m := &made{}
	s := &session{app: sentAnInterrupt(), evals: m}
	require.ErrorIs(t, s.runEval(t.Context(), &taskfile.Task{Spec: &agentv1.EvalSpec{}}, false, ""), errStop)
	assert.Equal(t, []string{"projects/default/evals/e1"}, m.cancelled)
}

// cancels is a server whose evaluation ends with its cancel, and whose log does not come to an end.
type cancels struct {
	agentv1.EvalServiceClient

	signals chan os.Signal
}

var cancelled = &agentv1.Eval{
	Name: "projects/default/evals/e1", Progress: &agentv1.EvalProgress{Total: 2, Failed: 1}, State: agentv1.EvalState_EVAL_STATE_CANCELLED, Spec: &agentv1.EvalSpec{Models: []*agentv1.ModelRef{{Model: "mockllm/model"}}},
}

func (c *cancels) CancelEval(context.Context, *agentv1.CancelEvalRequest, ...grpc.CallOption) (*agentv1.Eval, error) {
	return cancelled, nil
}

func (c *cancels) GetEval(ctx context.Context, _ *agentv1.GetEvalRequest, _ ...grpc.CallOption) (*agentv1.Eval, error) {
	return cancelled, ctx.Err()
}

func (c *cancels) WatchEval(context.Context, *agentv1.WatchEvalRequest, ...grpc.CallOption) (grpc.ServerStreamingClient[agentv1.WatchEvalResponse], error) {
	return &over{}, nil
}

// over is a watch of an evaluation that has ended.
type over struct{ grpc.ClientStream }

func (*over) Recv() (*agentv1.WatchEvalResponse, error) { return nil, io.EOF }

func (c *cancels) ListSamples(ctx context.Context, _ *agentv1.ListSamplesRequest, _ ...grpc.CallOption) (*agentv1.ListSamplesResponse, error) {
	return &agentv1.ListSamplesResponse{}, ctx.Err()
}

func (c *cancels) ExportEval(ctx context.Context, _ *agentv1.ExportEvalRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[agentv1.ExportEvalResponse], error) {
	c.signals <- os.Interrupt
	select { // One interrupt ends the log; no other part of the command waits for one.
	case c.signals <- os.Interrupt:
	case <-time.After(100 * time.Millisecond):
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// The evaluation has ended by then: there is nothing left to cancel, and its results are known.
func TestASecondInterruptThatComesDuringTheLogStillShowsTheResults(t *testing.T) {
	t.Parallel()
	signals := make(chan os.Signal)
	var said, shown bytes.Buffer
	none := func() int { return 0 }
	a := &app{Process: Process{
		Name: "evalfleet", Stdout: &shown, Stderr: &said, Signals: signals, StderrWidth: none, StdoutWidth: none, Env: func(string) (string, bool) { return "", false },
	}, project: "default"}
	s := &session{app: a, evals: &cancels{signals: signals}}
	keeper := &logKeeper{session: s, dir: t.TempDir(), name: cancelled.GetName(), stop: func() {}, stopped: make(chan struct{})}
	close(keeper.stopped)
	err := s.abandon(t.Context(), cancelled, time.Now(), keeper)
	require.ErrorIs(t, err, errInterrupted)
	assert.Equal(t, ExitInterrupted, exitCode(err))
	assert.Contains(t, said.String(), "warning: the log is not complete: interrupted; evalfleet logs export e1 ")
	assert.Contains(t, shown.String(), "evalfleet eval resume e1")
}
