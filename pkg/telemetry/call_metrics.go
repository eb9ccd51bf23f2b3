package telemetry

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
)

// CallMetrics counts and times calls of a server. It is safe for concurrent use.
type CallMetrics struct {
	service  string
	duration *prometheus.HistogramVec
	inFlight *prometheus.GaugeVec

	methods sync.Map // *methodSeries by the method's name
}

// methodSeries are the series that nearly every call of a method needs: to look for them takes longer than to count.
type methodSeries struct {
	inFlight prometheus.Gauge
	ok       func() prometheus.Observer // begins with the first success
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
	of := m.of(method)
	of.inFlight.Inc()
	return func(seconds float64, code string) {
		of.inFlight.Dec()
		if code == codes.OK.String() {
			of.ok().Observe(seconds)
			return
		}
		m.duration.WithLabelValues(m.service, method, code).Observe(seconds)
	}
}

func (m *CallMetrics) of(method string) *methodSeries {
	if known, ok := m.methods.Load(method); ok {
		return known.(*methodSeries)
	}
	known, _ := m.methods.LoadOrStore(method, &methodSeries{
		inFlight: m.inFlight.WithLabelValues(m.service, method),
		ok:       sync.OnceValue(func() prometheus.Observer { return m.duration.WithLabelValues(m.service, method, codes.OK.String()) }),
	})
	return known.(*methodSeries)
}
