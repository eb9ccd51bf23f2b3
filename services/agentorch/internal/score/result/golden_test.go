package result_test

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/goldentest"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/builtin"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/metric"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/reduce"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/result"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/scoretest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/task/dataset"
)

func TestGoldenResults(t *testing.T) {
	t.Parallel()
	goldentest.Run(t, "results", goldentest.Load(t, "eval/results.jsonl"), func(t *goldentest.T, c goldentest.Case) {
		in := result.Input{}
		text, _ := c.At("input", "metrics").(string)
		scorers := builtinScorers(t, text)
		if scorers == nil {
			in.Scorers = []result.Scorer{{Name: "given", Metrics: parseMetrics(t, text)}}
		} else {
			in.Scorers = scorers
		}
		names, err := recordedReducers(t, c, &in)
		if c.At("expect", "error") != nil && err != nil {
			return // the evaluation does not begin
		}
		require.NoError(t, err)
		values := inOrder(t, c)
		total := 0
		for i, epochs := range values {
			list, _ := epochs.([]any)
			for _, v := range list {
				total++
				in.Epochs = append(in.Epochs, epoch(t, i, scoretest.Value(t, v), scorers))
			}
		}
		results, err := result.Compute(t.Context(), in)
		if c.At("expect", "error") != nil || c.At("expect", "status") == "error" {
			require.Error(t, err)
			return
		}
		require.NoError(t, err)
		got := recorded(results)
		got["total_samples"], got["completed_samples"] = total, total
		got["epochs_reducer"] = names
		t.Equal(c.At("expect"), got)
	})
}

// recordedReducers sets the reducers and returns their names in the recorded form, null where none is given. It fails
// if a reducer needs more epochs than there are.
func recordedReducers(t *goldentest.T, c goldentest.Case, in *result.Input) (any, error) {
	given := c.At("input", "reducer")
	if given == nil {
		return nil, nil
	}
	var epochs int
	require.NoError(t, json.Unmarshal([]byte(fmt.Sprint(c.At("input", "epochs"))), &epochs))
	list, isList := given.([]any)
	if !isList {
		list = []any{given}
	}
	in.Reducers = []reduce.Reducer{}
	names := []string{}
	for _, item := range list {
		name, _ := item.(string)
		r, err := reduce.New(name)
		require.NoError(t, err)
		if err := r.CheckEpochs(epochs); err != nil {
			return nil, err
		}
		in.Reducers = append(in.Reducers, r)
		names = append(names, r.Name())
	}
	return names, nil
}

// epoch makes an epoch of sample i. The recorded samples alternate between the groups a and b.
func epoch(t *goldentest.T, i int, v score.Value, scorers []result.Scorer) result.Epoch {
	metadata := &orderedjson.Object{}
	metadata.Set("g", string(rune('a'+i%2)))
	e := result.Epoch{ID: dataset.IntegerID(i + 1), Metadata: metadata, Scores: map[string]score.Score{"given": {Value: v}}}
	if scorers == nil {
		return e
	}
	e.Scores = map[string]score.Score{}
	for _, s := range scorers {
		registry := score.NewRegistry(builtin.Definitions()...)
		name := s.Name
		if _, err := registry.Definition(name); err != nil {
			name = name[:len(name)-1] // the number of a name that occurs again
		}
		scorer, err := registry.New(name, s.Params)
		require.NoError(t, err)
		// The recorded sample has its target within the output, not at its end.
		step, err := scorer.Next(score.Input{Completion: "the output of a model", Targets: []string{"output"}}, nil)
		require.NoError(t, err)
		e.Scores[s.Name] = *step.Score
	}
	return e
}

// builtinScorers reads a list of scorers, such as `match, includes, match(numeric)`; nil when the text lists metrics.
func builtinScorers(t *goldentest.T, text string) []result.Scorer {
	registry := score.NewRegistry(builtin.Definitions()...)
	var names []string
	var scorers []result.Scorer
	for _, item := range split(text) {
		name, argument, _ := strings.Cut(strings.TrimSuffix(item, ")"), "(")
		d, err := registry.Definition(name)
		if err != nil {
			return nil
		}
		s := result.Scorer{}
		for _, m := range d.Metrics {
			s.Metrics.Plain = append(s.Metrics.Plain, newMetric(t, m, nil))
		}
		if argument != "" {
			s.Params = json.RawMessage(`{"` + argument + `":true}`)
		}
		names = append(names, name)
		scorers = append(scorers, s)
	}
	for i, name := range result.UniqueNames(names) {
		scorers[i].Name = name
	}
	return scorers
}

// split splits a list at the commas that are in no brackets.
func split(text string) []string {
	var items []string
	depth, start := 0, 0
	for i, r := range text {
		switch {
		case strings.ContainsRune("([{", r):
			depth++
		case strings.ContainsRune(")]}", r):
			depth--
		case r == ',' && depth == 0:
			items = append(items, strings.TrimSpace(text[start:i]))
			start = i + 1
		}
	}
	return append(items, strings.TrimSpace(text[start:]))
}

var (
	// defined is a metric that the recording defined: its name and what it returns.
	defined  = regexp.MustCompile(`^a metric named (\w+) returning (.+)$`)
	whereTag = regexp.MustCompile(`^(.*) where (\w+) returns (.+)$`)
)

// parseMetrics reads how a case writes metrics: `accuracy, ci(level=0.8)`, `{x_*: [mean]}`, `none`, with metrics of the
// recording's own.
func parseMetrics(t *goldentest.T, text string) result.Metrics {
	own := map[string]score.Value{}
	if m := whereTag.FindStringSubmatch(text); m != nil {
		text, own[m[2]] = m[1], literal(t, m[3])
	}
	var metrics result.Metrics
	if body, isMap := strings.CutPrefix(text, "{"); isMap {
		for _, item := range split(strings.TrimSuffix(body, "}")) {
			glob, list, _ := strings.Cut(item, ":")
			list = strings.Trim(strings.TrimSpace(list), "[]")
			metrics.ByKey = append(metrics.ByKey, result.KeyMetrics{Glob: glob, Metrics: parseList(t, list, own)})
		}
		return metrics
	}
	if text != "none" {
		metrics.Plain = parseList(t, text, own)
	}
	return metrics
}

func parseList(t *goldentest.T, text string, own map[string]score.Value) []metric.Metric {
	var metrics []metric.Metric
	for _, item := range split(text) {
		name, arguments, _ := strings.Cut(strings.TrimSuffix(item, ")"), "(")
		if m := defined.FindStringSubmatch(item); m != nil {
			name, own[m[1]] = m[1], literal(t, m[2])
		}
		if v, isOwn := own[name]; isOwn {
			compute := func(context.Context, []metric.Sample) (score.Value, error) { return v, nil }
			metrics = append(metrics, metric.Metric{Name: name, Compute: compute})
			continue
		}
		metrics = append(metrics, newMetric(t, name, parameters(name, arguments)))
	}
	return metrics
}

// parameters reads `level=0.8`, and the metric and key of grouped by their position.
func parameters(name, arguments string) json.RawMessage {
	if arguments == "" {
		return nil
	}
	given := map[string]any{}
	positions := map[string][]string{"grouped": {"metric", "group_key"}}[name]
	for i, argument := range split(arguments) {
		key, text, named := strings.Cut(argument, "=")
		if !named {
			key, text = positions[i], argument
		}
		if f, err := strconv.ParseFloat(text, 64); err == nil {
			given[key] = f
		} else {
			given[key] = text
		}
	}
	raw, _ := json.Marshal(given) // texts and numbers always have a JSON form
	return raw
}

// literal reads `[1, 2]` or `{lo: .5, hi: null}`.
func literal(t *goldentest.T, text string) score.Value {
	text = regexp.MustCompile(`(\w+):`).ReplaceAllString(text, `"$1":`)
	text = regexp.MustCompile(`([ \[:])\.(\d)`).ReplaceAllString(text, `${1}0.$2`)
	var v score.Value
	require.NoError(t, json.Unmarshal([]byte(text), &v))
	return v
}

func newMetric(t *goldentest.T, name string, params json.RawMessage) metric.Metric {
	m, err := metric.NewRegistry().New(metric.Spec{Name: name, Params: params})
	require.NoError(t, err)
	return m
}

// recorded turns results into the recorded form.
func recorded(results result.Results) map[string]any {
	orNull := func(text string) any {
		if text == "" {
			return nil
		}
		return text
	}
	scores, reductions := []any{}, []any{}
	for _, e := range results.Entries {
		metrics := map[string]any{}
		for _, m := range e.Metrics {
			metrics[m.Key] = map[string]any{"name": m.Name, "value": scoretest.Number(m.Value), "group": orNull(m.Group)}
		}
		scores = append(scores, map[string]any{
			"name": e.Name, "scorer": e.Scorer, "reducer": orNull(e.Reducer), "metrics": metrics,
			"scored_samples": e.Scored, "unscored_samples": e.Unscored,
		})
	}
	for _, r := range results.Reductions {
		values := []any{}
		for _, s := range r.Samples {
			values = append(values, []any{s.ID, scoretest.Recorded(s.Score.Value)})
		}
		reductions = append(reductions, map[string]any{"scorer": r.Scorer, "reducer": orNull(r.Reducer), "values": values})
	}
	return map[string]any{"status": "success", "scores": scores, "reductions": reductions}
}

// inOrder gives a case's values with the members of maps in the order of the file, which is that of the entries.
func inOrder(t *goldentest.T, c goldentest.Case) []any {
	t.Helper()
	document, err := orderedjson.DecodeObject(c.Raw)
	require.NoError(t, err)
	input, _ := document.Get("input")
	object, ok := input.(*orderedjson.Object)
	require.True(t, ok)
	values, _ := object.Get("values")
	list, _ := values.([]any)
	return list
}
