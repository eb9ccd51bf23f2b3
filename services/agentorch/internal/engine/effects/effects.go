// Package effects asks the owners of effects for them: modelgw for model calls, toolexec for tool calls, sandboxd for
// sandboxes and commands, and workers for what they serve.
//
//	intent ──── New ───▶ Effect ─── Begin ──▶ Pending ── Do, again and again until there is an answer ──▶ Answer
//	                                            │ Stop      its owner stops it; the outcome arrives all the same
//	                                            └ Abandon   the asking ends; the effect goes on with its owner
//	outcome in the journal ── Release ──▶ in batches ──▶ the owner forgets the result
//
// An effect is made of the state of its run alone, so that a successor makes the same one. Its owner attaches a request
// that comes again under its key to what is running, or answers it with what is done.
package effects

import (
	"context"
	"log/slog"
	"sync"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/lastvalue"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/worker"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/peers"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/progress"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/workers"
)

// Effect is what an owner is asked for under one key.
type Effect interface {
	// Do asks for it and returns its outcomes, less those that it has reported to p before the end.
	Do(ctx context.Context, p *Pending) ([]*agentv1.Event, error)
	// Cancel has the owner stop it, or never begin it: all of it or, of a stage of calls, those of the intents that are
	// given.
	Cancel(ctx context.Context, intents ...int64) error
	// Failed returns the outcomes of an effect that the owner answered with an error.
	Failed(err error) []*agentv1.Event
	// Services are those without which there is no answer.
	Services() []string
	// Release returns what the owner may forget once the outcomes are in the journal; nil for nothing.
	Release() *Release
}

// Workers asks workers for what is no tool. [workers.Workers] implements it.
type Workers interface {
	Ask(ctx context.Context, r workers.Request) (*agentv1.WorkerOutcome, error)
	Cancel(ctx context.Context, project, key string) error
	Release(ctx context.Context, project string, keys []string) error
	// Served tells what workers serve, as they come and go.
	Served() *lastvalue.Map[worker.Offered, struct{}]
}

// Deps is what a [Caller] works with.
type Deps struct {
	Models    modelv1.ModelServiceClient
	Tools     toolv1.ToolServiceClient
	Sandboxes sandboxv1.SandboxServiceClient
	// Workers asks workers for what is no tool; nil where no run names one.
	Workers Workers
	// MaxGenerates bounds the open model calls per account.
	MaxGenerates int
	// Notes has what is known of open effects.
	Notes *progress.Board
	// Outages is told which calls are open, and Progress which want to hear of their progress.
	Outages  *peers.Outages
	Progress *peers.ProgressListeners
	Logger   *slog.Logger
}

// Caller asks for the effects of the runs of a replica. It is safe for concurrent use.
type Caller struct {
	deps    Deps
	life    context.Context //nolint:containedctx // the life of what the caller starts, not of a call
	start   func(func())
	gate    gate
	mu      sync.Mutex
	release map[owner]*share // by owner
}

// NewCaller makes one. Start runs a function beside others. When ctx ends, the asking ends; effects that are open then
// go on with their owners.
func NewCaller(ctx context.Context, start func(func()), deps Deps) *Caller {
	return &Caller{deps: deps, life: ctx, start: start, gate: gate{limit: deps.MaxGenerates}, release: map[owner]*share{}}
}

// New makes the effect of an open intent of a run. Of a tool call it is that of the whole stage.
func (c *Caller) New(s *run.State, i *run.Intent) Effect {
	switch k := i.Event.GetKind().(type) {
	case *agentv1.Event_ModelIntent:
		return c.modelCall(s, i, k.ModelIntent)
	case *agentv1.Event_ToolIntent:
		return c.toolStage(s, i.Frame)
	case *agentv1.Event_SandboxIntent:
		return c.creation(s, i.Seq(), k.SandboxIntent)
	case *agentv1.Event_WorkerIntent:
		return c.workerCall(s, i, k.WorkerIntent)
	default:
		return c.execution(s, i, i.Event.GetExecIntent())
	}
}

// LogInternal logs an internal error that becomes an outcome of a run, since the journal does not have its cause.
func LogInternal(logger *slog.Logger, name string, err error) {
	if rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INTERNAL) {
		logger.Error("a fault of ours is an outcome of a run", "run", name, "error", err)
	}
}
