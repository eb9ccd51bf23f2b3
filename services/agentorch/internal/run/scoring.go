package run

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/result"
)

// Scoring is a round of scoring: every scorer in turn.
type Scoring struct {
	// Intermediate is set if the run continues after the round.
	Intermediate bool
	// Frame is the agent that requested the round; the root for a final round.
	Frame *Frame
	// Next is the index of the scorer that judges now.
	Next int
	// Intent is the number of its ScoreIntent; 0 before it.
	Intent int64
	// Results are the outcomes of its effects, in order: an ExecOutcome per command, a WorkerOutcome per worker call,
	// a ModelOutcome per model call.
	Results []proto.Message
}

// ScorerNames returns the names of a run's scorers within its results: the scorer's name, with a number if two have one
// name.
func ScorerNames(scorers []*agentv1.ScorerRef) []string {
	names := make([]string, len(scorers))
	for i, ref := range scorers {
		names[i] = ref.GetName()
	}
	return result.UniqueNames(names)
}

// judged adds the outcome of a scorer's effect to its round, unless the round was abandoned.
func (s *State) judged(i *Intent, outcome proto.Message) {
	if s.Scoring != nil && s.Scoring.Frame == i.Frame {
		s.Scoring.Results = append(s.Scoring.Results, outcome)
	}
}

func (s *State) scoreIntent(f *Frame, e *agentv1.Event, i *agentv1.ScoreIntent) error {
	if s.Scoring == nil {
		if !i.GetIntermediate() {
			return fmt.Errorf("scoring has not begun")
		}
		s.Scoring, s.lastScores = &Scoring{Intermediate: true, Frame: f}, nil
	}
	s.Scoring.Intent, s.Scoring.Results = e.GetSeq(), nil
	return nil
}

func (s *State) scoreOutcome(o *agentv1.ScoreOutcome) error {
	if s.Scoring == nil || s.Scoring.Intent != o.GetIntent() {
		if o.GetIntermediate() && s.Stopping() {
			return nil // the round was given up
		}
		return fmt.Errorf("a score of %d, which is not at hand", o.GetIntent())
	}
	if o.GetError() != nil {
		s.fail(o.GetError())
		if s.Error == nil && s.Cancel == nil && !s.Scoring.Intermediate {
			s.Fault = o.GetError() // also after a bound: a run that cannot be judged has failed
		}
	} else {
		if o.GetContent().GetScore() == nil {
			return fmt.Errorf("the outcome of the scorer %s has neither a score nor an error", o.GetName())
		}
		score := &agentv1.NamedScore{Name: o.GetName(), Score: o.GetContent().GetScore()}
		s.lastScores = append(s.lastScores[:len(s.lastScores):len(s.lastScores)], score)
		if !s.Scoring.Intermediate {
			s.scores = s.lastScores
		}
	}
	s.Scoring.Next++
	s.Scoring.Intent, s.Scoring.Results = 0, nil
	if s.Scoring.Intermediate && s.Scoring.Next == len(s.spec.GetScorers()) {
		s.Scoring = nil
	}
	return nil
}
