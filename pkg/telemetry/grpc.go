package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"
)

// CallMetrics counts and times calls of a server.
type CallMetrics struct {
	duration *prometheus.HistogramVec
	inFlight *prometheus.GaugeVec
}

// NewCallMetrics registers the metrics of calls with r; nil registers nowhere.
func NewCallMetrics(r prometheus.Registerer) *CallMetrics {
	m := &CallMetrics{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "evalfleet_rpc_duration_seconds",
			Help:    "Time from the start of a call to its end, by method and code.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
		}, []string{"method", "code"}),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "evalfleet_rpc_in_flight",
			Help: "Calls that have begun and not ended, by method.",
		}, []string{"method"}),
	}
	if r != nil {
		r.MustRegister(m.duration, m.inFlight)
	}
	return m
}

// Begin counts a call; the returned function takes its end: seconds and code.
func (m *CallMetrics) Begin(method string) func(seconds float64, code string) {
	g := m.inFlight.WithLabelValues(method)
	g.Inc()
	return func(seconds float64, code string) {
		g.Dec()
		m.duration.WithLabelValues(method, code).Observe(seconds)
	}
}
