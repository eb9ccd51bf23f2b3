package generate

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/evalfleet/evalfleet/pkg/limit"
)

// pools shows the connections of accounts when they are asked for.
type pools struct {
	limiter                       limit.Limiter
	most, slots, inUse, queueSize *prometheus.Desc
}

// MeasurePools registers metrics of a limiter's pools with r; nil registers nowhere.
func MeasurePools(limiter limit.Limiter, r prometheus.Registerer) {
	if r == nil {
		return
	}
	describe := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("evalfleet_connections_"+name, help, []string{"pool"}, nil)
	}
	r.MustRegister(&pools{
		limiter:   limiter,
		most:      describe("limit", "Connections that a pool of an account may have open now, in all replicas together."),
		slots:     describe("leased", "Connections of a pool that this replica may have open now."),
		inUse:     describe("in_use", "Connections of a pool that calls of models hold in this replica."),
		queueSize: describe("waiting", "Calls of models that wait for a connection of a pool in this replica."),
	})
}

// Describe implements [prometheus.Collector].
func (p *pools) Describe(all chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{p.most, p.slots, p.inUse, p.queueSize} {
		all <- d
	}
}

// Collect implements [prometheus.Collector]. A limiter that does not answer shows nothing. Pools beyond the first
// maxMeasured are one: a provider may have a pool for each model.
func (p *pools) Collect(all chan<- prometheus.Metric) {
	found, err := p.limiter.Pools(context.Background())
	if err != nil {
		return
	}
	shown := found[:min(len(found), maxMeasured)]
	if rest := found[len(shown):]; len(rest) > 0 {
		sum := limit.Pool{Key: other}
		for _, pool := range rest {
			sum.Limit += pool.Limit
			sum.Here = limit.Share{Slots: sum.Here.Slots + pool.Here.Slots, InUse: sum.Here.InUse + pool.Here.InUse, Waiting: sum.Here.Waiting + pool.Here.Waiting}
		}
		shown = append(shown[:len(shown):len(shown)], sum)
	}
	for _, pool := range shown {
		for _, shows := range []struct {
			what *prometheus.Desc
			n    int
		}{{p.most, pool.Limit}, {p.slots, pool.Here.Slots}, {p.inUse, pool.Here.InUse}, {p.queueSize, pool.Here.Waiting}} {
			all <- prometheus.MustNewConstMetric(shows.what, prometheus.GaugeValue, float64(shows.n), pool.Key)
		}
	}
}
