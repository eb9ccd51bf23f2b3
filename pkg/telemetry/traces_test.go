package telemetry_test

import (
	"bytes"
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/telemetry"
	"github.com/evalfleet/evalfleet/pkg/telemetry/telemetrytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// request is a request over HTTP, of a caller's trace if it has one.
func request(t *testing.T, traceparent string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/x", nil)
	if traceparent != "" {
		r.Header.Set("Traceparent", traceparent)
	}
	return r
}

func TestSpansReachACollectorOverBothProtocols(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"grpc", "http/protobuf", ""} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			c := telemetrytest.Collect(t)
			traces, flush := c.Traces(t, func(cfg *telemetry.TraceConfig) {
				if cfg.Protocol = protocol; protocol != "grpc" {
					cfg.Endpoint = c.HTTP + "/"
				}
				cfg.Headers, cfg.ServiceName = config.NewSecret("X-Key=se%20cret, other=1"), "named"
			})
			ctx, end := traces.ServeHTTP(t.Context(), request(t, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"), "svc", "/v1/x")
			_, span := telemetry.Start(ctx, "inner", trace.SpanKindInternal)
			telemetry.Fail(span, "broken")
			span.End()
			end("")
			flush()

			outer, inner := c.Find(t, "POST /v1/x"), c.Find(t, "inner")
			assert.Equal(t, "0af7651916cd43dd8448eb211c80319c", outer.Trace(), "the caller's")
			assert.Equal(t, "b7ad6b7169203331", outer.Parent())
			assert.Equal(t, outer.ID(), inner.Parent())
			assert.Equal(t, "broken", inner.Attributes["error.type"])
			assert.Equal(t, []string{"se cret"}, c.Keys())
			assert.Equal(t, []string{"named"}, c.Services())
			assert.NotContains(t, c.Text(), "se cret")
		})
	}
}

// Callers choose names and ids. What the protocol cannot write must not cost the spans of others in its batch.
func TestTextsThatAreNotUTF8CostNoSpans(t *testing.T) {
	t.Parallel()
	c := telemetrytest.Collect(t)
	traces, flush := c.Traces(t, func(*telemetry.TraceConfig) {})
	ctx := traces.ServeGRPC(t.Context(), "svc", "/a/b")
	_, span := telemetry.Start(ctx, "chat m\xff", trace.SpanKindInternal)
	span.End()
	telemetry.EndGRPC(ctx, codes.OK, "id\xff")
	flush()

	assert.Equal(t, "id\uFFFD", c.Find(t, "a/b").Attributes["evalfleet.request_id"])
	c.Find(t, "chat m\uFFFD")
}

func TestWithoutAnEndpointThereIsNothing(t *testing.T) {
	traces, err := telemetry.NewTraces(t.Context(), telemetry.TraceConfig{SamplerArg: "0.5"}, "s", "i", nil)
	require.NoError(t, err)
	require.Nil(t, traces)
	ctx := t.Context()
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		served := traces.ServeGRPC(ctx, "s", "/a/b")
		called, end := telemetry.CallGRPC(served, "/a/b")
		begun, span := telemetry.Start(called, "x", trace.SpanKindClient)
		step, _ := traces.Step(begun, "projects/p/runs/r", "step")
		if step != ctx || end != nil || span.IsRecording() || telemetry.Content(step) {
			t.Error("there is a span")
		}
	}))
	traces.Ended("r", "x", time.Now(), time.Now(), "")
	traces.LinkRun(ctx, "r")
	require.NoError(t, traces.Stop(ctx))
}

func TestTheShareOfTracesIsTheSamplers(t *testing.T) {
	t.Parallel()
	const sampled, not = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
	for _, tt := range []struct {
		sampler, arg, parent string
		want                 int
	}{
		{"", "", "", 1},
		{"", "0", "", 0},
		{"", "0", sampled, 1},
		{"", "1", not, 0},
		{"traceidratio", "0", sampled, 0},
		{"always_on", "", not, 1},
		{"always_off", "", sampled, 0},
		{"parentbased_always_off", "", "", 0},
		{"parentbased_always_on", "0", "", 1},
	} {
		c := telemetrytest.Collect(t)
		traces, flush := c.Traces(t, func(cfg *telemetry.TraceConfig) { cfg.Sampler, cfg.SamplerArg = tt.sampler, tt.arg })
		ctx, end := traces.ServeHTTP(t.Context(), request(t, tt.parent), "svc", "/v1/x")
		_, span := telemetry.Start(ctx, "inner", trace.SpanKindInternal)
		span.End()
		end("")
		flush()
		assert.Len(t, c.Spans(), 2*tt.want, "%+v", tt)
	}
}

// Two processes that drive a run one after the other add to one trace, or both to none.
func TestARunIsOneTraceInAllProcesses(t *testing.T) {
	t.Parallel()
	c := telemetrytest.Collect(t)
	steps := map[string]int{}
	for range 2 {
		traces, flush := c.Traces(t, func(cfg *telemetry.TraceConfig) { cfg.SamplerArg = "0.5" })
		for i := range 100 {
			_, span := traces.Step(t.Context(), "projects/p/runs/"+strings.Repeat("x", i), "step")
			span.End()
		}
		flush()
	}
	last, flush := c.Traces(t, func(cfg *telemetry.TraceConfig) { cfg.SamplerArg = "0.5" })
	begun := time.Now().Add(-time.Hour)
	for i := range 100 {
		last.Ended("projects/p/runs/"+strings.Repeat("x", i), "run", begun, begun.Add(time.Minute), "")
	}
	flush()
	roots := map[string]string{}
	for _, span := range c.Spans() {
		if span.GetName() == "run" {
			roots[span.Trace()] = span.ID()
			assert.Empty(t, span.Parent())
			assert.EqualValues(t, begun.UnixNano(), span.GetStartTimeUnixNano())
		}
	}
	for _, span := range c.Spans() {
		if span.GetName() == "step" {
			steps[span.Trace()]++
			assert.Equal(t, roots[span.Trace()], span.Parent())
		}
	}
	assert.Len(t, steps, len(roots))
	assert.InDelta(t, 50, len(roots), 25)
	for _, n := range steps {
		assert.Equal(t, 2, n)
	}
}

// A collector that is away, or refuses, costs a line in the log and nothing else; it may repeat our key.
func TestACollectorThatFailsDelaysNothingAndIsLoggedOnce(t *testing.T) {
	t.Parallel()
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "no such key: "+r.Header.Get("X-Key")+strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), http.StatusForbidden)
	}))
	defer refusing.Close()
	var log bytes.Buffer
	traces, err := telemetry.NewTraces(t.Context(), telemetry.TraceConfig{Endpoint: refusing.URL, Headers: config.NewSecret("x-key=s3cr3t,authorization=Bearer%20t0ken")}, "s", "i", slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	for range 10_000 { // more than wait for their export
		_, end := traces.ServeHTTP(t.Context(), request(t, ""), "svc", "/v1/x")
		end("")
	}
	require.NoError(t, traces.Stop(t.Context()))
	assert.Equal(t, 1, strings.Count(log.String(), "\n"), "%s", &log)
	assert.Contains(t, log.String(), "spans of traces cannot be exported")
	assert.NotContains(t, log.String(), "s3cr3t")
	assert.NotContains(t, log.String(), "t0ken")
}

func TestAStopIsBounded(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"grpc", "http/protobuf"} {
		cfg := telemetry.TraceConfig{Endpoint: "http://127.0.0.1:1", Protocol: protocol}
		traces, err := telemetry.NewTraces(t.Context(), cfg, "s", "i", slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		_, end := traces.ServeHTTP(t.Context(), request(t, ""), "svc", "/v1/x")
		end("")
		over, cancel := context.WithCancel(t.Context())
		cancel()
		begun := time.Now()
		require.NoError(t, traces.Stop(over))
		assert.Less(t, time.Since(begun), 30*time.Second)
	}
}

func TestAConfigurationThatCannotWorkIsRefusedWithoutItsSecrets(t *testing.T) {
	t.Parallel()
	for _, cfg := range []telemetry.TraceConfig{
		{Endpoint: "localhost:4317"},
		{Endpoint: "http://user:s3cr3t@host"},
		{Endpoint: "http://host?key=s3cr3t"},
		{Endpoint: "http://\x00s3cr3t"},
		{Protocol: "http/json"},
		{Sampler: "some"},
		{SamplerArg: "2"},
		{SamplerArg: "NaN"},
		{Headers: config.NewSecret("s3cr3t value=1")},
		{Headers: config.NewSecret("a=%s3cr3t")},
		{Headers: config.NewSecret("a=s3cr3t%0d%0ab")},
	} {
		cfg.Endpoint = cmp.Or(cfg.Endpoint, "http://host")
		err := cfg.Validate()
		require.Error(t, err, "%+v", cfg)
		assert.NotContains(t, err.Error(), "s3cr3t")
	}
	require.NoError(t, (&telemetry.TraceConfig{Sampler: "xray", Protocol: "http/json"}).Validate(), "which nothing uses")
}
