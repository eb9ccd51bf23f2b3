package builtin_test

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/goldentest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/builtin"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/task/choice"
)

func TestGoldenScorers(t *testing.T) {
	t.Parallel()
	registry := score.NewRegistry(builtin.Definitions()...)
	for theme, pattern := range map[string]string{"text": "eval/scorer-text.jsonl", "match": "eval/scorer-match.jsonl"} {
		goldentest.Run(t, theme, goldentest.Load(t, pattern), func(t *goldentest.T, c goldentest.Case) {
			in := textInput(t, c)
			s, err := scoreOf(registry, c.Op(), in.params, in.Input)
			if c.At("expect", "error") != nil {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			t.Equal(c.At("expect"), recorded(s, in.Completion))
		})
	}
}

// recordedInput is what a scorer got: the members of the case's input that are no parameters, and those that are.
type recordedInput struct {
	score.Input

	params json.RawMessage
}

func textInput(t *goldentest.T, c goldentest.Case) recordedInput {
	given, ok := c.At("input").(map[string]any)
	require.True(t, ok)
	params := maps.Clone(given)
	delete(params, "completion")
	delete(params, "target")
	raw, err := json.Marshal(params)
	require.NoError(t, err)
	completion, ok := given["completion"].(string)
	require.True(t, ok)
	return recordedInput{Input: score.Input{Completion: completion, Targets: targets(given["target"])}, params: raw}
}

func targets(given any) []string {
	list, isList := given.([]any)
	if !isList {
		list = []any{given}
	}
	texts := make([]string, len(list))
	for i, item := range list {
		texts[i], _ = item.(string)
	}
	return texts
}

func scoreOf(registry *score.Registry, name string, params json.RawMessage, in score.Input) (*score.Score, error) {
	scorer, err := registry.New(name, params)
	if err != nil {
		return nil, err
	}
	step, err := scorer.Next(in, nil)
	return step.Score, err
}

// recorded turns a score into the recorded form.
func recorded(s *score.Score, completion string) map[string]any {
	return map[string]any{
		"value": s.Value, "answer": s.Answer, "explanation_is_completion": s.Explanation != nil && *s.Explanation == completion,
	}
}

func TestGoldenChoice(t *testing.T) {
	t.Parallel()
	registry := score.NewRegistry(builtin.Definitions()...)
	goldentest.Run(t, "choice", goldentest.Load(t, "eval/scorer-choice.jsonl"), func(t *goldentest.T, c goldentest.Case) {
		var in struct {
			Input struct {
				Choices    []string `json:"choices"`
				Completion string   `json:"completion"`
				Multiple   bool     `json:"multiple_correct"`
				Cot        bool     `json:"cot"`
			} `json:"input"`
		}
		require.NoError(t, c.Decode(&in))
		choices := choice.New(in.Input.Choices)
		prompt, err := choices.Prompt(choice.DefaultTemplate(in.Input.Cot, in.Input.Multiple), "question")
		require.NoError(t, err)
		choices.Select(choice.Parse(in.Input.Completion, len(choices), in.Input.Multiple))
		s, err := scoreOf(registry, "choice", nil, score.Input{
			Completion: in.Input.Completion, Targets: targets(c.At("input", "target")), Choices: choices,
		})
		if c.At("expect", "error") != nil {
			require.Error(t, err)
			return
		}
		require.NoError(t, err)
		got := recorded(s, in.Input.Completion)
		selected := make([]bool, len(choices))
		for i, option := range choices {
			selected[i] = option.Selected
		}
		got["selected"] = selected
		got["options_listed"] = listed(prompt)
		t.Equal(c.At("expect"), got)
	})
}

// listed returns the lines of a prompt that name an option.
func listed(prompt string) []string {
	var lines []string
	for line := range strings.Lines(prompt) {
		line = strings.TrimSuffix(line, "\n")
		if letter, _, found := strings.Cut(line, ") "); found && len(letter) <= 2 {
			lines = append(lines, line)
		}
	}
	return lines
}
