package metric_test

import (
	"context"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/metric"
)

func newMetric(t *testing.T, name, params string) metric.Metric {
	t.Helper()
	m, err := metric.NewRegistry().New(metric.Spec{Name: name, Params: json.RawMessage(params)})
	require.NoError(t, err)
	return m
}

// samples makes samples of values that alternate between the groups a and b.
func samples(values ...score.Value) []metric.Sample {
	all := make([]metric.Sample, len(values))
	for i, v := range values {
		metadata := &orderedjson.Object{}
		metadata.Set("g", []any{"a", "b"}[i%2])
		all[i] = metric.Sample{ID: string(rune('1' + i)), Value: v, Metadata: metadata}
	}
	return all
}

func number(t *testing.T, v score.Value) float64 {
	t.Helper()
	require.Equal(t, score.KindNumber, v.Kind())
	f, _ := v.Float()
	return f
}

func TestRegistry(t *testing.T) {
	t.Parallel()
	r := metric.NewRegistry()
	_, err := r.New(metric.Spec{Name: "acuracy"})
	require.ErrorContains(t, err, `unknown metric "acuracy"; did you mean accuracy? known: accuracy, aggregate, bootstrap_stderr, categorical, ci, ci_wilson, frequency, grouped`)
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_SCORER_NOT_FOUND))
	for _, d := range r.Definitions() {
		assert.NotEmpty(t, d.Description)
		assert.True(t, json.Valid(d.Params.Schema()), d.Name)
	}
	m := newMetric(t, "categorical", ``)
	assert.Equal(t, "frequency", m.Name)
	assert.Equal(t, metric.Unreduced, m.View)
}

// The time is not that of two metrics for each level.
func TestMetricsMayNest(t *testing.T) {
	t.Parallel()
	const levels = 20
	begun := time.Now()
	m := newMetric(t, "aggregate", strings.Repeat(`{"key":"k","agg":{"name":"aggregate","params":`, levels)+
		`{"key":"k","agg":{"name":"grouped","params":{"group_key":"g","metric":{"name":"stderr","params":{"cluster":"topic"}}}}}`+strings.Repeat(`}}`, levels))
	require.ErrorContains(t, m.Check(samples(score.Number(1))[0]), `metric stderr: sample 1: metadata "topic" is missing`)
	require.ErrorContains(t, m.Check(metric.Sample{ID: "2"}), `sample 2 has no metadata "g"`)
	assert.Less(t, time.Since(begun), waittest.Bound)
}

func TestParametersAreStrict(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, params, want string }{
		{"accuracy", `{"x":1}`, "metric accuracy: params_json/x: is not known; there are no parameters"},
		{"ci", `{"level":1}`, "must lie between 0 and 1"},
		{"ci", `{"method":"z"}`, `allowed are "t", "bootstrap"`},
		{"ci_wilson", `{"level":0}`, "must lie between 0 and 1"},
		{"bootstrap_stderr", `{"num_samples":0}`, "must be 1 to 100000"},
		{"grouped", `{"group_key":"g"}`, "params_json/metric: is required"},
		{"grouped", `{"group_key":"g","metric":"nosuch"}`, `unknown metric "nosuch"`},
		{"grouped", `{"group_key":"g","metric":{"name":"ci","parms":{}}}`, "parms"},
		{"aggregate", `{"key":"a","agg":"mean","on_missing":"ignore"}`, `allowed are "error", "skip", "zero"`},
		{"krippendorff_alpha", `{"level":"ratio"}`, "allowed are"},
	} {
		_, err := metric.NewRegistry().New(metric.Spec{Name: c.name, Params: json.RawMessage(c.params)})
		require.ErrorContains(t, err, c.want)
	}
}

func TestSpecIsANameOrAnObject(t *testing.T) {
	t.Parallel()
	var specs []metric.Spec
	require.NoError(t, json.Unmarshal([]byte(`["accuracy",{"name":"ci","params":{"level":0.8}}]`), &specs))
	assert.Equal(t, []metric.Spec{{Name: "accuracy"}, {Name: "ci", Params: json.RawMessage(`{"level":0.8}`)}}, specs)
	require.Error(t, json.Unmarshal([]byte(`[1]`), &specs))
}

func TestQuantilesOfStudent(t *testing.T) {
	t.Parallel()
	// Two-sided 95 % critical values from published tables, by the interval they make around 0.5 with a known error.
	for n, critical := range map[int]float64{2: 12.706, 3: 4.303, 10: 2.262, 30: 2.045, 100: 1.984} {
		values := make([]score.Value, n)
		for i := range values {
			values[i] = score.Number(float64(i % 2))
		}
		se, err := newMetric(t, "stderr", ``).Compute(t.Context(), samples(values...))
		require.NoError(t, err)
		mean, err := newMetric(t, "mean", ``).Compute(t.Context(), samples(values...))
		require.NoError(t, err)
		ci, err := newMetric(t, "ci", ``).Compute(t.Context(), samples(values...))
		require.NoError(t, err)
		upper, _ := ci.Lookup("upper")
		assert.InDelta(t, critical, (number(t, upper)-number(t, mean))/number(t, se), 0.0006, "n = %d", n)
	}
}

func TestResamplingIsRepeatable(t *testing.T) {
	t.Parallel()
	all := samples(score.Number(0.1), score.Number(0.9), score.Number(0.4), score.Number(0.5))
	for _, name := range []string{"bootstrap_stderr", "ci"} {
		params := ``
		if name == "ci" {
			params = `{"method":"bootstrap","cluster":"g"}`
		}
		first, err := newMetric(t, name, params).Compute(t.Context(), all)
		require.NoError(t, err)
		second, err := newMetric(t, name, params).Compute(t.Context(), all)
		require.NoError(t, err)
		assert.True(t, first.Equal(second))
	}
	ci, err := newMetric(t, "ci", `{"method":"bootstrap"}`).Compute(t.Context(), all)
	require.NoError(t, err)
	lower, _ := ci.Lookup("lower")
	upper, _ := ci.Lookup("upper")
	assert.Less(t, number(t, lower), 0.475)
	assert.Greater(t, number(t, upper), 0.475)
}

func TestSharesLieBetweenZeroAndOne(t *testing.T) {
	t.Parallel()
	for _, f := range []float64{-0.1, 1.1, math.NaN()} {
		_, err := newMetric(t, "ci_wilson", ``).Compute(t.Context(), samples(score.Number(0.5), score.Number(f)))
		require.ErrorContains(t, err, "sample 2 has the value")
	}
}

func TestClustersNeedMetadata(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"stderr", "ci", "ci_wilson"} {
		_, err := newMetric(t, name, `{"cluster":"h"}`).Compute(t.Context(), samples(score.Number(1)))
		require.ErrorContains(t, err, `sample 1: metadata "h" is missing`)
	}
	_, err := newMetric(t, "ci_wilson", `{"cluster":"g"}`).Compute(t.Context(), samples(score.Number(1)))
	require.ErrorContains(t, err, "at least two are needed")
	_, err = newMetric(t, "stderr", `{"cluster":"g"}`).Compute(t.Context(), []metric.Sample{{ID: "1"}})
	require.ErrorContains(t, err, "is missing", "a sample without metadata")
}

func TestGrouped(t *testing.T) {
	t.Parallel()
	all := samples(score.Text("C"), score.Text("I"), score.Text("I"))
	v, err := newMetric(t, "grouped", `{"metric":"mean","group_key":"g","name_template":"group {group_name}"}`).Compute(t.Context(), all)
	require.NoError(t, err)
	assert.Equal(t, `{"group a":0.5,"group b":0.0,"all":0.3333333333333333}`, v.Text())
	_, err = newMetric(t, "grouped", `{"metric":"mean","group_key":"g","name_template":"x"}`).Compute(t.Context(), all)
	require.ErrorContains(t, err, `two groups are named "x"`)
	_, err = newMetric(t, "grouped", `{"metric":"mean","group_key":"h"}`).Compute(t.Context(), all)
	require.ErrorContains(t, err, `sample 1 has no metadata "h"`)
}

func TestAggregate(t *testing.T) {
	t.Parallel()
	value := func(key string, v score.Value) score.Value { return score.Map(score.Entry{Key: key, Value: v}) }
	all := samples(value("a", score.Number(1)), value("b", score.Number(1)), value("a", score.Unscored()), score.Unscored())
	_, err := newMetric(t, "aggregate", `{"key":"a","agg":"mean"}`).Compute(t.Context(), all)
	require.ErrorContains(t, err, `sample 2 has no value for key "a"`)
	skipped, err := newMetric(t, "aggregate", `{"key":"a","agg":"mean","on_missing":"skip"}`).Compute(t.Context(), all)
	require.NoError(t, err)
	assert.InDelta(t, 1, number(t, skipped), 0)
	zero, err := newMetric(t, "aggregate", `{"key":"a","agg":"mean","on_missing":"zero"}`).Compute(t.Context(), all)
	require.NoError(t, err)
	assert.InDelta(t, 0.5, number(t, zero), 0)
	none, err := newMetric(t, "aggregate", `{"key":"c","agg":"mean","on_missing":"skip"}`).Compute(t.Context(), all)
	require.NoError(t, err)
	assert.True(t, none.IsUnscored())
	assert.Equal(t, score.KindMap, all[0].Value.Kind(), "the samples stay as they are")
}

func TestFrequency(t *testing.T) {
	t.Parallel()
	all := samples(score.Text("red"), score.Text("blue"), score.Text("red"))
	v, err := newMetric(t, "frequency", `{"categories":["green","blue"],"normalize":false}`).Compute(t.Context(), all)
	require.NoError(t, err)
	assert.Equal(t, `{"green":0.0,"blue":1.0,"red":2.0}`, v.Text())
	_, err = newMetric(t, "frequency", ``).Compute(t.Context(), samples(score.List()))
	require.ErrorContains(t, err, "for each key instead")
}

func TestKrippendorffAlpha(t *testing.T) {
	t.Parallel()
	ratings := func(names ...string) score.Value {
		items := make([]score.Value, len(names))
		for i, name := range names {
			items[i] = score.Text(name)
		}
		return score.List(items...)
	}
	v, err := newMetric(t, "krippendorff_alpha", ``).Compute(t.Context(), samples(ratings("a", "a"), ratings("b", "b"), ratings("a")))
	require.NoError(t, err)
	assert.InDelta(t, 1, number(t, v), 1e-12, "agreement")
	v, err = newMetric(t, "krippendorff_alpha", ``).Compute(t.Context(), samples(ratings("a", "b"), ratings("b", "a")))
	require.NoError(t, err)
	assert.Negative(t, number(t, v), "disagreement")
	v, err = newMetric(t, "krippendorff_alpha", ``).Compute(t.Context(), samples(score.Text("a")))
	require.NoError(t, err)
	assert.True(t, v.IsUnscored())
	_, err = newMetric(t, "krippendorff_alpha", `{"level":"ordinal"}`).Compute(t.Context(), samples(ratings("a", "b")))
	require.ErrorContains(t, err, "the rating a is no number")
}

// Groups and ratings are counted, and not compared with each other: there may be as many as there are samples.
func TestManyGroupsAndRatingsTakeLittleTime(t *testing.T) {
	t.Parallel()
	const n = 100_000
	groups, ratings := make([]metric.Sample, n), make([]metric.Sample, n)
	for i := range n {
		own := &orderedjson.Object{}
		own.Set("g", "group "+strconv.Itoa(i))
		groups[i] = metric.Sample{ID: strconv.Itoa(i), Value: score.Number(1), Metadata: own}
		ratings[i] = metric.Sample{ID: strconv.Itoa(i), Value: score.List(score.Text(strconv.Itoa(i)), score.Text("x"+strconv.Itoa(i)))}
	}
	computed := make(chan score.Value, 2)
	work := map[*[]metric.Sample]metric.Metric{
		&groups:  newMetric(t, "grouped", `{"metric": "mean", "group_key": "g"}`),
		&ratings: newMetric(t, "krippendorff_alpha", ``),
	}
	go func() {
		for given, m := range work {
			v, err := m.Compute(t.Context(), *given)
			assert.NoError(t, err)
			computed <- v
		}
	}()
	first, second := waittest.For(t, computed, "a metric"), waittest.For(t, computed, "a metric")
	assert.Equal(t, n+1, len(first.Entries())+len(second.Entries()))
}

// A template and the names of groups are each within their bounds, and may together be far too much.
func TestNamesOfGroupsAreBounded(t *testing.T) {
	t.Parallel()
	own := &orderedjson.Object{}
	own.Set("g", strings.Repeat("x", 1<<20))
	_, err := newMetric(t, "grouped", `{"metric": "mean", "group_key": "g", "name_template": "`+strings.Repeat("{group_name}", 17)+`"}`).
		Compute(t.Context(), []metric.Sample{{ID: "1", Value: score.Number(1), Metadata: own}})
	require.ErrorContains(t, err, "metric grouped: the names of the groups: the text would have more than 16777216 bytes")
}

func TestResamplingEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, params := range map[string]string{"bootstrap_stderr": ``, "ci": `{"method": "bootstrap"}`} {
		_, err := newMetric(t, name, params).Compute(ctx, samples(score.Number(1), score.Number(2)))
		assert.ErrorIs(t, err, context.Canceled, name)
	}
}
