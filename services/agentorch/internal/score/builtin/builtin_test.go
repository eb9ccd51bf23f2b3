package builtin_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/builtin"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/metric"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/reduce"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/task/choice"
)

func run(t *testing.T, name, params string, in score.Input) score.Score {
	t.Helper()
	s, err := scoreOf(score.NewRegistry(builtin.Definitions()...), name, json.RawMessage(params), in)
	require.NoError(t, err)
	return *s
}

func TestScorers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, scorer, params, completion string
		targets                          []string
		want                             string
		answer                           string
		reason                           string
	}{
		{"match at the end", "match", ``, "The answer is **Paris**.", []string{"paris"}, "C", "The answer is **Paris**.", ""},
		{"match any target", "match", `{"location":"begin"}`, "Yes, it is", []string{"no", "yes"}, "C", "Yes, it is", ""},
		{"match a number", "match", `{"numeric":true}`, "So it costs $1,234.00.", []string{"1234"}, "C", "1234", ""},
		{"a number is no text", "match", `{"numeric":true}`, "25", []string{"5"}, "I", "25", ""},
		{"an empty completion is noted", "match", ``, " \n", []string{"x"}, "I", "", score.ReasonNoResponse},
		{"includes with case", "includes", `{"ignore_case":false}`, "PARIS", []string{"Paris"}, "I", "PARIS", ""},
		{"exact without articles", "exact", ``, "The  U.S.-army", []string{"a us army"}, "C", "The  U.S.-army", ""},
		{"exact needs content", "exact", ``, "the", []string{"a"}, "I", "the", ""},
		{"pattern group", "pattern", `{"pattern":"=(\\d)"}`, "a=1", []string{"1"}, "C", "1", ""},
		{"pattern finds nothing", "pattern", `{"pattern":"=(\\d)"}`, "a", []string{"1"}, "I", "-", score.ReasonInvalidFormat},
		{"pattern on nothing", "pattern", `{"pattern":"=(\\d)"}`, "", []string{"1"}, "I", "-", score.ReasonNoResponse},
		{"an empty group is no answer", "pattern", `{"pattern":"=(\\d*)"}`, "a=", []string{""}, "I", "", ""},
		{"answer of the last label", "answer", `{"pattern":"letter"}`, "ANSWER: A\nno, answer : b.", []string{"B"}, "C", "b", ""},
		{"answer letter of another script", "answer", `{"pattern":"letter"}`, "ANSWER: \u00e9", []string{"\u00e9"}, "I", "-", score.ReasonInvalidFormat},
		{"answer letter with a dot of its own", "answer", `{"pattern":"letter"}`, "ANSWER: \u0130", []string{"A"}, "I", "\u0130", ""},
		{"answer word of the last label", "answer", `{"pattern":"word"}`, "ANSWER: a\nANSWER: b.\n", []string{"B"}, "C", "b", ""},
		{"answer word that holds a label", "answer", `{"pattern":"word"}`, "ANSWER:x:ANSWER:b", []string{"b"}, "I", "x:ANSWER:b", ""},
		{"answer word before a label that has none", "answer", `{"pattern":"word"}`, "ANSWER: a\nANSWER:", []string{"a"}, "I", "-", score.ReasonInvalidFormat},
		{"answer word behind a label that ends a word", "answer", `{"pattern":"word"}`, "ANSWER: xANSWER: b\n", []string{"b"}, "C", "b", ""},
		{"answer line behind a label that ends a line", "answer", `{"pattern":"line"}`, "ANSWER: x ANSWER: \nb c\n", []string{"b c"}, "C", "b c", ""},
		{"answer line must be last", "answer", `{"pattern":"line"}`, "ANSWER: a b\nmore", []string{"a b"}, "I", "-", score.ReasonInvalidFormat},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := run(t, c.scorer, c.params, score.Input{Completion: c.completion, Targets: c.targets})
			assert.Equal(t, c.want, s.Value.Text())
			assert.Equal(t, c.reason, s.Reason)
			if c.answer == "-" {
				assert.Nil(t, s.Answer)
				return
			}
			require.NotNil(t, s.Answer)
			assert.Equal(t, c.answer, *s.Answer)
		})
	}
}

func TestDefaultMetrics(t *testing.T) {
	t.Parallel()
	metrics := map[string][]string{}
	for _, d := range builtin.Definitions() {
		metrics[d.Name] = d.Metrics
	}
	counted, averaged := []string{"accuracy", "stderr"}, []string{"mean", "stderr"}
	assert.Equal(t, map[string][]string{
		"match": counted, "includes": counted, "pattern": counted, "answer": counted, "choice": counted, "exact": averaged, "f1": averaged,
	}, metrics)
}

func TestChoiceScoresByTheSamplesLetters(t *testing.T) {
	t.Parallel()
	shuffled := choice.Choices{{Value: "Rome", Original: 2}, {Value: "Paris", Original: 1, Selected: true}, {Value: "Berlin", Original: 0, Selected: true}}
	s := run(t, "choice", ``, score.Input{Completion: "ANSWER: B, C", Targets: []string{"B,A"}, Choices: shuffled})
	assert.Equal(t, score.Correct, s.Value.Text())
	assert.Equal(t, "A, B", *s.Answer)
	assert.Contains(t, *s.Explanation, "A) Rome\nB) Paris\nC) Berlin", "what the model saw")
	assert.Contains(t, *s.Explanation, "B, C", "and what it said")
}

func TestChoiceWithoutSelection(t *testing.T) {
	t.Parallel()
	choices := choice.New([]string{"x", "y"})
	s := run(t, "choice", ``, score.Input{Completion: " ", Targets: []string{"A"}, Choices: choices})
	assert.Equal(t, score.NoAnswer, s.Value.Text())
	assert.Equal(t, score.ReasonNoResponse, s.Reason)
	s = run(t, "choice", ``, score.Input{Completion: "hm", Targets: []string{"A"}, Choices: choices})
	assert.Equal(t, score.Incorrect, s.Value.Text())
	assert.Equal(t, score.ReasonInvalidFormat, s.Reason)
}

func TestParametersAreStrict(t *testing.T) {
	t.Parallel()
	registry := score.NewRegistry(builtin.Definitions()...)
	for _, c := range []struct{ scorer, params, want string }{
		{"match", `{"locaton":"end"}`, "scorer match: params_json/locaton: is not known; did you mean location? known are location, ignore_case, numeric"},
		{"match", `{"location":"middle"}`, `params_json/location: is "middle"; allowed are "begin", "end", "any", "exact"`},
		{"includes", `{"ignore_case":1}`, "params_json/ignore_case: is 1; want a boolean"},
		{"exact", `{"x":1}`, "scorer exact: params_json/x: is not known; there are no parameters"},
		{"choice", `{"x":1}`, "there are no parameters"},
		{"f1", `{"stop_words":"a"}`, "params_json/stop_words"},
		{"pattern", `{}`, "scorer pattern: params_json/pattern: is required"},
		{"pattern", `{"pattern":"("}`, `params_json/pattern: pattern "("`},
		{"answer", `{"pattern":"sentence"}`, `allowed are "letter", "word", "line"`},
	} {
		_, err := registry.New(c.scorer, json.RawMessage(c.params))
		require.ErrorContains(t, err, c.want)
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST))
	}
}

// The page about task files names every scorer, metric and reducer.
func TestThePageNamesAll(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../../../docs/task-file.md")
	require.NoError(t, err)
	var names []string
	for _, d := range builtin.Definitions() {
		names = append(names, d.Name)
	}
	for _, d := range metric.NewRegistry().Definitions() {
		names = append(names, d.Name)
	}
	for _, d := range reduce.Definitions() {
		names = append(names, d.Name)
	}
	for _, name := range names {
		assert.Contains(t, string(page), "`"+name+"`")
	}
}

func TestDefinitionsTellPeopleAndPrograms(t *testing.T) {
	t.Parallel()
	metrics := metric.NewRegistry()
	for _, d := range builtin.Definitions() {
		assert.NotEmpty(t, d.Description, d.Name)
		assert.True(t, json.Valid(d.Params.Schema()), d.Name)
		require.NotEmpty(t, d.Metrics, d.Name)
		for _, name := range d.Metrics {
			_, err := metrics.New(metric.Spec{Name: name})
			require.NoError(t, err, d.Name)
		}
		for _, p := range d.Params {
			assert.NotEmpty(t, p.Description, "%s.%s", d.Name, p.Name)
		}
	}
}

func TestPatternIsBoundedInTime(t *testing.T) {
	t.Parallel()
	registry := score.NewRegistry(builtin.Definitions()...)
	_, err := scoreOf(registry, "pattern", json.RawMessage(`{"pattern":"^(a+)+$"}`), score.Input{Completion: strings.Repeat("a", 60) + "b"})
	require.ErrorContains(t, err, "backtracks")
}

// The time of many labels is not that of many labels times the text that follows them.
func TestManyAnswers(t *testing.T) {
	t.Parallel()
	labels := strings.Repeat("answer:", 80_000) + "x\n"
	for name, in := range map[string]struct{ pattern, completion string }{
		"word": {`{"pattern":"word"}`, labels + "answer:"},
		"line": {`{"pattern":"line"}`, labels + strings.Repeat("\n", 200_000) + "end"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun := time.Now()
			s := run(t, "answer", in.pattern, score.Input{Completion: in.completion, Targets: []string{"x"}})
			assert.Equal(t, score.ReasonInvalidFormat, s.Reason)
			assert.Less(t, time.Since(begun), waittest.Bound)
		})
	}
}

func FuzzScorers(f *testing.F) {
	f.Add("The answer is $1,234.00. ANSWER: B", "1234")
	f.Add("½ 四十二", "0.5")
	f.Fuzz(func(t *testing.T, completion, target string) {
		registry := score.NewRegistry(builtin.Definitions()...)
		for name, params := range map[string]string{
			"match": `{"numeric":true}`, "includes": ``, "exact": ``, "f1": ``, "answer": `{"pattern":"word"}`, "pattern": `{"pattern":"(\\w+)\\W*\\Z"}`,
		} {
			s, err := scoreOf(registry, name, json.RawMessage(params), score.Input{Completion: completion, Targets: []string{target}})
			require.NoError(t, err)
			f, ok := s.Value.Float()
			require.True(t, ok && 0 <= f && f <= 1)
		}
	})
}
