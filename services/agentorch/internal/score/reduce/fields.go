package reduce

import (
	"encoding/json"
	"maps"

	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
)

// common returns a score without a value, with the fields that all scores agree on, and the metadata of the first.
func common(scores []score.Score) score.Score {
	c := scores[0]
	for _, s := range scores[1:] {
		if !same(c.Answer, s.Answer) {
			c.Answer = nil
		}
		if !same(c.Explanation, s.Explanation) {
			c.Explanation = nil
		}
		if c.Reason != s.Reason {
			c.Reason = ""
		}
	}
	return c
}

func same(a, b *string) bool { return a == b || a != nil && b != nil && *a == *b }

// panel is the metadata of a majority about its votes.
type panel struct {
	// Votes are the values in order, null for an unscored one.
	Votes    []score.Value `json:"votes"`
	Size     int           `json:"size"`
	Failures []failure     `json:"failures"`
}

// failure is the reason why one vote is missing.
type failure struct {
	Index       int     `json:"index"`
	Reason      *string `json:"reason"`
	Explanation *string `json:"explanation"`
}

// withPanel returns the metadata with the votes behind a majority under the key panel.
func withPanel(metadata map[string]json.RawMessage, scores []score.Score) map[string]json.RawMessage {
	p := panel{Size: len(scores), Failures: []failure{}}
	for i, s := range scores {
		p.Votes = append(p.Votes, s.Value)
		if s.Value.IsUnscored() {
			f := failure{Index: i, Explanation: s.Explanation}
			if s.Reason != "" {
				f.Reason = &s.Reason
			}
			p.Failures = append(p.Failures, f)
		}
	}
	// A panel holds texts, numbers and values, which all have a JSON form.
	raw, _ := json.Marshal(p)
	with := map[string]json.RawMessage{}
	maps.Copy(with, metadata)
	with["panel"] = raw
	return with
}
