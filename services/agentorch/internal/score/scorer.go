package score

import (
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/task/choice"
)

// Input is a sample as a scorer sees it once the model is done.
type Input struct {
	// Completion is the text of the model's last output.
	Completion string
	// Targets are the sample's targets. A match with any of them may count as right; the scorer defines a match.
	Targets []string
	// Choices are the sample's options with the model's selection, in the order in which the model saw them; nil if it
	// has none.
	Choices choice.Choices
	// Metadata is the sample's metadata; nil if there is none.
	Metadata *orderedjson.Object
}

// Effect is an effect that a scorer needs before it can decide. Its types are declared by the scorers that request
// them, and known to the engine.
type Effect any

// Result is the outcome of an Effect, of the type that belongs to it.
type Result any

// Step is a scorer's next move: a finished score, or the effect that it needs first. Exactly one is set.
type Step struct {
	Score  *Score
	Effect Effect
}

// Scorer judges samples. It is immutable: its decision depends on its arguments alone, so that a replayed journal gives
// the same score.
type Scorer interface {
	// Next returns the score, or the effect to perform before the next call. Results are the outcomes of all effects
	// requested so far, in order. An error means that this scorer cannot judge the sample, for example because it lacks
	// choices; it is not a score.
	Next(in Input, results []Result) (Step, error)
}

// Demanding is a scorer that needs more of a run than the model's answer, and can report before the run starts that it
// is missing.
type Demanding interface {
	Scorer
	// Demand fails with INVALID_REQUEST if a run could never be judged. The input has no completion yet, and sandboxes
	// are the names of the run's environments.
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
