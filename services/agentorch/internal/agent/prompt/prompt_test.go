package prompt_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent/agenttest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent/prompt"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/fleettest"
)

func definition(t *testing.T, name string) agent.Definition {
	t.Helper()
	for _, d := range prompt.Definitions() {
		if d.Name == name {
			return d
		}
	}
	t.Fatalf("no solver %s", name)
	return agent.Definition{}
}

func TestSolversChangeTheConversation(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		solver, params string
		want           []string
	}{
		"system message": {"system_message", `{"template": "Be {manner}.", "params": {"manner": "kind"}}`, []string{"S:old", "S:Be kind.", "U:one", "A:two", "U:three"}},
		"user message":   {"user_message", `{"template": "{unknown} {lang}"}`, []string{"S:old", "U:one", "A:two", "U:three", "U:{unknown} go"}},
		"assistant":      {"assistant_message", `{"template": "{kept}"}`, []string{"S:old", "U:one", "A:two", "U:three", "A:in the store"}},
		"template":       {"prompt_template", `{"template": "Q: {prompt} ({metadata.lang})"}`, []string{"S:old", "U:one", "A:two", "U:Q: three (go)"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := agenttest.Play(t, definition(t, c.solver), fleettest.Step(c.solver, c.params), agenttest.Script{
				Spec: &agentv1.RunSpec{
					Input:        []*modelv1.ChatMessage{agent.Says(modelv1.Role_ROLE_SYSTEM, "old"), said("1", "one"), agent.Says(modelv1.Role_ROLE_ASSISTANT, "two"), said("2", "three")},
					MetadataJson: `{"lang": "go"}`,
				},
				Store: map[string]string{"kept": `"in the store"`},
			})
			require.NoError(t, got.Err)
			assert.Equal(t, []string{"done"}, got.Effects)
			assert.Equal(t, c.want, fleettest.Texts(got.Messages()))
		})
	}
}

func said(id, text string) *modelv1.ChatMessage {
	message := fleettest.User(text)
	message.Id = id
	return message
}

func TestWhatItNeedsIsNamed(t *testing.T) {
	t.Parallel()
	got := agenttest.Play(t, definition(t, "prompt_template"), fleettest.Step("prompt_template", `{"template": "x"}`), agenttest.Script{})
	require.ErrorContains(t, got.Err, "user message")
	registry := agent.NewRegistry(prompt.Definitions()...)
	for _, params := range []string{"", "{}", `{"template": 1}`} {
		_, err := registry.Resolve(fleettest.Step("system_message", params))
		require.ErrorContains(t, err, "template", "parameters %q", params)
	}
}
