package metric_test

import (
	"encoding/json"
	"maps"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/goldentest"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/metric"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/scoretest"
)

func TestGoldenMetrics(t *testing.T) {
	t.Parallel()
	registry := metric.NewRegistry()
	goldentest.Run(t, "metrics", goldentest.Load(t, "eval/metrics.jsonl"), func(t *goldentest.T, c goldentest.Case) {
		if c.At("input", "metric") == "metric_wrapper" {
			wrapped(t, registry, c)
			return
		}
		value, err := compute(t, registry, c, "")
		if c.At("expect", "error") != nil {
			require.Error(t, err)
			return
		}
		require.NoError(t, err)
		t.Equal(c.At("expect"), scoretest.Recorded(value))
	})
}

// wrapped drives a case whose record does not name the metric of each group: one of those without parameters must give
// the recorded value, and if the record is an error, all must fail.
func wrapped(t *goldentest.T, registry *metric.Registry, c goldentest.Case) {
	var got []any
	for _, name := range []string{"accuracy", "stderr", "std", "var"} {
		value, err := compute(t, registry, c, name)
		if c.At("expect", "error") != nil {
			require.Error(t, err, name)
			continue
		}
		require.NoError(t, err, name)
		if t.Same(c.At("expect"), scoretest.Recorded(value)) {
			return
		}
		got = append(got, scoretest.Recorded(value))
	}
	if c.At("expect", "error") == nil {
		t.Errorf("no metric gives %v, but %v", c.At("expect"), got)
	}
}

// compute calls the metric of the case: what of its input are no samples are parameters. For each group it computes
// what the case names, or else inner.
func compute(t *goldentest.T, registry *metric.Registry, c goldentest.Case, inner string) (score.Value, error) {
	given, _ := c.At("input").(map[string]any)
	values, _ := given["values"].([]any)
	metadata, _ := given["metadata"].([]any)
	samples := make([]metric.Sample, len(values))
	for i, v := range values {
		samples[i] = metric.Sample{ID: strconv.Itoa(i + 1), Value: scoretest.Value(t, v)}
		if metadata != nil {
			raw, err := json.Marshal(metadata[i])
			require.NoError(t, err)
			samples[i].Metadata, err = orderedjson.DecodeObject(raw)
			require.NoError(t, err)
		}
	}
	params := maps.Clone(given)
	delete(params, "values")
	delete(params, "metadata")
	if inner != "" {
		params["metric"] = inner
	}
	raw, err := json.Marshal(params)
	require.NoError(t, err)
	m, err := registry.New(metric.Spec{Name: c.Op(), Params: raw})
	if err != nil {
		return score.Value{}, err
	}
	return m.Compute(t.Context(), samples)
}
