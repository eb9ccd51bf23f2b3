package builtin

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/task/choice"
)

func choiceDefinition() score.Definition {
	return score.Definition{
		Name:        "choice",
		Description: "Compares the options that the model selected with the letters of the target; goes with the multiple_choice solver.",
		Metrics:     gradeMetrics,
		NeedsTarget: true,
		New: func(given json.RawMessage) (score.Scorer, error) {
			if err := noParams.Decode(given, nil); err != nil {
				return nil, err
			}
			return chooser{}, nil
		},
	}
}

// chooser is the scorer.
type chooser struct{}

// Next implements [score.Scorer].
func (chooser) Next(in score.Input, results []score.Result) (score.Step, error) {
	return score.Func(choose).Next(in, results)
}

// Demand implements [score.Demanding].
func (chooser) Demand(in score.Input, _ []string) error {
	if len(in.Choices) == 0 {
		return rpcerr.InvalidRequest("scorer choice needs samples with choices: map the dataset's choices, or use another scorer")
	}
	return nil
}

func choose(in score.Input) (score.Score, error) {
	if err := (chooser{}).Demand(in, nil); err != nil {
		return score.Score{}, err
	}
	explanation := in.Completion
	if in.Choices.Shuffled() {
		explanation = shuffledExplanation(in.Choices)
	}
	options := in.Choices.Unshuffled()
	targets, err := options.TargetPositions(in.Targets)
	if err != nil {
		return score.Score{}, err
	}
	slices.Sort(targets)
	selected := options.Selected()
	answer := letters(selected)
	s := score.Score{Value: grade(slices.Equal(selected, targets)), Answer: &answer, Explanation: &explanation}
	if len(selected) == 0 && len(targets) > 0 {
		s.Reason = score.ReasonInvalidFormat
		if isBlank(in.Completion) {
			s.Value, s.Reason = score.Text(score.NoAnswer), score.ReasonNoResponse
		}
	}
	return s, nil
}

func letters(positions []int) string {
	names := make([]string, len(positions))
	for i, position := range positions {
		names[i] = choice.Letter(position)
	}
	return strings.Join(names, ", ")
}

// shuffledExplanation shows the model's view, since its letters differ from those of the sample.
func shuffledExplanation(shuffled choice.Choices) string {
	return "The model saw the choices in this order:\n\n" + shuffled.List() + "\n\nIts answer, in those letters: " + letters(shuffled.Selected())
}
