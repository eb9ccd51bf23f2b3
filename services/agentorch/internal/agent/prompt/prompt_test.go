package prompt_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
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

// A template and what is put into it are each within their bounds, and may together be far too much.
func TestWhatATemplateMakesIsBounded(t *testing.T) {
	t.Parallel()
	much := strings.Repeat("x", 1<<20)
	for name, c := range map[string]struct {
		template string
		spec     *agentv1.RunSpec
		known    bool // before the run
	}{
		"metadata": {"{metadata.big}", &agentv1.RunSpec{MetadataJson: `{"big": "` + much + `"}`, Input: []*modelv1.ChatMessage{said("1", "one")}}, true},
		"input":    {"{prompt}", &agentv1.RunSpec{Input: []*modelv1.ChatMessage{said("1", much)}}, true},
		"a step's": {"{prompt}", &agentv1.RunSpec{Input: []*modelv1.ChatMessage{said("1", much)}, Steps: []*agentv1.AgentRef{fleettest.Step("user_message", `{"template": "a"}`)}}, false},
	} {
		step := fleettest.Step("prompt_template", `{"template": "`+strings.Repeat(c.template, 17)+`"}`)
		if len(c.spec.GetSteps()) == 0 {
			c.spec.Steps = []*agentv1.AgentRef{step}
		}
		machine, err := definition(t, "prompt_template").New(step)
		require.NoError(t, err, name)
		err = machine.(agent.Demanding).Demand(c.spec)
		assert.Equal(t, c.known, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_REQUEST_TOO_LARGE), "%s: %v", name, err)
		got := agenttest.Play(t, definition(t, "prompt_template"), step, agenttest.Script{Spec: c.spec})
		require.ErrorContains(t, got.Err, "params_json/template: the text would have more than 16777216 bytes", name)
	}
}
