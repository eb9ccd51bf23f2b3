package builtin

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/services/agentorch/internal/pycompat/pyregexp"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/pycompat/pytext"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/param"
)

func patternDefinition() score.Definition {
	params := param.List{
		{
			Name: "pattern", Type: param.String, Required: true,
			Description: "Regular expression in the syntax of Python's re. Its first match counts; without groups the whole match is the answer.",
		},
		ignoreCaseParam,
		{
			Name: "match_all", Type: param.Boolean, Default: json.RawMessage("false"),
			Description: "Whether every group that took part must equal a target, rather than any one of them.",
		},
	}
	return score.Definition{
		Name:        "pattern",
		Description: "Takes the answer out of the output with a regular expression and compares its groups with the target.",
		Params:      params,
		Metrics:     gradeMetrics,
		NeedsTarget: true,
		New: func(given json.RawMessage) (score.Scorer, error) {
			p := patternMatcher{IgnoreCase: true}
			if err := params.Decode(given, &p); err != nil {
				return nil, err
			}
			re, err := pyregexp.Compile(p.Pattern, p.IgnoreCase)
			if err != nil {
				return nil, param.Invalid("pattern", "%v", err)
			}
			p.re = re
			return score.Func(p.score), nil
		},
	}
}

// patternMatcher holds the parameters of pattern.
type patternMatcher struct {
	Pattern    string `json:"pattern"`
	IgnoreCase bool   `json:"ignore_case"`
	MatchAll   bool   `json:"match_all"`

	re *pyregexp.Regexp
}

func (p patternMatcher) score(in score.Input) (score.Score, error) {
	m, found, err := p.re.Search(in.Completion)
	if err != nil {
		return score.Score{}, fmt.Errorf("pattern %q: %w", p.Pattern, err)
	}
	if !found {
		return notFound(in.Completion), nil
	}
	groups := captured(m)
	if p.MatchAll {
		if !p.allFit(groups, in.Targets) {
			return graded(false, nil, in.Completion), nil
		}
		answer := strings.Join(in.Targets, "")
		return graded(answer != "", &answer, in.Completion), nil
	}
	for _, group := range groups {
		if group != nil && p.fits(*group, in.Targets) {
			// An empty group may equal an empty target, but nothing was found then.
			return graded(*group != "", group, in.Completion), nil
		}
	}
	if len(groups) == 1 {
		// The text of a single group is worth showing even if it is wrong.
		return graded(false, groups[0], in.Completion), nil
	}
	return graded(false, nil, in.Completion), nil
}

// captured returns the text of each group, nil for a group that did not match, or of the whole match if there are no
// groups.
func captured(m pyregexp.Match) []*string {
	text := func(n int) *string {
		if s, ok := m.Group(n); ok {
			return &s
		}
		return nil
	}
	if m.Len() == 0 {
		return []*string{text(0)}
	}
	groups := make([]*string, m.Len())
	for i := range groups {
		groups[i] = text(i + 1)
	}
	return groups
}

// allFit reports whether every group that took part equals a target, and at least one did.
func (p patternMatcher) allFit(groups []*string, targets []string) bool {
	took := slices.DeleteFunc(slices.Clone(groups), func(group *string) bool { return group == nil })
	return len(took) > 0 && !slices.ContainsFunc(took, func(group *string) bool { return !p.fits(*group, targets) })
}

func (p patternMatcher) fits(group string, targets []string) bool {
	return equalsAny(group, targets, p.IgnoreCase)
}

func equalsAny(answer string, targets []string, ignoreCase bool) bool {
	if ignoreCase {
		answer = pytext.Lower(answer)
	}
	return slices.ContainsFunc(targets, func(target string) bool {
		if ignoreCase {
			target = pytext.Lower(target)
		}
		return target == answer
	})
}

// notFound is the score if the output has no answer in the requested form.
func notFound(completion string) score.Score {
	explanation := "no answer in the expected form in the output: " + completion
	s := score.Score{Value: grade(false), Explanation: &explanation, Reason: score.ReasonInvalidFormat}
	if isBlank(completion) {
		s.Reason = score.ReasonNoResponse
	}
	return s
}
