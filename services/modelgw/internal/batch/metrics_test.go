package batch_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/effect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/batch"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/batch/memory"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

func TestMetricsShowWhatWaits(t *testing.T) {
	t.Parallel()
	store, registry := &memory.Store{}, prometheus.NewRegistry()
	batch.Measure(store, registry)
	batch.Measure(store, nil)
	group := batch.Group{Ref: ref, Header: http.Header{}}
	var ids []int64
	for _, body := range []string{"a", "b", "c", "d"} {
		r, err := store.Join(t.Context(), group, &modelv1.BatchSetting{}, effect.Key{Project: "p", ID: "r/" + body}, "", []byte(body))
		require.NoError(t, err)
		ids = append(ids, r.ID)
	}
	sent, err := store.Begin(t.Context(), batch.Batch{ID: "b1", Group: group.ID(), Project: "p", Created: time.Now()}, ids[:3])
	require.NoError(t, err)
	_, err = store.Settle(t.Context(), "b1", map[int64]provider.BatchResult{ids[0]: {Status: http.StatusOK}})
	require.NoError(t, err)
	sent.Completed, sent.Failed = 1, 0
	require.NoError(t, store.Update(t.Context(), sent))
	found, err := registry.Gather()
	require.NoError(t, err)
	shown := map[string]float64{}
	for _, family := range found {
		for _, metric := range family.GetMetric() {
			name := family.GetName()
			for _, label := range metric.GetLabel() {
				name += " " + label.GetValue()
			}
			shown[name] = metric.GetGauge().GetValue()
		}
	}
	assert.GreaterOrEqual(t, shown["evalfleet_batch_oldest_call_seconds"], 0.0)
	delete(shown, "evalfleet_batch_oldest_call_seconds")
	assert.Equal(t, map[string]float64{
		"evalfleet_batches_pending": 1, "evalfleet_batch_calls_pending waiting": 1, "evalfleet_batch_calls_pending sent": 2,
		"evalfleet_batch_calls_ended completed": 1, "evalfleet_batch_calls_ended failed": 0,
	}, shown)
}
