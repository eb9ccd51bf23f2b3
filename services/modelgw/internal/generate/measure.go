package generate

import (
	"context"
	"slices"
	"strconv"
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
	// maxMeasured bounds the names of models, and those of projects, that have metrics of their own: requests name them
	// freely, and each name is kept permanently.
	maxMeasured = 200
	// other is the name of all others.
	other = "other"
)

// Metrics measures calls of models: their duration, outcome, waits and usage. Those by project have no label of a
// model, so that the number of series is a sum and not a product.
type Metrics struct {
	duration, queued, firstPiece *prometheus.HistogramVec
	tokens, cost, retries, rests *prometheus.CounterVec

	projectCalls, projectTokens, projectCost *prometheus.CounterVec

	models, projects names
}

// names are those that have metrics of their own. It is safe for concurrent use.
type names struct {
	mu    sync.Mutex
	known map[string]bool
}

// has reports whether a name has metrics of its own. MayBegin is whether it may get them now.
func (n *names) has(name string, mayBegin bool) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.known[name] && mayBegin && len(n.known) < maxMeasured {
		if n.known == nil {
			n.known = map[string]bool{}
		}
		n.known[name] = true
	}
	return n.known[name]
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
		queued: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "evalfleet_model_queue_seconds",
			Help:    "Time that calls of models waited for a connection of their account, over all attempts.",
			Buckets: []float64{.001, .01, .1, .5, 1, 5, 10, 30, 60, 300, 1800},
		}, []string{"provider", "account", "model"}),
		firstPiece: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "evalfleet_model_first_piece_seconds",
			Help:    "Time from the beginning of the attempt that was answered to the first piece of its answer. Answers that are not streamed have none.",
			Buckets: []float64{.01, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 30, 60, 120},
		}, []string{"provider", "account", "model"}),
		cost: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "evalfleet_model_cost_dollars_total", Help: "Dollars that calls of models cost, as far as prices are known.",
		}, []string{"provider", "account", "model"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "evalfleet_model_retries_total", Help: "Attempts of calls of models that failed and were followed by another.",
		}, []string{"provider", "account", "model"}),
		rests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "evalfleet_model_key_rests_total",
			Help: "Times that a credential, of several of an account, was passed over for a while: it was rate_limited, refused, spent or unreachable.",
		}, []string{"provider", "account", "key", "reason"}),
		projectCalls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "evalfleet_project_model_calls_total", Help: "Calls of models by the project on whose behalf they were made, and by how they ended.",
		}, []string{"project", "outcome"}),
		projectTokens: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "evalfleet_project_model_tokens_total", Help: "Tokens that calls of models used, by project; the kinds are those of evalfleet_model_tokens_total.",
		}, []string{"project", "kind"}),
		projectCost: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "evalfleet_project_model_cost_dollars_total", Help: "Dollars that calls of models cost, by project, as far as prices are known.",
		}, []string{"project"}),
	}
	if r != nil {
		r.MustRegister(m.duration, m.tokens, m.queued, m.firstPiece, m.cost, m.retries, m.rests, m.projectCalls, m.projectTokens, m.projectCost)
	}
	return m
}

// Measure counts and times calls, and makes the span of each in the trace of its caller.
func Measure(m *Metrics) Stage {
	return func(next Func) Func {
		return func(ctx context.Context, c *Call, o *Outcome) (*provider.Response, error) {
			start := time.Now()
			ctx, span := beginSpan(ctx, c)
			defer span.End() // also of a call that panics
			response, err := next(ctx, c, o)
			if rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_BATCH_PENDING) { // It has not ended.
				span.AddEvent("batch_pending")
				return nil, err
			}
			answered := err == nil || len(o.unfinished) > 0
			of := series{c.Model.Kind.Name, c.Model.Account, m.label(c.Model, answered), other}
			if m.projects.has(c.Origin.Project, answered) {
				of.project = c.Origin.Project
			}
			outcome := ended(o, err)
			m.duration.WithLabelValues(of.provider, of.account, of.model, outcome).Observe(time.Since(start).Seconds())
			m.projectCalls.WithLabelValues(of.project, outcome).Inc()
			m.waits(of, o)
			m.count(of, o.unfinishedUsage())
			if err == nil && !response.BrokenOff { // Else it is counted already.
				m.count(of, response.Output.GetUsage())
			}
			describe(ctx, span, o, response, err)
			return response, err
		}
	}
}

// rested counts a credential that is passed over. Accounts and their credentials are those of the configuration.
func (m *Metrics) rested(of *provider.Model, why string) {
	m.rests.WithLabelValues(of.Kind.Name, of.Account, strconv.Itoa(of.Key), why).Inc()
}

// series are the labels of a call.
type series struct{ provider, account, model, project string }

// waits adds where the time of a call went before its answer.
func (m *Metrics) waits(of series, o *Outcome) {
	m.queued.WithLabelValues(of.provider, of.account, of.model).Observe(o.Queued.Seconds())
	if o.FirstPiece > 0 {
		m.firstPiece.WithLabelValues(of.provider, of.account, of.model).Observe(o.FirstPiece.Seconds())
	}
	if n := len(o.Failed); n > 0 {
		m.retries.WithLabelValues(of.provider, of.account, of.model).Add(float64(n))
	}
}

// count adds the usage of a call.
func (m *Metrics) count(of series, u *modelv1.ModelUsage) {
	if cost := u.GetTotalCost(); cost > 0 {
		m.cost.WithLabelValues(of.provider, of.account, of.model).Add(cost)
		m.projectCost.WithLabelValues(of.project).Add(cost)
	}
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
			m.tokens.WithLabelValues(of.provider, of.account, of.model, used.kind).Add(float64(used.tokens))
			m.projectTokens.WithLabelValues(of.project, used.kind).Add(float64(used.tokens))
		}
	}
}

// label is the name under which a model is measured: its own if its provider lists it, or once it has answered, up to
// maxMeasured names.
func (m *Metrics) label(of *provider.Model, answered bool) string {
	if !m.models.has(of.FullName(), answered || slices.Contains(of.Kind.Models, of.Name)) {
		return other
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
