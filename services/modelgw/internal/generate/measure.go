package generate

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

const (
	// maxMeasured bounds the names of models that have metrics of their own: requests name models freely, and each name
	// is kept permanently.
	maxMeasured = 200
	// otherModel is the name of all others.
	otherModel = "other"
)

// Metrics measures calls of models: their duration, outcome and usage.
type Metrics struct {
	duration *prometheus.HistogramVec
	tokens   *prometheus.CounterVec

	mu sync.Mutex
	// models have metrics of their own.
	models map[string]bool
}

// NewMetrics registers the metrics with r; nil registers nowhere.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "evalfleet_model_call_duration_seconds",
			Help:    "Time of calls of models with queueing and retries, by how they ended: ok, broken_off, or the reason of the failure. Answers from the response cache are no calls.",
			Buckets: []float64{.01, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600},
		}, []string{"provider", "account", "model", "outcome"}),
		tokens: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "evalfleet_model_tokens_total",
			Help: "Tokens that calls of models used: input at the full rate, cache_read and cache_write of the provider's prompt cache, output, and reasoning, which is a part of output.",
		}, []string{"provider", "account", "model", "kind"}),
		models: map[string]bool{},
	}
	if r != nil {
		r.MustRegister(m.duration, m.tokens)
	}
	return m
}

// Measure counts and times calls.
func Measure(m *Metrics) Stage {
	return func(next Func) Func {
		return func(ctx context.Context, c *Call, o *Outcome) (*provider.Response, error) {
			start := time.Now()
			response, err := next(ctx, c, o)
			model := m.label(c.Model, err == nil || o.unfinished != nil)
			m.duration.WithLabelValues(c.Model.Kind.Name, c.Model.Account, model, ended(o, err)).Observe(time.Since(start).Seconds())
			m.count(c.Model, model, o.unfinished)
			if err == nil && !response.BrokenOff { // Else it is counted already.
				m.count(c.Model, model, response.Output.GetUsage())
			}
			return response, err
		}
	}
}

// count adds the usage of a call.
func (m *Metrics) count(of *provider.Model, model string, u *modelv1.ModelUsage) {
	for _, used := range []struct {
		kind   string
		tokens int64
	}{
		{"input", u.GetInputTokens()},
		{"cache_read", u.GetInputTokensCacheRead()},
		{"cache_write", u.GetInputTokensCacheWrite()},
		{"output", u.GetOutputTokens()},
		{"reasoning", u.GetReasoningTokens()},
	} {
		if used.tokens > 0 {
			m.tokens.WithLabelValues(of.Kind.Name, of.Account, model, used.kind).Add(float64(used.tokens))
		}
	}
}

// label is the name under which a model is measured: its own if its provider lists it, or once it has answered, up to
// maxMeasured names.
func (m *Metrics) label(of *provider.Model, answered bool) string {
	full := of.FullName()
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.models[full]:
	case len(m.models) < maxMeasured && (answered || slices.Contains(of.Kind.Models, of.Name)):
		m.models[full] = true
	default:
		return otherModel
	}
	return of.Name
}

// ended is how a call ended, in one word.
func ended(o *Outcome, err error) string {
	switch {
	case o.BrokenOff:
		return "broken_off"
	case err == nil:
		return "ok"
	}
	if reason := rpcerr.Reason(err); reason != errorsv1.ErrorReason_ERROR_REASON_UNSPECIFIED {
		return strings.ToLower(rpcerr.ReasonName(reason))
	}
	return strings.ToLower(rpcerr.Code(err).String())
}
