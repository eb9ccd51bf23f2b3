// Package worker has the scorers that workers serve: each calls its worker and reads the result.
package worker

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	workerv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/worker/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/scorewire"
)

// Judgement is the effect that a worker's scorer asks for: that the worker judges. Its result is an
// *[agentv1.WorkerOutcome].
type Judgement struct{ Worker *agentv1.WorkerRef }

// Metrics are the default metrics of a worker's scorer.
var Metrics = []string{"accuracy", "stderr"}

// New returns the scorer that a worker serves.
func New(ref *agentv1.WorkerRef) score.Scorer { return scorer{ref} }

type scorer struct{ ref *agentv1.WorkerRef }

// Next implements [score.Scorer].
func (s scorer) Next(_ score.Input, results []score.Result) (score.Step, error) {
	if len(results) == 0 {
		return score.Step{Effect: Judgement{s.ref}}, nil
	}
	outcome, ok := results[0].(*agentv1.WorkerOutcome)
	switch {
	case !ok:
		return score.Step{}, fmt.Errorf("the worker's judgement is a %T", results[0])
	case outcome.GetError() != nil:
		return score.Step{}, errors.New(outcome.GetError().GetMessage())
	}
	answer := &workerv1.ScorerResultPayload{}
	if err := protojson.Unmarshal([]byte(outcome.GetContent().GetPayloadJson()), answer); err != nil {
		return score.Step{}, fmt.Errorf("the worker's judgement cannot be read: %w", err)
	}
	judged := scorewire.ToScore(answer.GetScore())
	return score.Step{Score: &judged}, nil
}
