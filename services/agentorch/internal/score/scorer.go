package score

import (
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/task/choice"
)

// Input is what a scorer knows about a sample when the model is done with it.
type Input struct {
	// Completion is the text of the model's last output.
	Completion string
	// Targets are the sample's targets. Any of them may count as right; what that means is the scorer's matter.
	Targets []string
	// Choices are the sample's options with the model's selection, in the order in which the model saw them; nil when
	// it has none.
	Choices choice.Choices
	// Metadata is the sample's metadata; nil for none.
	Metadata *orderedjson.Object
}

// Effect is something that a scorer needs done before it can decide. Its types are declared by the scorers that ask for
// them and known to whoever drives samples.
type Effect any

// Result is the outcome of an Effect, of the type that belongs to it.
type Result any

// Step is a scorer's next move: a finished score, or the effect that it needs first. Exactly one is set.
type Step struct {
	Score  *Score
	Effect Effect
}

// Scorer judges samples. It is immutable: what it decides follows from its arguments alone, so that a replayed journal
// comes to the same end.
type Scorer interface {
	// Next returns the score, or the effect to perform before the next call. Results are the outcomes of all effects
	// asked for so far, in order. An error means that the sample cannot be judged by this scorer, for example because
	// it lacks choices; it is no score.
	Next(in Input, results []Result) (Step, error)
}

// Demanding is a scorer that needs more of a run than what the model said, and can tell before the run starts that it
// lacks.
type Demanding interface {
	Scorer
	// Demand fails with INVALID_REQUEST where a run could never be judged. The input has no completion yet, and
	// sandboxes are the names of the run's environments.
	Demand(in Input, sandboxes []string) error
}

// Func is a scorer that needs no effects.
type Func func(Input) (Score, error)

// Next implements Scorer.
func (f Func) Next(in Input, _ []Result) (Step, error) {
	s, err := f(in)
	if err != nil {
		return Step{}, err
	}
	return Step{Score: &s}, nil
}
