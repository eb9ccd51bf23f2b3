package builtin

import (
	"encoding/json"
	"strings"

	"github.com/evalfleet/evalfleet/services/agentorch/internal/pycompat/pytext"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
)

func exactDefinition() score.Definition {
	return score.Definition{
		Name:        "exact",
		Description: "Compares the whole output with the target, apart from case, punctuation, articles and white space.",
		Metrics:     numberMetrics,
		NeedsTarget: true,
		New: func(given json.RawMessage) (score.Scorer, error) {
			if err := noParams.Decode(given, nil); err != nil {
				return nil, err
			}
			return score.Func(exact), nil
		},
	}
}

func exact(in score.Input) (score.Score, error) {
	got := strings.Join(words(in.Completion, nil), " ")
	correct := false
	for _, target := range in.Targets {
		// A target of only articles and punctuation has no meaning and matches nothing.
		want := strings.Join(words(target, nil), " ")
		correct = correct || want != "" && want == got
	}
	s := graded(correct, &in.Completion, in.Completion)
	s.Explanation = nil
	return s, nil
}

// words splits text at blanks and hyphens into words in normal form: folded, without punctuation, numbers as floats,
// articles left out, and without stop words.
func words(text string, stopWords []string) []string {
	stop := make(map[string]bool, len(stopWords))
	for _, word := range stopWords {
		stop[normalWord(word)] = true
	}
	var normal []string
	for _, token := range strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == '-' }) {
		if word := normalWord(token); word != "" && !stop[word] {
			normal = append(normal, word)
		}
	}
	return normal
}

// normalWord brings a token into normal form. Empty means that nothing is left of it; a token with tabs or line breaks
// may hold several words.
func normalWord(token string) string {
	token = withoutPunctuation(pytext.Fold(token))
	if f, ok := pytext.ParseFinite(token); ok {
		token = pytext.FormatFloat(f)
	}
	return strings.Join(pytext.Fields(withoutArticles(token)), " ")
}

// withoutPunctuation removes ASCII punctuation. It only trims punctuation around a number, since `3.14` and `-5` need
// theirs.
func withoutPunctuation(token string) string {
	if _, ok := pytext.ParseFinite(token); ok {
		return token
	}
	if trimmed := pytext.TrimPunctuation(token); trimmed != "" {
		if _, ok := pytext.ParseFinite(trimmed); ok {
			return trimmed
		}
	}
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(pytext.Punctuation, r) {
			return -1
		}
		return r
	}, token)
}

// withoutArticles replaces the words a, an and the by blanks.
func withoutArticles(text string) string {
	var b, word strings.Builder
	flush := func() {
		switch w := word.String(); w {
		case "a", "an", "the":
			b.WriteByte(' ')
		default:
			b.WriteString(w)
		}
		word.Reset()
	}
	for _, r := range text {
		if pytext.IsWord(r) {
			word.WriteRune(r)
			continue
		}
		flush()
		b.WriteRune(r)
	}
	flush()
	return b.String()
}
