// Package server implements RunService, EvalService and AdminService. Each method parses names, takes the caller from
// the context, calls package runs or eval, and maps the answer.
package server

import (
	"context"
	"log/slog"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/auth"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/progress"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/runs"
)

// RunsDeps are the dependencies of the RunService.
type RunsDeps struct {
	Runs  *runs.Runs
	Store journal.Store
	// Evals shows evaluations of a project, of their rows and in their order.
	Evals func(ctx context.Context, project string, rows []journal.Listed) ([]*agentv1.Eval, error)
	// Notes holds the progress of open effects.
	Notes *progress.Board
	// Delete deletes a journal that is done.
	Delete func(ctx context.Context, name string) error
	Logger *slog.Logger
}

// Runs is the RunService. Its methods are safe for concurrent use.
type Runs struct {
	agentv1.UnimplementedRunServiceServer

	deps RunsDeps
}

// NewRuns returns the RunService.
func NewRuns(deps RunsDeps) *Runs { return &Runs{deps: deps} }

// command returns a command of the caller to the run that a field of the request names.
func command(ctx context.Context, field, name, kind, requestID string, request proto.Message) (runs.Command, error) {
	_, err := resource.Parse(field, name, "runs")
	return runs.Command{Run: name, Kind: kind, RequestID: requestID, Principal: auth.FromContext(ctx).Actor(), Request: request}, err
}

// steer sends a command to a run and returns the number of the event that took it.
func (s *Runs) steer(ctx context.Context, field, name, kind, requestID string, request proto.Message) (int64, error) {
	c, err := command(ctx, field, name, kind, requestID, request)
	if err != nil {
		return 0, err
	}
	return s.deps.Runs.Steer(ctx, c)
}
