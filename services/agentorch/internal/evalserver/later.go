package evalserver

import (
	"context"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// EditScore belongs to a later capability.
func (s *Server) EditScore(context.Context, *agentv1.EditScoreRequest) (*agentv1.EvalSample, error) {
	return nil, rpcerr.NotBuiltYet("editing scores")
}

// InvalidateSample belongs to a later capability.
func (s *Server) InvalidateSample(context.Context, *agentv1.InvalidateSampleRequest) (*agentv1.EvalSample, error) {
	return nil, rpcerr.NotBuiltYet("invalidating samples")
}

// ScoreEval belongs to a later capability.
func (s *Server) ScoreEval(context.Context, *agentv1.ScoreEvalRequest) (*agentv1.Eval, error) {
	return nil, rpcerr.NotBuiltYet("scoring anew")
}
