package generate_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/telemetry/telemetrytest"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/generate"
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
