package builtin

import (
	"encoding/json"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/evalfleet/evalfleet/services/agentorch/internal/pycompat/pytext"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/param"
)

func answerDefinition() score.Definition {
	params := param.List{{
		Name: "pattern", Type: param.String, Required: true, Enum: []string{`"letter"`, `"word"`, `"line"`},
		Description: "What to take: one letter, one word that ends its line, or all of the last line.",
	}}
	return score.Definition{
		Name:        "answer",
		Description: "Compares what follows `ANSWER:` in the output with the target.",
		Params:      params,
		Metrics:     gradeMetrics,
		NeedsTarget: true,
		New: func(given json.RawMessage) (score.Scorer, error) {
			var p struct {
				Pattern string `json:"pattern"`
			}
			if err := params.Decode(given, &p); err != nil {
				return nil, err
			}
			extract := map[string]func(string) string{"letter": answerLetter, "word": answerWord, "line": answerLine}[p.Pattern]
			return score.Func(func(in score.Input) (score.Score, error) {
				answer := extract(in.Completion)
				if answer == "" {
					return notFound(in.Completion), nil
				}
				return graded(equalsAny(answer, in.Targets, true), &answer, in.Completion), nil
			}), nil
		},
	}
}

var answerLabel = regexp.MustCompile(`(?i)answer[\s\v\x1c-\x1f\x85\p{Z}]*:`)

// afterLastLabel returns the text behind the last `ANSWER:` without leading white space, or nothing.
func afterLastLabel(completion string) string {
	labels := answerLabel.FindAllStringIndex(completion, -1)
	if labels == nil {
		return ""
	}
	return strings.TrimLeftFunc(completion[labels[len(labels)-1][1]:], pytext.IsSpace)
}

// answerLetter returns the letter after the last label if no word continues behind it.
func answerLetter(completion string) string {
	text := afterLastLabel(completion)
	if text == "" {
		return ""
	}
	r, size := utf8.DecodeRuneInString(text)
	letter, rest := text[:size], text[size:]
	next, _ := utf8.DecodeRuneInString(rest)
	if !isAnyCaseLatin(r) || rest != "" && pytext.IsWord(next) {
		return ""
	}
	return letter
}

// isAnyCaseLatin reports whether r is one of the letters a to z in any case. Python counts the dotted I, the dotless i,
// the long s and the sign of kelvin among them.
func isAnyCaseLatin(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || strings.ContainsRune("\u0130\u0131\u017f\u212a", r)
}

// answerWord returns the word after a label if its line holds nothing else and no label follows, without one trailing
// mark of punctuation. A word may itself hold a label.
func answerWord(completion string) string {
	refused := 0 // the end of a word that is none
	for _, label := range answerLabel.FindAllStringIndex(completion, -1) {
		if label[1] < refused { // It is within that word, and has the same text behind its own.
			continue
		}
		text := strings.TrimLeftFunc(completion[label[1]:], pytext.IsSpace)
		end := strings.IndexFunc(text, pytext.IsSpace)
		if end < 0 {
			end = len(text)
		}
		word, rest := text[:end], text[end:]
		blanks := rest[:len(rest)-len(strings.TrimLeftFunc(rest, pytext.IsSpace))]
		if word == "" || !strings.Contains(blanks, "\n") && blanks != rest || answerLabel.MatchString(rest) {
			refused = len(completion) - len(rest)
			continue
		}
		if last := len(word) - 1; last > 0 && strings.IndexByte(".,;:!?", word[last]) >= 0 {
			word = word[:last]
		}
		return word
	}
	return ""
}

// lastBlank returns the last blank other than a line break; empty if there is none. The reference takes it for the
// answer if nothing else follows a label.
func lastBlank(blanks string) string {
	blanks = strings.TrimRight(blanks, "\n")
	_, size := utf8.DecodeLastRuneInString(blanks)
	return blanks[len(blanks)-size:]
}

// answerLine returns the rest of the line after a label when only white space follows that line.
func answerLine(completion string) string {
	refused := 0 // the end of a line, without blanks, that text follows
	for _, label := range answerLabel.FindAllStringIndex(completion, -1) {
		if label[1] < refused {
			continue
		}
		text := strings.TrimLeftFunc(completion[label[1]:], pytext.IsSpace)
		if text == "" {
			return lastBlank(completion[label[1]:])
		}
		line, rest, _ := strings.Cut(text, "\n")
		if strings.TrimLeftFunc(rest, pytext.IsSpace) == "" {
			return line
		}
		refused = len(completion) - len(text) + len(strings.TrimRightFunc(line, pytext.IsSpace))
	}
	return ""
}
