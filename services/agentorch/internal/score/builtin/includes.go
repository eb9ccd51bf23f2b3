package builtin

import (
	"encoding/json"
	"strings"

	"github.com/evalfleet/evalfleet/services/agentorch/internal/pycompat/pytext"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/param"
)

func includesDefinition() score.Definition {
	params := param.List{ignoreCaseParam}
	return score.Definition{
		Name:        "includes",
		Description: "Looks for the target anywhere in the output.",
		Params:      params,
		Metrics:     gradeMetrics,
		NeedsTarget: true,
		New: func(given json.RawMessage) (score.Scorer, error) {
			p := struct {
				IgnoreCase bool `json:"ignore_case"`
			}{IgnoreCase: true}
			if err := params.Decode(given, &p); err != nil {
				return nil, err
			}
			fits := func(completion, target string) (string, bool) {
				if p.IgnoreCase {
					completion, target = pytext.Fold(completion), pytext.Fold(target)
				}
				return completion, strings.Contains(completion, target)
			}
			return score.Func(func(in score.Input) (score.Score, error) { return firstFit(in, fits), nil }), nil
		},
	}
}
