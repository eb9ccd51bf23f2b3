package eval_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
)

// Such a metric fails when all samples are done and paid for, and no resumed evaluation gets it right.
func TestAnEvaluationWithoutTheMetadataOfAMetricIsRefused(t *testing.T) {
	t.Parallel()
	b := start(t, nil)
	const missing = `sample 2: metadata "topik" is missing: every sample needs one to be clustered; did you mean topic? sample 2 has level, topic`
	for name, tt := range map[string]struct {
		metric *agentv1.MetricRef
		says   string
	}{
		"stderr":               {&agentv1.MetricRef{Name: "stderr", ParamsJson: `{"cluster":"topik"}`}, missing},
		"ci":                   {&agentv1.MetricRef{Name: "ci", ParamsJson: `{"cluster":"topik"}`}, missing},
		"ci_wilson":            {&agentv1.MetricRef{Name: "ci_wilson", ParamsJson: `{"cluster":"topik"}`}, missing},
		"grouped":              {&agentv1.MetricRef{Name: "grouped", ParamsJson: `{"metric":"mean","group_key":"topik"}`}, `sample 2 has no metadata "topik": every sample needs it to be grouped; did you mean topic?`},
		"a metric of groups":   {&agentv1.MetricRef{Name: "grouped", ParamsJson: `{"metric":{"name":"stderr","params":{"cluster":"topik"}},"group_key":"topic"}`}, missing},
		"a metric of one key":  {&agentv1.MetricRef{Name: "aggregate", ParamsJson: `{"key":"a","agg":{"name":"stderr","params":{"cluster":"topik"}}}`}, missing},
		"a list is no cluster": {&agentv1.MetricRef{Name: "stderr", ParamsJson: `{"cluster":"level"}`}, `sample 2: metadata "level" is a list or an object`},
	} {
		for _, ofScorer := range []bool{true, false} {
			s := spec(3)
			samples := s.GetDataset().GetInline().GetSamples()
			samples[0].MetadataJson = `{"topik":"a","level":1,"topic":"a"}`
			samples[1].MetadataJson = `{"level":[1],"topic":"b"}`
			field := "spec.metrics[0]"
			if s.Metrics = []*agentv1.MetricRef{tt.metric}; ofScorer {
				s.Metrics, s.Scorers[0].Metrics, field = nil, s.Metrics, "spec.scorers[0].metrics[0]"
			}
			for _, check := range []bool{true, false} {
				_, err := b.engine.Create(t.Context(), "default", s, "", check)
				require.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST), "%s: %v", name, err)
				require.ErrorContains(t, err, field)
				require.ErrorContains(t, err, tt.says, name)
			}
		}
	}
	s := spec(2)
	s.Metrics = []*agentv1.MetricRef{{Name: "stderr", ParamsJson: `{"cluster":"topic"}`}}
	_, err := b.engine.Create(t.Context(), "default", s, "", true)
	require.ErrorContains(t, err, "sample 1 has none: name the columns that hold it, `dataset: {fields: {metadata: [topic]}}`")
	rows, err := b.journals.List(t.Context(), journal.Query{})
	require.NoError(t, err)
	assert.Empty(t, rows, "nothing was made")
}

func TestAnEvaluationWithTheMetadataOfItsMetricsIsMade(t *testing.T) {
	t.Parallel()
	b := start(t, nil)
	s := spec(2)
	for i, sample := range s.GetDataset().GetInline().GetSamples() {
		sample.MetadataJson = []string{`{"topic":"a"}`, `{"topic":null,"group":false}`}[i]
	}
	s.Metrics = []*agentv1.MetricRef{
		{Name: "stderr"},
		{Name: "accuracy"},
		{Name: "grouped", ParamsJson: `{"metric":"mean","group_key":"topic"}`},
		// Whether such a sample is left out is known when it is scored.
		{Name: "aggregate", ParamsJson: `{"key":"a","agg":{"name":"stderr","params":{"cluster":"group"}},"on_missing":"skip"}`},
	}
	_, err := b.engine.Create(t.Context(), "default", s, "", true)
	require.NoError(t, err)
}
