package generate_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/generate"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// measured are counters, and counts of histograms, by their labels' values.
func measured(t *testing.T, g prometheus.Gatherer, name string) map[string]float64 {
	t.Helper()
	families, err := g.Gather()
	require.NoError(t, err)
	all := map[string]float64{}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			labels := map[string]string{}
			for _, label := range metric.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			values := []string{}
			for _, key := range slices.Sorted(maps.Keys(labels)) {
				values = append(values, labels[key])
			}
			all[strings.Join(values, " ")] = metric.GetCounter().GetValue() + float64(metric.GetHistogram().GetSampleCount())
		}
	}
	return all
}

func TestCallsAreMeasuredByHowTheyEndAndWhatTheyUse(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	g := newRig(says("a"), fails(429, time.Nanosecond), says("b"), fails(400, 0))
	pipeline := generate.Measure(generate.NewMetrics(registry))(g.stages)
	for range 3 {
		_, _ = pipeline(t.Context(), g.call(nil), &generate.Outcome{})
	}
	assert.Equal(t, map[string]float64{"default m ok test": 2, "default m provider_rejected test": 1}, measured(t, registry, "evalfleet_model_call_duration_seconds"), "a retry is no call")
	assert.Equal(t, map[string]float64{"default input m test": 6, "default output m test": 4}, measured(t, registry, "evalfleet_model_tokens_total"))
}

// Callers may name what models they like; metrics do not grow with them.
func TestModelsThatNobodyKnowsShareTheirMetrics(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	answers := true
	pipeline := generate.Measure(generate.NewMetrics(registry))(func(context.Context, *generate.Call, *generate.Outcome) (*provider.Response, error) {
		if !answers {
			return nil, errors.New("no such model")
		}
		return &provider.Response{Output: &modelv1.ModelOutput{}}, nil
	})
	call := func(name string) {
		_, _ = pipeline(t.Context(), &generate.Call{Model: &provider.Model{Kind: provider.Kind{Name: "test", Models: []string{"listed"}}, Name: name, Account: "default"}}, &generate.Outcome{})
	}
	answers = false
	for i := range 300 {
		call(fmt.Sprint("unknown-", i))
	}
	call("listed")
	assert.Equal(t, map[string]float64{"default other unknown test": 300, "default listed unknown test": 1}, measured(t, registry, "evalfleet_model_call_duration_seconds"))
	answers = true
	for i := range 300 {
		call(fmt.Sprint("answering-", i))
	}
	assert.LessOrEqual(t, len(measured(t, registry, "evalfleet_model_call_duration_seconds")), 203)
}

// Projects are named freely too. One has metrics of its own once a call of it has been answered.
func TestProjectsThatNobodyKnowsShareTheirMetrics(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	answers := false
	pipeline := generate.Measure(generate.NewMetrics(registry))(func(_ context.Context, _ *generate.Call, o *generate.Outcome) (*provider.Response, error) {
		o.Queued, o.FirstPiece = time.Second, time.Second
		if !answers {
			return nil, errors.New("refused")
		}
		return &provider.Response{Output: &modelv1.ModelOutput{Usage: &modelv1.ModelUsage{InputTokens: 2, TotalCost: new(0.5)}}}, nil
	})
	call := func(project string) {
		c := &generate.Call{Model: &provider.Model{Kind: provider.Kind{Name: "test"}, Name: "m", Account: "default"}, Origin: provider.Origin{Project: project}}
		_, _ = pipeline(t.Context(), c, &generate.Outcome{})
	}
	for i := range 300 {
		call(fmt.Sprint("refused-", i))
	}
	assert.Equal(t, map[string]float64{"unknown other": 300}, measured(t, registry, "evalfleet_project_model_calls_total"))
	answers = true
	for i := range 300 {
		call(fmt.Sprint("answered-", i))
	}
	assert.Len(t, measured(t, registry, "evalfleet_project_model_calls_total"), 202, "200 of their own, and the others' by two outcomes")
	tokens, cost := measured(t, registry, "evalfleet_project_model_tokens_total"), measured(t, registry, "evalfleet_project_model_cost_dollars_total")
	assert.InDelta(t, 200, tokens["input other"], 0)
	assert.InDelta(t, 50, cost["other"], 0)
	assert.InDelta(t, 0.5, cost["answered-0"], 0)
	assert.Equal(t, map[string]float64{"default m test": 300, "default other test": 300}, measured(t, registry, "evalfleet_model_queue_seconds"))
	assert.Equal(t, map[string]float64{"default m test": 300, "default other test": 300}, measured(t, registry, "evalfleet_model_first_piece_seconds"))
	assert.Equal(t, map[string]float64{"default m test": 150}, measured(t, registry, "evalfleet_model_cost_dollars_total"))
}

// The span of a call is no part of a trace before it ends.
func TestTheSpanOfACallThatPanicsEnds(t *testing.T) {
	t.Parallel()
	ended := tracetest.NewSpanRecorder()
	ctx, _ := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(ended)).Tracer("test").Start(t.Context(), "caller")
	pipeline := generate.Measure(generate.NewMetrics(nil))(func(context.Context, *generate.Call, *generate.Outcome) (*provider.Response, error) {
		panic("a fault of a provider")
	})
	call := newRig(says("a")).call(nil)
	assert.PanicsWithValue(t, "a fault of a provider", func() { _, _ = pipeline(ctx, call, &generate.Outcome{}) })
	require.Len(t, ended.Ended(), 1)
	assert.Equal(t, "chat m", ended.Ended()[0].Name())
}
