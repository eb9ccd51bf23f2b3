// Package builtin has the scorers that judge by the completion, the targets and the selected options alone. They
// request no effects.
//
// All text scorers count a sample as right if any of its targets matches. Their rules are those of the scorers of the
// same names in Inspect, so that results are comparable.
package builtin

import (
	"encoding/json"

	"github.com/evalfleet/evalfleet/services/agentorch/internal/pycompat/pytext"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/param"
)

// Definitions returns the scorers of this package for a registry.
func Definitions() []score.Definition {
	return []score.Definition{
		matchDefinition(), includesDefinition(), exactDefinition(), f1Definition(), patternDefinition(), answerDefinition(), choiceDefinition(),
	}
}

// The default metrics of scorers: grades are counted, numbers averaged. By convention exact has those of numbers.
var (
	gradeMetrics  = []string{"accuracy", "stderr"}
	numberMetrics = []string{"mean", "stderr"}
)

// noParams is the list of a scorer without parameters, which refuses any parameter.
var noParams param.List

var ignoreCaseParam = param.Param{
	Name: "ignore_case", Type: param.Boolean, Default: json.RawMessage("true"), Description: "Whether upper and lower case are the same.",
}

// graded returns the score of a text scorer. The explanation is the completion; a blank completion is noted for every
// grade.
func graded(correct bool, answer *string, completion string) score.Score {
	s := score.Score{Value: grade(correct), Answer: answer, Explanation: &completion}
	if isBlank(completion) {
		s.Reason = score.ReasonNoResponse
	}
	return s
}

func grade(correct bool) score.Value {
	if correct {
		return score.Text(score.Correct)
	}
	return score.Text(score.Incorrect)
}

func isBlank(completion string) bool { return pytext.Trim(completion) == "" }

// firstFit tries each target in turn and scores by the first match. The answer is that of the last attempt; there is
// none without targets.
func firstFit(in score.Input, fits func(completion, target string) (answer string, ok bool)) score.Score {
	var answer *string
	for _, target := range in.Targets {
		got, ok := fits(in.Completion, target)
		answer = &got
		if ok {
			return graded(true, answer, in.Completion)
		}
	}
	return graded(false, answer, in.Completion)
}
