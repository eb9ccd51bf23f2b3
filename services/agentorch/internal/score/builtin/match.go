package builtin

import (
	"encoding/json"
	"strings"

	"github.com/evalfleet/evalfleet/services/agentorch/internal/pycompat/number"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/pycompat/pytext"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/param"
)

func matchDefinition() score.Definition {
	params := param.List{
		{
			Name: "location", Type: param.String, Default: json.RawMessage(`"end"`), Enum: []string{`"begin"`, `"end"`, `"any"`, `"exact"`},
			Description: "Where in the output the target must stand.",
		},
		ignoreCaseParam,
		{
			Name: "numeric", Type: param.Boolean, Default: json.RawMessage("false"),
			Description: "Whether a target that is a number is compared by value, to five significant digits, with the numbers in the output.",
		},
	}
	return score.Definition{
		Name:        "match",
		Description: "Compares the beginning, the end, all or any part of the output with the target, as text or as a number.",
		Params:      params,
		Metrics:     gradeMetrics,
		NeedsTarget: true,
		New: func(given json.RawMessage) (score.Scorer, error) {
			m := matcher{Location: "end", IgnoreCase: true}
			if err := params.Decode(given, &m); err != nil {
				return nil, err
			}
			return score.Func(func(in score.Input) (score.Score, error) { return firstFit(in, m.fits), nil }), nil
		},
	}
}

// matcher holds the parameters of match.
type matcher struct {
	Location   string `json:"location"`
	IgnoreCase bool   `json:"ignore_case"`
	Numeric    bool   `json:"numeric"`
}

func (m matcher) fits(completion, target string) (answer string, ok bool) {
	answer = pytext.Trim(completion)
	value, want := answer, pytext.Trim(target)
	if m.IgnoreCase {
		value, want = pytext.Fold(value), pytext.Fold(want)
	}
	if m.Numeric {
		want = number.StripFormatting(want)
		if f, isNumber := number.Parse(want); isNumber {
			return m.fitsNumber(answer, number.StripFormatting(value), number.Normalize(f))
		}
	}
	return answer, m.fitsText(pytext.TrimPunctuation(value), pytext.TrimPunctuation(want))
}

func (m matcher) fitsText(value, want string) bool {
	switch m.Location {
	case "begin":
		return strings.HasPrefix(value, want)
	case "end":
		return strings.HasSuffix(value, want)
	case "exact":
		return value == want
	default:
		return strings.Contains(value, want)
	}
}

// fitsNumber compares numbers in their normal form. It never falls back to text: 25 does not end in 5.
func (m matcher) fitsNumber(answer, value, want string) (string, bool) {
	if m.Location == "exact" {
		if f, ok := number.ParseBare(value); ok {
			value = number.Normalize(f)
		}
		return value, value == want
	}
	found := number.All(value)
	switch {
	case m.Location == "any":
		for _, f := range found {
			if normal := number.Normalize(f); normal == want {
				return normal, true
			}
		}
		return answer, false
	case len(found) == 0:
		return "", false
	}
	chosen := found[0]
	if m.Location == "end" {
		chosen = found[len(found)-1]
	}
	normal := number.Normalize(chosen)
	return normal, normal == want
}
