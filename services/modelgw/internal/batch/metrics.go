package batch

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics shows what is pending when it is asked for.
type metrics struct {
	store                         Store
	riders, batches, oldest, over *prometheus.Desc
}

// Measure registers metrics of the batches in a store with r; nil registers nowhere.
func Measure(store Store, r prometheus.Registerer) {
	if r == nil {
		return
	}
	describe := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("evalfleet_batch"+name, help, labels, nil)
	}
	r.MustRegister(&metrics{
		store:   store,
		riders:  describe("_calls_pending", "Calls of models that wait for a batch: for one to be sent (waiting), or for its answers (sent).", "state"),
		batches: describe("es_pending", "Batches that are at a provider or about to be sent."),
		oldest:  describe("_oldest_call_seconds", "How long the oldest call of a model has waited for a batch."),
		over:    describe("_calls_ended", "Calls of the batches of the last week, by how they ended at the provider: completed or failed.", "outcome"),
	})
}

// Describe implements [prometheus.Collector].
func (m *metrics) Describe(all chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.riders, m.batches, m.oldest, m.over} {
		all <- d
	}
}

// measured bounds the batches that are counted, the newest ones.
const measured = 1000

// Collect implements [prometheus.Collector]. A store that does not answer shows nothing.
func (m *metrics) Collect(all chan<- prometheus.Metric) {
	ctx := context.Background()
	riders, err := m.store.Pending(ctx)
	if err != nil {
		return
	}
	batches, err := m.store.List(ctx, "", "", measured)
	if err != nil {
		return
	}
	states, oldest := map[State]int{}, time.Duration(0)
	for _, r := range riders {
		states[r.State]++
		oldest = max(oldest, time.Since(r.Created))
	}
	open, completed, failed := 0, 0, 0
	for _, b := range batches {
		if b.Phase != Ended {
			open++
		}
		completed, failed = completed+b.Completed, failed+b.Failed
	}
	show := func(d *prometheus.Desc, n float64, labels ...string) {
		all <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, n, labels...)
	}
	show(m.riders, float64(states[Waiting]), "waiting")
	show(m.riders, float64(states[Sent]), "sent")
	show(m.batches, float64(open))
	show(m.oldest, oldest.Seconds())
	show(m.over, float64(completed), "completed")
	show(m.over, float64(failed), "failed")
}
