package builtin

import (
	"encoding/json"
	"strconv"

	"github.com/evalfleet/evalfleet/services/agentorch/internal/pycompat/pytext"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/param"
)

func f1Definition() score.Definition {
	params := param.List{{
		Name: "stop_words", Type: param.Strings, Description: "Words that do not count.",
	}}
	return score.Definition{
		Name:        "f1",
		Description: "Gives the F1 measure of the words that output and target share, the best over all targets, to two decimals.",
		Params:      params,
		Metrics:     numberMetrics,
		NeedsTarget: true,
		New: func(given json.RawMessage) (score.Scorer, error) {
			var p struct {
				StopWords []string `json:"stop_words"`
			}
			if err := params.Decode(given, &p); err != nil {
				return nil, err
			}
			return score.Func(func(in score.Input) (score.Score, error) {
				s := graded(false, &in.Completion, in.Completion)
				s.Value, s.Explanation = score.Number(bestF1(in, p.StopWords)), nil
				return s, nil
			}), nil
		},
	}
}

func bestF1(in score.Input, stopWords []string) float64 {
	got := countWords(in.Completion, stopWords)
	best := 0.0
	for _, target := range in.Targets {
		if want := countWords(target, stopWords); len(want) > 0 {
			best = max(best, f1(got, want))
		}
	}
	// Two decimals, the exact value of a tie deciding, as Python rounds.
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(best, 'f', 2, 64), 64)
	return rounded
}

// countWords counts how often each word occurs: a word that is repeated needlessly costs precision.
func countWords(text string, stopWords []string) map[string]int {
	counts := map[string]int{}
	for _, normal := range words(text, stopWords) {
		for _, word := range pytext.Fields(normal) {
			counts[word]++
		}
	}
	return counts
}

// f1 is the harmonic mean of precision and recall over words with their multiplicity. Want is not empty.
func f1(got, want map[string]int) float64 {
	shared := 0
	for word, n := range got {
		shared += min(n, want[word])
	}
	if shared == 0 {
		return 0
	}
	precision := float64(shared) / float64(total(got))
	recall := float64(shared) / float64(total(want))
	return 2 * precision * recall / (precision + recall)
}

func total(counts map[string]int) int {
	sum := 0
	for _, n := range counts {
		sum += n
	}
	return sum
}
