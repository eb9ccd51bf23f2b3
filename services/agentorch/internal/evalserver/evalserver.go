// Package evalserver serves EvalService over the engine of evaluations.
package evalserver

import (
	"context"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/eval"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/evalexport"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/note"
)

// Server is the EvalService.
type Server struct {
	agentv1.UnimplementedEvalServiceServer

	engine   *eval.Engine
	journals journal.Store
	judges   eval.Judges
	exporter *evalexport.Exporter
	notes    *note.Board
	bare     func(*agentv1.Event) *agentv1.Event
	waits    func(eval string) []*agentv1.EvalWait
	waiting  func(run string) *agentv1.RunWait
	remove   func(ctx context.Context, name string) error
}

// New makes the service. Notes is what is known of open effects; bare returns an event without its content; waits says what runs of an evaluation wait for that is in no
// journal, waiting what one run does; remove deletes the journal of an evaluation that has ended.
func New(
	engine *eval.Engine, journals journal.Store, judges eval.Judges, exporter *evalexport.Exporter, notes *note.Board,
	bare func(*agentv1.Event) *agentv1.Event, waits func(eval string) []*agentv1.EvalWait, waiting func(run string) *agentv1.RunWait, remove func(ctx context.Context, name string) error,
) *Server {
	return &Server{engine: engine, journals: journals, judges: judges, exporter: exporter, notes: notes, bare: bare, waits: waits, waiting: waiting, remove: remove}
}
