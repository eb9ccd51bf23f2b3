package result_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/metric"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/reduce"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/result"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/task/dataset"
)

// constant is a metric that always gives one value.
func constant(name string, v score.Value) metric.Metric {
	return metric.Metric{Name: name, Compute: func(context.Context, []metric.Sample) (score.Value, error) { return v, nil }}
}

// count is a metric that counts the values it sees.
func count(name string, view metric.View) metric.Metric {
	return metric.Metric{Name: name, View: view, Compute: func(_ context.Context, s []metric.Sample) (score.Value, error) {
		return score.Number(float64(len(s))), nil
	}}
}

// twoEpochs are two samples of two epochs each, with the same score under every name.
func twoEpochs(v score.Value, names ...string) []result.Epoch {
	var epochs []result.Epoch
	for range 2 {
		for id := 1; id <= 2; id++ {
			scores := map[string]score.Score{}
			for _, name := range names {
				scores[name] = score.Score{Value: v}
			}
			epochs = append(epochs, result.Epoch{ID: dataset.IntegerID(id), Scores: scores})
		}
	}
	return epochs
}

func TestUniqueNames(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []string{"match", "includes", "match1", "match2"}, result.UniqueNames([]string{"match", "includes", "match", "match"}))
	assert.Equal(t, []string{"match1", "match", "match2"}, result.UniqueNames([]string{"match1", "match", "match"}), "a name that is taken is passed over")
	assert.Equal(t, []string{"match", "match1", "match11", "match2"}, result.UniqueNames([]string{"match", "match", "match1", "match"}))
}

func TestManyScorersOfOneNameAreNamedInLittleTime(t *testing.T) {
	t.Parallel()
	const scorers = 50_000
	named := make(chan []string, 1)
	go func() { named <- result.UniqueNames(slices.Repeat([]string{"match"}, scorers)) }()
	names := waittest.For(t, named, "the names")
	assert.Equal(t, "match"+strconv.Itoa(scorers-1), names[scorers-1])
}

func TestScoresOfASolverGetTheExtraMetrics(t *testing.T) {
	t.Parallel()
	results, err := result.Compute(t.Context(), result.Input{
		Scorers: []result.Scorer{{Name: "match", Metrics: result.Metrics{Plain: []metric.Metric{count("n", metric.Auto)}}}},
		Extra:   result.Metrics{Plain: []metric.Metric{constant("extra", score.Number(7))}},
		Epochs:  twoEpochs(score.Text("C"), "match", "zeta", "alpha"),
	})
	require.NoError(t, err)
	names := []string{}
	for _, e := range results.Entries {
		names = append(names, e.Name)
	}
	assert.Equal(t, []string{"match", "alpha", "zeta"}, names)
	assert.Equal(t, "extra", results.Entries[1].Metrics[0].Key)
}

func TestViews(t *testing.T) {
	t.Parallel()
	both := result.Metrics{Plain: []metric.Metric{count("reduced", metric.Reduced), count("auto", metric.Auto), count("unreduced", metric.Unreduced)}}
	in := result.Input{Scorers: []result.Scorer{{Name: "s", Metrics: both}}, Epochs: twoEpochs(score.Number(1), "s")}
	results, err := result.Compute(t.Context(), in)
	require.NoError(t, err)
	require.Len(t, results.Entries, 2)
	assert.Equal(t, "mean", results.Entries[0].Reducer, "the default reducer is named beside unreduced metrics")
	assert.Equal(t, 2, results.Entries[0].Scored)
	assert.Empty(t, results.Entries[1].Reducer)
	assert.Equal(t, 4, results.Entries[1].Scored, "every epoch")

	in.Reducers = []reduce.Reducer{}
	_, err = result.Compute(t.Context(), in)
	require.ErrorContains(t, err, "scorer s: a metric needs reduced scores")
	in.Scorers[0].Metrics.Plain = both.Plain[1:]
	results, err = result.Compute(t.Context(), in)
	require.NoError(t, err)
	require.Len(t, results.Entries, 1)
	assert.Equal(t, 4, results.Entries[0].Scored)
	assert.Empty(t, results.Reductions)
}

func TestKeysOfMetricsAreUnique(t *testing.T) {
	t.Parallel()
	part := func(key string) score.Entry { return score.Entry{Key: key, Value: score.Number(1)} }
	results, err := result.Compute(t.Context(), result.Input{
		Scorers: []result.Scorer{{Name: "s", Metrics: result.Metrics{Plain: []metric.Metric{
			constant("a", score.Number(1)), constant("a", score.Number(2)), constant("m", score.Map(part("a"), part("a3"))), constant("a", score.Number(3)),
			constant("l", score.List(score.Number(1), score.Value{}, score.Number(3))), constant("l", score.List(score.Number(1))),
		}}}},
		Epochs: twoEpochs(score.Number(1), "s"),
	})
	require.NoError(t, err)
	keys := []string{}
	for _, m := range results.Entries[0].Metrics {
		keys = append(keys, m.Key)
	}
	assert.Equal(t, []string{"a", "a2", "a3", "a32", "a33", "l-1", "l-3", "l-12"}, keys)
}

func TestGlobsGiveEachKeyItsMetricsOnce(t *testing.T) {
	t.Parallel()
	v := score.Map(score.Entry{Key: "x_1", Value: score.Number(1)}, score.Entry{Key: "y", Value: score.Unscored()})
	byKey := []result.KeyMetrics{
		{Glob: "x_*", Metrics: []metric.Metric{count("n", metric.Auto)}},
		{Glob: "*", Metrics: []metric.Metric{count("n", metric.Auto), constant("c", score.Number(2))}},
		{Glob: "z", Metrics: []metric.Metric{count("n", metric.Auto)}},
	}
	in := result.Input{Scorers: []result.Scorer{{Name: "s", Metrics: result.Metrics{ByKey: byKey}}}, Epochs: twoEpochs(v, "s")}
	results, err := result.Compute(t.Context(), in)
	require.NoError(t, err)
	require.Len(t, results.Entries, 2)
	assert.Equal(t, "x_1", results.Entries[0].Name)
	assert.Len(t, results.Entries[0].Metrics, 2)
	assert.Equal(t, "y", results.Entries[1].Name)
	assert.Equal(t, 2, results.Entries[1].Unscored)
	assert.True(t, math.IsNaN(results.Entries[1].Metrics[0].Value), "nothing was scored under y")
}

func TestMetricsByKeyNeedMaps(t *testing.T) {
	t.Parallel()
	byKey := result.Metrics{ByKey: []result.KeyMetrics{{Glob: "a", Metrics: []metric.Metric{count("n", metric.Auto)}}}}
	_, err := result.Compute(t.Context(), result.Input{Scorers: []result.Scorer{{Name: "s", Metrics: byKey}}, Epochs: twoEpochs(score.Text("C"), "s")})
	require.ErrorContains(t, err, "metrics by key need map values, but sample 1 has")
}

func TestErrorsNameTheScorer(t *testing.T) {
	t.Parallel()
	fails := metric.Metric{Name: "m", Compute: func(context.Context, []metric.Sample) (score.Value, error) {
		return score.Value{}, errors.New("no metadata")
	}}
	in := result.Input{Scorers: []result.Scorer{{Name: "s", Metrics: result.Metrics{Plain: []metric.Metric{fails}}}}, Epochs: twoEpochs(score.Number(1), "s")}
	_, err := result.Compute(t.Context(), in)
	require.ErrorContains(t, err, "scorer s: no metadata")
	in.Scorers[0].Metrics.Plain[0] = constant("m", score.Text("x"))
	_, err = result.Compute(t.Context(), in)
	require.ErrorContains(t, err, `metric m: it gave "x", which is no number`)
	in.Epochs = twoEpochs(score.Unscored(), "s")
	in.Scorers[0].Metrics.Plain[0] = fails
	results, err := result.Compute(t.Context(), in)
	require.NoError(t, err, "a metric that cannot do with nothing is unscored")
	assert.True(t, math.IsNaN(results.Entries[0].Metrics[0].Value))
}

func TestWarnsOfValuesThatAreNoNumbers(t *testing.T) {
	t.Parallel()
	in := result.Input{
		Scorers: []result.Scorer{{Name: "s", Metrics: result.Metrics{Plain: []metric.Metric{count("n", metric.Auto)}}}},
		Epochs:  twoEpochs(score.Text("red"), "s"),
	}
	results, err := result.Compute(t.Context(), in)
	require.NoError(t, err)
	assert.Equal(t, []string{`scorer s: 4 values, such as "red", are no numbers and count 0`}, results.Warnings)
	in.Scorers[0].Metrics.Plain[0].View = metric.Unreduced
	results, err = result.Compute(t.Context(), in)
	require.NoError(t, err)
	assert.Empty(t, results.Warnings, "a frequency counts names")
}

func TestReductionsKeepTheOrderAndTypeOfIDs(t *testing.T) {
	t.Parallel()
	one := map[string]score.Score{"s": {Value: score.Number(1)}}
	results, err := result.Compute(t.Context(), result.Input{
		Scorers: []result.Scorer{{Name: "s", Metrics: result.Metrics{Plain: []metric.Metric{count("n", metric.Auto)}}}},
		Epochs: []result.Epoch{
			{ID: dataset.TextID("b"), Scores: one}, {ID: dataset.IntegerID(7), Scores: one}, {ID: dataset.TextID("b"), Scores: one}, {ID: dataset.TextID("c")},
		},
	})
	require.NoError(t, err)
	require.Len(t, results.Reductions[0].Samples, 2, "a sample without this score is left out")
	assert.Equal(t, dataset.TextID("b"), results.Reductions[0].Samples[0].ID)
	assert.True(t, results.Reductions[0].Samples[1].ID.IsInteger())
}

// Keys are counted, and not compared with each other: a metric may have as many parts as there are samples.
func TestManyPartsAreNamedInLittleTime(t *testing.T) {
	t.Parallel()
	const samples = 100_000
	frequency, err := metric.NewRegistry().New(metric.Spec{Name: "frequency"})
	require.NoError(t, err)
	in := result.Input{Scorers: []result.Scorer{{Name: "s", Metrics: result.Metrics{Plain: []metric.Metric{frequency, frequency}}}}}
	for i := range samples {
		in.Epochs = append(in.Epochs, result.Epoch{ID: dataset.IntegerID(i), Scores: map[string]score.Score{"s": {Value: score.Text("v" + strconv.Itoa(i) + ".")}}})
	}
	computed := make(chan result.Results, 1)
	go func() {
		results, err := result.Compute(t.Context(), in)
		assert.NoError(t, err)
		computed <- results
	}()
	metrics := waittest.For(t, computed, "the results").Entries[0].Metrics
	require.Len(t, metrics, 2*samples)
	assert.Equal(t, "v7.", metrics[7].Key)
	assert.Equal(t, "v7.2", metrics[samples+7].Key)
}

func TestResultsEndWithTheirContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cut := metric.Metric{Name: "cut", Compute: func(context.Context, []metric.Sample) (score.Value, error) { cancel(); return score.Number(1), nil }}
	_, err := result.Compute(ctx, result.Input{
		Scorers: []result.Scorer{{Name: "s", Metrics: result.Metrics{Plain: []metric.Metric{cut, cut}}}},
		Epochs:  twoEpochs(score.Number(1), "s"),
	})
	require.ErrorIs(t, err, context.Canceled)
}
