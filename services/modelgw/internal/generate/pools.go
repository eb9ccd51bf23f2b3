package generate

import (
	"context"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/evalfleet/evalfleet/pkg/limit"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// PoolMetrics shows the connections of accounts when they are asked for.
type PoolMetrics struct {
	limiter                       limit.Limiter
	most, slots, inUse, queueSize *prometheus.Desc
	pause                         *prometheus.Desc
	// measured are the pools that have metrics of their own. Requests name models freely, and so pools: the others
	// share theirs, so that made-up names hide no pool.
	measured names
}

// MeasurePools registers metrics of a limiter's pools with r; nil registers nowhere. [Admit] says which pools have
// metrics of their own.
func MeasurePools(limiter limit.Limiter, r prometheus.Registerer) *PoolMetrics {
	describe := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("evalfleet_connections_"+name, help, []string{"pool"}, nil)
	}
	p := &PoolMetrics{
		limiter:   limiter,
		most:      describe("limit", "Connections that a pool of an account may have open now, in all replicas together."),
		slots:     describe("leased", "Connections of a pool that this replica may have open now."),
		inUse:     describe("in_use", "Connections of a pool that calls of models hold in this replica."),
		queueSize: describe("waiting", "Calls of models that wait for a connection of a pool in this replica."),
		pause:     describe("pause_seconds", "How long the next call of a pool waits in this replica, since little remains of a limit of its provider."),
	}
	if r != nil {
		r.MustRegister(p)
	}
	return p
}

// note records a call through a pool. The pool has metrics of its own if the provider lists the model, or once a call
// was answered, up to maxMeasured pools.
func (p *PoolMetrics) note(key string, of *provider.Model, answered bool) {
	p.measured.has(key, answered || slices.Contains(of.Kind.Models, of.Name))
}

// Describe implements [prometheus.Collector].
func (p *PoolMetrics) Describe(all chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{p.most, p.slots, p.inUse, p.queueSize, p.pause} {
		all <- d
	}
}

// Collect implements [prometheus.Collector]. A limiter that does not answer shows nothing.
func (p *PoolMetrics) Collect(all chan<- prometheus.Metric) {
	found, err := p.limiter.Pools(context.Background())
	if err != nil {
		return
	}
	var shown []limit.Pool
	rest := limit.Pool{Key: other}
	for _, pool := range found {
		if p.measured.has(pool.Key, false) {
			shown = append(shown, pool)
			continue
		}
		rest.Limit += pool.Limit
		rest.Here.Slots += pool.Here.Slots
		rest.Here.InUse += pool.Here.InUse
		rest.Here.Waiting += pool.Here.Waiting
		rest.Here.Pause = max(rest.Here.Pause, pool.Here.Pause)
	}
	if len(shown) < len(found) {
		shown = append(shown, rest)
	}
	for _, pool := range shown {
		for _, shows := range []struct {
			what *prometheus.Desc
			n    float64
		}{
			{p.most, float64(pool.Limit)},
			{p.slots, float64(pool.Here.Slots)},
			{p.inUse, float64(pool.Here.InUse)},
			{p.queueSize, float64(pool.Here.Waiting)},
			{p.pause, pool.Here.Pause.Seconds()},
		} {
			all <- prometheus.MustNewConstMetric(shows.what, prometheus.GaugeValue, shows.n, pool.Key)
		}
	}
}
