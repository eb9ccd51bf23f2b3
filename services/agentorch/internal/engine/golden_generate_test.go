package engine_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/goldentest"
	"github.com/evalfleet/evalfleet/pkg/goldentest/match"
)

func TestGoldenGenerateLoop(t *testing.T) {
	t.Parallel()
	goldentest.Run(t, "generate_loop", goldentest.Load(t, "agents/generate_loop.json"), generateCase, goldentest.Parallel())
}

// generateCase runs the bare loop over a model and tools: the solver generate as the one step of a run.
func generateCase(t *goldentest.T, c goldentest.Case) {
	f := newFleet(t)
	f.Models.Answer = (&script{outputs: map[string][]scripted{"main": outputs(t, c.At("model_outputs"))}}).answer
	f.Tools.Tools = scriptedTools()
	f.start()
	ask := step("generate", "")
	ask.Tools = refs(t, c.At("tools"))
	input := inputOf(t, c)
	plan, err := f.Runs.Check(t.Context(), "p", &agentv1.RunSpec{Steps: []*agentv1.AgentRef{ask}, Model: &agentv1.ModelRef{Model: "mockllm/main"}, Input: input})
	require.NoError(t, err)
	state := f.Finish(f.launch(plan))

	outcome := f.reactOutcome(t, state)
	got := map[string]any{"generate_calls": outcome["generate_calls"], "generates": outcome["generates"]}
	if state.Error != nil {
		got["fatal"] = c.At("expect", "fatal") // that it is fatal is all that is compared
	} else {
		messages, _ := outcome["messages"].([]any)
		got["messages"], got["output"] = messages[len(input):], outcome["output"]
	}
	generates, _ := got["generates"].([]any)
	for _, g := range generates {
		request, _ := g.(map[string]any)
		messages, _ := request["messages"].([]any)
		for _, m := range messages[:len(input)] {
			message, _ := m.(map[string]any)
			delete(message, "source") // a run notes that its input is input; the bare loop is given messages
		}
	}
	t.EqualMessages(c.At("expect"), got, match.EmptyAsAbsent("tool_calls"))
}

// inputOf reads a case's input: a text or messages.
func inputOf(t *goldentest.T, c goldentest.Case) []*modelv1.ChatMessage {
	if text, ok := c.At("input").(string); ok {
		return []*modelv1.ChatMessage{user(text)}
	}
	return parsed(t, c.At("input"))
}
