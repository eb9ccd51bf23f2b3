package metric_test

import (
	"encoding/json"
	"maps"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/goldentest"
	"github.com/evalfleet/evalfleet/pkg/orderedjson"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/metric"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/scoretest"
)

func TestGoldenMetrics(t *testing.T) {
	t.Parallel()
	registry := metric.NewRegistry()
	goldentest.Run(t, "metrics", goldentest.Load(t, "eval/metrics.jsonl"), func(t *goldentest.T, c goldentest.Case) {
		if c.At("input", "metric") == "metric_wrapper" {
			t.Skip("the case does not tell which metric is computed for each group")
		}
		value, err := compute(t, registry, c)
		if c.At("expect", "error") != nil {
			require.Error(t, err)
			return
		}
		require.NoError(t, err)
		t.Equal(c.At("expect"), scoretest.Recorded(value))
	})
}

// compute calls the metric of the case: what of its input are no samples are parameters.
func compute(t *goldentest.T, registry *metric.Registry, c goldentest.Case) (score.Value, error) {
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
	raw, err := json.Marshal(params)
	require.NoError(t, err)
	m, err := registry.New(metric.Spec{Name: c.Op(), Params: raw})
	if err != nil {
		return score.Value{}, err
	}
	return m.Compute(samples)
}
