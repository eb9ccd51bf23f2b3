package generate

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/evalfleet/evalfleet/pkg/limit"
)

// pools shows the connections of accounts when they are asked for.
type pools struct {
	limiter                limit.Limiter
	most, inUse, queueSize *prometheus.Desc
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
		most:      describe("limit", "Connections that a pool of an account may have open now."),
		inUse:     describe("in_use", "Connections of a pool that calls of models hold."),
		queueSize: describe("waiting", "Calls of models that wait for a connection of a pool."),
	})
}

// Describe implements [prometheus.Collector].
func (p *pools) Describe(all chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{p.most, p.inUse, p.queueSize} {
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
			sum.Limit, sum.InUse, sum.Waiting = sum.Limit+pool.Limit, sum.InUse+pool.InUse, sum.Waiting+pool.Waiting
		}
		shown = append(shown[:len(shown):len(shown)], sum)
	}
	for _, pool := range shown {
		for _, shows := range []struct {
			what *prometheus.Desc
			n    int
		}{{p.most, pool.Limit}, {p.inUse, pool.InUse}, {p.queueSize, pool.Waiting}} {
			all <- prometheus.MustNewConstMetric(shows.what, prometheus.GaugeValue, float64(shows.n), pool.Key)
		}
	}
}
