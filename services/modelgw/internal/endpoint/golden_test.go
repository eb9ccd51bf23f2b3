package endpoint

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/goldentest"
	"github.com/evalfleet/evalfleet/pkg/goldentest/match"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/prepare"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// The recorded cases are of the bridge of sandboxed agents, which translates as the endpoints do. What the bridge does beyond that (its rules for models, generation parameters that it withholds,
// remote media that it refuses) is left to it.

// target is the model that serves all cases.
const target = "target"

func TestGoldenVendorRequests(t *testing.T) {
	t.Parallel()
	goldentest.Run(t, "openai-chat-requests", goldentest.Load(t, "bridge/openai-chat-requests.jsonl"), func(t *goldentest.T, c goldentest.Case) {
		if c.Op() != "bridge_request" {
			t.Skipf("no driver for %q", c.Op())
		}
		a, err := chatCompletions.parse(encoded(t, c.At("input", "request")))
		if refused, _ := c.At("expect", "error").(map[string]any); refused != nil {
			require.Error(t, err)
			return
		}
		require.NoError(t, err)
		t.Equal(c.At("expect", "model_saw"), saw(t, a, c.At("input", "options", "forward_generation_config") == true), match.EmptyAsAbsent("*"))
		compareAnswer(t, c)
	})
}

func TestGoldenVendorOutputs(t *testing.T) {
	t.Parallel()
	goldentest.Run(t, "openai-chat-outputs", goldentest.Load(t, "bridge/openai-chat-outputs.jsonl"), func(t *goldentest.T, c goldentest.Case) {
		if c.Op() != "bridge_output" {
			t.Skipf("no driver for %q", c.Op())
		}
		compareAnswer(t, c)
	})
}

// compareAnswer writes the scripted output of a case in the client's format.
func compareAnswer(t *goldentest.T, c goldentest.Case) {
	t.Helper()
	output, err := chat.ParseOutput(encoded(t, c.At("input", "output")))
	require.NoError(t, err)
	output.Model = target
	answer, err := chatCompletions.encode(output, meta{id: chatCompletions.idPrefix + "1", model: target, created: 1})
	if refused, _ := c.At("expect", "error").(map[string]any); refused != nil {
		require.Error(t, err)
		return
	}
	require.NoError(t, err)
	t.Equal(c.At("expect", "response"), decoded(t, answer))
}

// withheld are the options that the bridge keeps from the model, unless it is told otherwise.
func withheld(c *modelv1.GenerateConfig) *modelv1.GenerateConfig {
	return &modelv1.GenerateConfig{StopSeqs: c.StopSeqs, ResponseSchema: c.ResponseSchema, ParallelToolCalls: c.ParallelToolCalls, Seed: c.Seed, ExtraBodyJson: c.ExtraBodyJson}
}

// saw is what reaches the model, in the recorded form.
func saw(t *goldentest.T, a *asked, all bool) map[string]any {
	t.Helper()
	if !all {
		a.config = withheld(a.config)
	}
	for _, m := range a.messages {
		if m.GetRole() == modelv1.Role_ROLE_ASSISTANT {
			m.Model = target
		}
	}
	prepared, err := prepare.Prepare(prepare.Conversation{Messages: a.messages, Tools: a.tools, Choice: a.choice, Config: a.config}, provider.Capabilities{
		Features: &modelv1.Capabilities{ToolResultImages: true, ToolResultDocuments: true},
	})
	require.NoError(t, err)
	return map[string]any{
		"messages": decoded(t, chat.MessagesJSON(prepared.Messages)), "tools": decoded(t, chat.ToolsJSON(prepared.Tools)),
		"tool_choice": decoded(t, chat.ToolChoiceJSON(prepared.Choice)), "config": decoded(t, chat.ConfigJSON(a.config)), "calls": 1.0,
	}
}

func encoded(t *goldentest.T, value any) []byte {
	t.Helper()
	document, err := json.Marshal(value)
	require.NoError(t, err)
	return document
}

func decoded(t *goldentest.T, document []byte) any {
	t.Helper()
	var value any
	require.NoError(t, json.Unmarshal(document, &value))
	return value
}
