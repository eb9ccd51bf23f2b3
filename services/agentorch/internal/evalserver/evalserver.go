// Package evalserver serves EvalService: each method parses names, calls the engine of evaluations or what shows them,
// and maps the answer.
package evalserver

import (
	"context"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/eval"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/eval/live"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/evalexport"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/note"
)

// Deps is what the EvalService works with.
type Deps struct {
	Engine *eval.Engine
	// Live shows evaluations as they are now.
	Live     *live.Viewer
	Journals journal.Store
	Judges   eval.Judges
	Exporter *evalexport.Exporter
	// Bodies are what task files name.
	Bodies Bodies
	// Notes is what is known of open effects.
	Notes *note.Board
	// Delete deletes a journal that is done.
	Delete func(ctx context.Context, name string) error
}

// Server is the EvalService. Its methods are safe for concurrent use.
type Server struct {
	agentv1.UnimplementedEvalServiceServer

	deps Deps
}

// New makes the EvalService.
func New(deps Deps) *Server { return &Server{deps: deps} }
