// Package effects calls the owners of effects: modelgw for model calls, toolexec for tool calls, sandboxd for sandboxes
// and commands, and workers for the functions that they serve.
//
//	intent ──── New ───▶ Effect ─── Begin ──▶ Pending ── Do, with retries until there is an answer ──▶ Answer
//	                                            │ Stop      its owner stops it; the outcome still arrives
//	                                            └ Abandon   the requests end; the effect continues at its owner
//	outcome in the journal ── Release ──▶ in batches ──▶ the owner forgets the result
//
// An effect is a function of the state of its run alone, so that a successor makes the same effect. The owner attaches
// a repeated request with the same key to the running effect, or returns the stored result.
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
	"github.com/evalfleet/evalfleet/pkg/telemetry"
	"github.com/evalfleet/evalfleet/pkg/worker"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/peers"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/progress"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/workers"
)

// Effect is a request to an owner, under one key.
type Effect interface {
	// Do sends the request and returns the outcomes, except those that it reported to p before the end.
	Do(ctx context.Context, p *Pending) ([]*agentv1.Event, error)
	// Cancel asks the owner to stop the effect, or never to begin it. With intents it stops only those calls of a
	// stage.
	Cancel(ctx context.Context, intents ...int64) error
	// Failed returns the outcomes of an effect that the owner answered with an error.
	Failed(err error) []*agentv1.Event
	// Services are the services that must be reachable for an answer.
	Services() []string
	// Release returns the results that the owner may forget once the outcomes are in the journal; nil if there are
	// none.
	Release() *Release
}

// Workers calls workers for work other than tools. [workers.Workers] implements it.
type Workers interface {
	Ask(ctx context.Context, r workers.Request) (*agentv1.WorkerOutcome, error)
	Cancel(ctx context.Context, project, key string) error
	Release(ctx context.Context, project string, keys []string) error
	// Served returns the functions that connected workers serve, as they change.
	Served() *lastvalue.Map[worker.Offered, struct{}]
}

// Deps are the dependencies of a [Caller].
type Deps struct {
	Models    modelv1.ModelServiceClient
	Tools     toolv1.ToolServiceClient
	Sandboxes sandboxv1.SandboxServiceClient
	// Workers calls workers for work other than tools. It may be nil if no run names a worker.
	Workers Workers
	// MaxGenerates bounds the open model calls per account.
	MaxGenerates int
	// Notes receives the progress of open effects.
	Notes *progress.Board
	// Outages is notified of open calls. Progress holds the open calls that want progress.
	Outages  *peers.Outages
	Progress *peers.ProgressListeners
	Logger   *slog.Logger
	// Traces makes a span of each effect; nil makes none.
	Traces *telemetry.Traces
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

// NewCaller returns a Caller. Start runs a function in a goroutine of its own. When ctx ends, the Caller stops asking;
// open effects continue at their owners.
func NewCaller(ctx context.Context, start func(func()), deps Deps) *Caller {
	return &Caller{deps: deps, life: ctx, start: start, gate: gate{limit: deps.MaxGenerates}, release: map[owner]*share{}}
}

// New returns the effect of an open intent of a run. For a tool call it is the effect of the whole stage. An intent of
// a kind that has no effect here is an internal error.
func (c *Caller) New(s *run.State, i *run.Intent) (Effect, error) {
	switch k := i.Event.GetKind().(type) {
	case *agentv1.Event_ModelIntent:
		return c.modelCall(s, i, k.ModelIntent), nil
	case *agentv1.Event_ToolIntent:
		return c.toolStage(s, i), nil
	case *agentv1.Event_SandboxIntent:
		return c.creation(s, i.Seq(), k.SandboxIntent), nil
	case *agentv1.Event_WorkerIntent:
		return c.workerCall(s, i, k.WorkerIntent), nil
	case *agentv1.Event_ExecIntent:
		return c.execution(s, i, k.ExecIntent), nil
	default:
		return nil, rpcerr.Internal("event %d of %s is an intent of a kind that has no effect: %T", i.Seq(), s.Name, k)
	}
}

// nameOf is the name of an effect in traces.
func nameOf(e Effect) string {
	switch e.(type) {
	case *modelCall:
		return "generate"
	case *toolStage:
		return "execute tools"
	case *creation:
		return "create sandbox"
	case *workerCall:
		return "call worker"
	case *execution:
		return "exec"
	}
	return "effect"
}

// LogInternal logs an internal error that becomes an outcome of a run, since the journal does not have its cause.
func LogInternal(logger *slog.Logger, name string, err error) {
	if rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INTERNAL) {
		logger.Error("a fault of ours is an outcome of a run", "run", name, "error", err)
	}
}
