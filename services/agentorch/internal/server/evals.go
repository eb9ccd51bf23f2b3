package server

import (
	"context"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/eval"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/eval/live"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/inspect/evalexport"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/progress"
)

// EvalsDeps are the dependencies of the EvalService.
type EvalsDeps struct {
	Engine *eval.Engine
	// Live shows evaluations as they are now.
	Live     *live.Viewer
	Journals journal.Store
	Judges   eval.Judges
	Exporter *evalexport.Exporter
	// Bodies holds the bodies that task files name.
	Bodies Bodies
	// Notes holds the progress of open effects.
	Notes *progress.Board
	// Delete deletes a journal that is done.
	Delete func(ctx context.Context, name string) error
}

// Evals is the EvalService. Its methods are safe for concurrent use.
type Evals struct {
	agentv1.UnimplementedEvalServiceServer

	deps EvalsDeps
}

// NewEvals returns the EvalService.
func NewEvals(deps EvalsDeps) *Evals { return &Evals{deps: deps} }
