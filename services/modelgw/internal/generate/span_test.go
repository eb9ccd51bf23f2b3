package generate_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/telemetry"
	"github.com/evalfleet/evalfleet/pkg/telemetry/telemetrytest"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/generate"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// Viewers tell providers apart by the names of the conventions, where a cloud is a provider of its own.
func TestProvidersHaveTheirConventionalNamesInSpans(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ kind, model, want string }{
		{"openai", "gpt-4o", "openai"},
		{"openai", "azure/gpt-4o", "azure.ai.openai"},
		{"anthropic", "bedrock/anthropic.claude-sonnet-4-5", "aws.bedrock"},
		{"google", "vertex/gemini-2.5-pro", "gcp.vertex_ai"},
		{"google", "gemini-2.5-pro", "gcp.gemini"},
		{"together", "meta-llama/Llama-3.3-70B", "together"},
	} {
		collector := telemetrytest.Collect(t)
		traces, flush := collector.Traces(t, nil)
		g := newRig(says("x"))
		g.model.Kind.Name, g.model.Name = c.kind, c.model
		ctx, step := traces.Step(t.Context(), "projects/p/runs/r", "step")
		_, err := generate.Chain(g.stages, generate.Measure(generate.NewMetrics(nil)))(ctx, g.call(nil), &generate.Outcome{})
		require.NoError(t, err)
		step.End()
		flush()
		assert.Equal(t, c.want, collector.Find(t, "chat "+c.model).Attributes["gen_ai.provider.name"])
	}
}

// Content is in the form of the conventions' schemas, as far as it is exported at all.
func TestContentHasTheConventionalForm(t *testing.T) {
	t.Parallel()
	collector := telemetrytest.Collect(t)
	traces, flush := collector.Traces(t, func(cfg *telemetry.TraceConfig) { cfg.Content = true })
	g := newRig(says("sunny"))
	c := g.call(nil)
	c.Messages = []*modelv1.ChatMessage{
		chat.User("weather?"), chat.Assistant("", chat.Call("c1", "weather", `{"city":"Paris"}`)),
		chat.ToolMessage(&toolv1.ToolResult{CallId: "c1", Function: "weather", Content: chat.TextContent("20 C")}),
	}
	ctx, step := traces.Step(t.Context(), "projects/p/runs/r", "step")
	_, err := generate.Chain(g.stages, generate.Measure(generate.NewMetrics(nil)))(ctx, c, &generate.Outcome{})
	require.NoError(t, err)
	relayed := func(context.Context, *generate.Call, *generate.Outcome) (*provider.Response, error) {
		return &provider.Response{Output: &modelv1.ModelOutput{Choices: []*modelv1.Choice{{StopReason: modelv1.StopReason_STOP_REASON_STOP}}}}, nil
	}
	unread := g.call(nil)
	unread.Messages, unread.Model = nil, &provider.Model{Kind: g.model.Kind, Name: "unread", Provider: g.provider}
	_, err = generate.Chain(relayed, generate.Measure(generate.NewMetrics(nil)))(ctx, unread, &generate.Outcome{})
	require.NoError(t, err)
	step.End()
	flush()
	span := collector.Find(t, "chat m")
	assert.JSONEq(t, `[
		{"role":"user","parts":[{"type":"text","content":"weather?"}]},
		{"role":"assistant","parts":[{"type":"tool_call","id":"c1","name":"weather","arguments":"{\"city\":\"Paris\"}"}]},
		{"role":"tool","parts":[{"type":"tool_call_response","id":"c1","response":"20 C"}]}
	]`, span.Attributes["gen_ai.input.messages"].(string))
	assert.JSONEq(t, `[{"role":"assistant","parts":[{"type":"text","content":"sunny"}],"finish_reason":"stop"}]`, span.Attributes["gen_ai.output.messages"].(string))
	assert.NotContains(t, collector.Find(t, "chat unread").Attributes, "gen_ai.output.messages")
}

// A call that waits for a batch has not failed, as often as its run asks again.
func TestACallThatWaitsForABatchIsNoErrorInItsSpan(t *testing.T) {
	t.Parallel()
	collector := telemetrytest.Collect(t)
	traces, flush := collector.Traces(t, nil)
	g := newRig()
	pending := func(context.Context, *generate.Call, *generate.Outcome) (*provider.Response, error) {
		return nil, rpcerr.BatchPending("test/m", "key", time.Minute, "the call waits for a batch")
	}
	ctx, step := traces.Step(t.Context(), "projects/p/runs/r", "step")
	_, err := generate.Chain(pending, generate.Measure(generate.NewMetrics(nil)))(ctx, g.call(nil), &generate.Outcome{})
	require.Error(t, err)
	step.End()
	flush()
	assert.NotContains(t, collector.Find(t, "chat m").Attributes, "error.type")
}
