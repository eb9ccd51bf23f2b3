package providertest

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/prepare"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// unseen are the options that need not show in the body of a request: the gateway or its callers follow them, they are
// headers, or the vendor's cache decides.
var unseen = map[string]bool{
	"max_retries": true, "timeout": true, "stream_idle_timeout": true, "attempt_timeout": true, "max_connections": true, "adaptive_connections": true,
	"system_message": true, "max_tool_output": true, "fail_on_refusal": true, "reasoning_history": true, "cache": true, "batch": true,
	"extra_headers": true, "cache_prompt": true,
}

// asking has every option with a value that asks for something.
func asking() *modelv1.GenerateConfig {
	return &modelv1.GenerateConfig{
		MaxTokens: new(int64(77)), TopP: new(0.5), Temperature: new(0.5), StopSeqs: &modelv1.StringList{Values: []string{"x"}}, BestOf: new(int32(2)),
		FrequencyPenalty: new(0.5), PresencePenalty: new(0.5), LogitBias: &modelv1.LogitBias{Values: map[int64]float64{1: 2}}, Seed: new(int64(4)),
		TopK: new(int32(3)), NumChoices: new(int32(2)), Logprobs: new(true), TopLogprobs: new(int32(2)), PromptLogprobs: new(int32(2)),
		ParallelToolCalls: new(false), InternalTools: new(true), FallbackModels: &modelv1.StringList{Values: []string{"m"}}, Verbosity: new("high"),
		Effort: new("low"), ReasoningEffort: new("low"), ReasoningMode: new("pro"), ReasoningTokens: new(int64(2048)), ReasoningSummary: new("auto"),
		ResponseSchema: &modelv1.ResponseSchema{Name: "s", JsonSchema: `{"type":"object","properties":{}}`}, ExtraBodyJson: new(`{"service_tier":"x"}`),
		Modalities: &modelv1.ModalityList{Values: []*modelv1.Modality{{Type: "image"}}},
	}
}

// Options checks of a model that every option of a configuration shows in the request, is refused, or is among those
// that are said not to be sent. New makes the model, whose upstream API gives these answers.
func Options(t *testing.T, New func(t *testing.T, answers ...Answer) provider.Provider) {
	t.Helper()
	all := asking().ProtoReflect()
	fields := all.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		name := string(field.Name())
		if unseen[name] {
			continue
		}
		require.True(t, all.Has(field), "give %s a value that asks for something", name)
		p := New(t, Answer{Text: "a"}, Answer{Text: "b"})
		config := &modelv1.GenerateConfig{}
		config.ProtoReflect().Set(field, all.Get(field))
		with, unsent, err := sent(t, p, config)
		if err != nil {
			require.Error(t, p.Check(config), "%s is refused with each call, and not beforehand: %v", name, err)
			continue
		}
		without, _, err := sent(t, p, &modelv1.GenerateConfig{})
		require.NoError(t, err)
		if with == without {
			assert.Equal(t, []string{name}, unsent, "nothing says that %s is not sent", name)
		} else {
			assert.Empty(t, unsent, "%s is sent", name)
		}
	}
}

// sent is the body of a request with a configuration, and what of that is said not to be sent.
func sent(t *testing.T, p provider.Provider, config *modelv1.GenerateConfig) (body string, unsent []string, err error) {
	t.Helper()
	given := prepare.Conversation{Messages: []*modelv1.ChatMessage{chat.User("q")}, Tools: []*toolv1.ToolInfo{weather}, Config: config}
	prepared, err := prepare.Prepare(given, p.Capabilities())
	require.NoError(t, err)
	prepared.Config, unsent = p.Capabilities().Sent(prepared.Config)
	response, err := p.Generate(t.Context(), &provider.Request{
		Messages: prepared.Messages, Tools: prepared.Tools, ToolChoice: prepared.Choice, Config: prepared.Config, Attempt: 1, Record: provider.RecordAll,
	})
	if err != nil {
		return "", nil, err
	}
	return response.Call.GetRequestJson(), unsent, nil
}
