package modelgw_test

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/telemetry"
	"github.com/evalfleet/evalfleet/pkg/telemetry/telemetrytest"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/modelgw"
)

const (
	chatAnswer = `{"id":"c-9","model":"gpt-4o-dated","choices":[{"index":0,"message":{"role":"assistant","content":"content-of-an-answer"},"finish_reason":"length"}],` +
		`"usage":{"prompt_tokens":1000000,"completion_tokens":2,"total_tokens":1000002,"prompt_tokens_details":{"cached_tokens":400000}}}`
	chatStream = "data: {\"id\":\"c-9\",\"model\":\"gpt-4o-dated\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"content-of-an-answer\"},\"finish_reason\":null}]}\n\n" +
		"data: {\"id\":\"c-9\",\"model\":\"gpt-4o-dated\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"length\"}]}\n\n" +
		"data: {\"id\":\"c-9\",\"model\":\"gpt-4o-dated\",\"choices\":[],\"usage\":{\"prompt_tokens\":1000000,\"completion_tokens\":2,\"total_tokens\":1000002,\"prompt_tokens_details\":{\"cached_tokens\":400000}}}\n\ndata: [DONE]\n\n"
)

// A call has the same span and the same metrics in both lanes of the endpoints: what was used, what it cost, how often
// it was tried. The vendor hears of no trace, and no span has a key or a text.
func TestCallsAreSeenAlikeInBothLanes(t *testing.T) {
	t.Parallel()
	input, output := 2.0, 0.0
	for _, path := range []string{chatPath, messagesPath} {
		for _, stream := range []string{"false", "true"} {
			t.Run(path+" "+stream, func(t *testing.T) {
				t.Parallel()
				c := telemetrytest.Collect(t)
				traces, flush := c.Traces(t, nil)
				registry := prometheus.NewRegistry()
				var asked atomic.Int64
				v := vendorWith(t, func(w http.ResponseWriter, r *http.Request) {
					switch {
					case asked.Add(1) == 1:
						refuses("0.001")(w, r)
					case stream == "true":
						says(http.StatusOK, "text/event-stream", chatStream)(w, r)
					default:
						says(http.StatusOK, "application/json", chatAnswer)(w, r)
					}
				})
				g := serveWeb(t, v, func(cfg *modelgw.Config, d *modelgw.Deps) {
					cfg.Prices = map[string]modelgw.Price{"openai/gpt-4o": {Rates: modelgw.Rates{Input: &input, Output: &output}}}
					d.Traces, d.Registerer, d.Metrics = traces, registry, telemetry.NewCallMetrics(registry).Of("modelgw")
				})
				body := `{"model":"openai/gpt-4o","max_tokens":5,"stream":` + stream + `,"messages":[{"role":"user","content":"content-of-a-question"}]}`
				answer := g.post(t, path, body, "Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "Evalfleet-Project", "team")
				require.Equal(t, http.StatusOK, answer.StatusCode)
				assert.Contains(t, read(t, answer), "content-of-an-answer")
				assert.Empty(t, waittest.For(t, v.asked, "the request").Header.Values("Traceparent"))
				untilCounted(t, registry, 1)
				g.close()
				flush()

				served, span := c.Find(t, "POST "+path), c.Find(t, "chat gpt-4o")
				assert.Equal(t, "0af7651916cd43dd8448eb211c80319c", span.Trace())
				assert.Equal(t, served.ID(), span.Parent())
				for name, want := range map[string]any{
					"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "gpt-4o", "gen_ai.request.max_tokens": int64(5),
					"gen_ai.response.id": "c-9", "gen_ai.response.finish_reasons": []string{"max_tokens"}, "server.address": "127.0.0.1",
					"gen_ai.usage.input_tokens": int64(1_000_000), "gen_ai.usage.cache_read.input_tokens": int64(400_000), "gen_ai.usage.output_tokens": int64(2),
					"evalfleet.account": "default", "evalfleet.project": "team", "evalfleet.attempts": int64(2), "evalfleet.cost_dollars": 2.0,
					"gen_ai.request.stream": stream == "true",
				} {
					assert.Equal(t, want, span.Attributes[name], name)
				}
				assert.NotContains(t, span.Attributes, "error.type")
				assert.Equal(t, stream == "true", span.Attributes["gen_ai.response.time_to_first_chunk"] != nil)
				require.Len(t, span.GetEvents(), 1)
				assert.Equal(t, "retry", span.GetEvents()[0].GetName())
				for _, secret := range []string{"vendor-key", "right", "content-of"} {
					assert.NotContains(t, c.Text(), secret)
				}

				for name, want := range map[string]float64{
					"evalfleet_model_retries_total": 1, "evalfleet_model_cost_dollars_total": 2, "evalfleet_project_model_cost_dollars_total": 2, "evalfleet_project_model_calls_total": 1,
					"evalfleet_connections_in_use": 0, "evalfleet_connections_waiting": 0,
				} {
					assert.InDelta(t, want, valueOf(t, registry, name), 0, name)
				}
				assert.Positive(t, valueOf(t, registry, "evalfleet_connections_limit"))
			})
		}
	}
}

// A call that fails says why, in the span as in the metrics.
func TestACallThatFailsSaysWhyInItsSpan(t *testing.T) {
	t.Parallel()
	c := telemetrytest.Collect(t)
	traces, flush := c.Traces(t, func(cfg *telemetry.TraceConfig) { cfg.Content = true })
	v := vendorWith(t, says(http.StatusUnauthorized, "application/json", `{"error":{"message":"no such key: vendor-key"}}`))
	registry := prometheus.NewRegistry()
	g := serveWeb(t, v, func(_ *modelgw.Config, d *modelgw.Deps) {
		d.Traces, d.Metrics = traces, telemetry.NewCallMetrics(registry).Of("modelgw")
	})
	for _, path := range []string{chatPath, messagesPath} {
		answer := g.post(t, path, `{"model":"openai/gpt-4o","max_tokens":5,`+user+`}`)
		assert.NotEqual(t, http.StatusOK, answer.StatusCode)
	}
	untilCounted(t, registry, 2)
	g.close()
	flush()
	var failed int
	for _, span := range c.Spans() {
		if span.GetName() == "chat gpt-4o" {
			failed++
			assert.NotEmpty(t, span.Attributes["error.type"])
		}
	}
	assert.Equal(t, 2, failed)
	assert.NotContains(t, c.Text(), "vendor-key")
}

// untilCounted waits until calls of so many kinds are counted: their spans have ended then, which is after their
// answers.
func untilCounted(t *testing.T, g prometheus.Gatherer, kinds int) {
	t.Helper()
	require.Eventually(t, func() bool { return len(seriesOf(t, g, "evalfleet_rpc_duration_seconds")) == kinds }, waittest.Bound, time.Millisecond)
}

// valueOf is the value of the one series of a metric.
func valueOf(t *testing.T, g prometheus.Gatherer, name string) float64 {
	t.Helper()
	all := seriesOf(t, g, name)
	require.Len(t, all, 1, name)
	return all[0]
}

// seriesOf are the values of a metric's series.
func seriesOf(t *testing.T, g prometheus.Gatherer, name string) (all []float64) {
	t.Helper()
	families, err := g.Gather()
	assert.NoError(t, err)
	for _, family := range families {
		if family.GetName() == name {
			for _, m := range family.GetMetric() {
				all = append(all, m.GetCounter().GetValue()+m.GetGauge().GetValue())
			}
		}
	}
	return all
}
