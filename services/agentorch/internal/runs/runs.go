// Package runs creates runs, sends them commands and shows them. Its callers are the handlers of RunService and the
// engine of evaluations. Package engine drives the runs.
//
// Checking a specification (package plan) and creating its run are two steps, since an evaluation needs only the first:
//
//	plan, err := runs.Check(ctx, project, spec)     names resolved, prompts written out, tools pinned
//	head, err := runs.Start(ctx, plan, key, who)    one journal
package runs

import (
	"context"
	"log/slog"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/offload"
	"github.com/evalfleet/evalfleet/pkg/telemetry"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/waits"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/progress"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/runs/plan"
)

// Deps are the dependencies of [Runs].
type Deps struct {
	Store  journal.Store
	Engine *engine.Engine
	// Blobs stores large values of commands. If it is nil, commands have them.
	Blobs offload.Store
	// Checker checks specifications for clients, which get an error if a service stays unreachable.
	Checker plan.Checker
	// Patient are the services for the runs of samples: their calls wait for an unreachable service without a limit.
	Patient plan.Services
	// Notes holds the progress of open effects.
	Notes  *progress.Board
	Logger *slog.Logger
	// Traces links the spans of callers to the traces of their runs; nil makes no spans.
	Traces *telemetry.Traces
}

// Runs creates, steers and shows runs. Its methods are safe for concurrent use.
type Runs struct {
	plan.Checker

	deps Deps
}

// New returns the runs of a store.
func New(deps Deps) *Runs { return &Runs{Checker: deps.Checker, deps: deps} }

// Validate checks a specification as Create does and creates nothing. It returns a warning for each part of the
// specification that would not be honoured.
func (r *Runs) Validate(ctx context.Context, project string, spec *agentv1.RunSpec) ([]*agentv1.EvalWarning, error) {
	p, err := r.Check(ctx, project, spec)
	if err != nil {
		return nil, err
	}
	return p.Warnings, nil
}

// Stuck reports whether the engine cannot drive a run, so that no caller should wait for its end: it needs a later
// version of the server, or a fault of the server holds it.
func (r *Runs) Stuck(run string) bool {
	reason := r.deps.Engine.Waiting(run).GetReason()
	return reason == waits.Version || reason == waits.Fault
}
