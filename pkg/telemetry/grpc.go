package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"
)

// CallMetrics counts and times calls of a server.
type CallMetrics struct {
	service  string
	duration *prometheus.HistogramVec
	inFlight *prometheus.GaugeVec
}

// NewCallMetrics registers the metrics of calls with r; nil registers nowhere.
func NewCallMetrics(r prometheus.Registerer) *CallMetrics {
	m := &CallMetrics{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "evalfleet_rpc_duration_seconds",
			Help:    "Time from the start of a call to its end, by the service that took it, method and code.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
		}, []string{"service", "method", "code"}),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "evalfleet_rpc_in_flight",
			Help: "Calls that have begun and not ended, by the service that took them and method.",
		}, []string{"service", "method"}),
	}
	if r != nil {
		r.MustRegister(m.duration, m.inFlight)
	}
	return m
}

// Of returns m for the calls of one service. Within one process a call to the gateway is also one to the service behind
// it.
func (m *CallMetrics) Of(service string) *CallMetrics {
	return &CallMetrics{service: service, duration: m.duration, inFlight: m.inFlight}
}

// Begin counts a call; the returned function takes its end: seconds and code.
func (m *CallMetrics) Begin(method string) func(seconds float64, code string) {
	g := m.inFlight.WithLabelValues(m.service, method)
	g.Inc()
	return func(seconds float64, code string) {
		g.Dec()
		m.duration.WithLabelValues(m.service, method, code).Observe(seconds)
	}
}
