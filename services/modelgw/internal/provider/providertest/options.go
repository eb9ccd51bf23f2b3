package providertest

import (
	"maps"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/evalfleet/evalfleet/pkg/chat"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/prepare"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// followed are the options that the gateway or its callers follow, and that no request shows; internal_tools shows
// where the model's vendor has one of the tools itself.
var followed = map[string]bool{
	"max_retries": true, "timeout": true, "stream_idle_timeout": true, "attempt_timeout": true, "max_connections": true, "adaptive_connections": true,
	"max_tool_output": true, "fail_on_refusal": true, "cache": true, "batch": true, "internal_tools": true,
}

// asking has a non-default value for every option except extra_body.
func asking() *modelv1.GenerateConfig {
	return &modelv1.GenerateConfig{
		SystemMessage: new("Be brief."), MaxTokens: new(int64(77)), TopP: new(0.5), Temperature: new(0.5), StopSeqs: &modelv1.StringList{Values: []string{"x"}},
		BestOf: new(int32(2)), FrequencyPenalty: new(0.5), PresencePenalty: new(0.5), LogitBias: &modelv1.LogitBias{Values: map[int64]float64{1: 2}},
		Seed: new(int64(4)), TopK: new(int32(3)), NumChoices: new(int32(2)), Logprobs: new(true), TopLogprobs: new(int32(2)), PromptLogprobs: new(int32(2)),
		ParallelToolCalls: new(false), InternalTools: new(true), CachePrompt: modelv1.CachePrompt_CACHE_PROMPT_OFF,
		FallbackModels: &modelv1.StringList{Values: []string{"m"}}, Verbosity: new("high"),
		Effort: new("low"), ReasoningEffort: new("low"), ReasoningMode: new("pro"), ReasoningTokens: new(int64(2048)), ReasoningSummary: new("detailed"),
		ReasoningHistory: new(modelv1.ReasoningHistory_REASONING_HISTORY_NONE), ResponseSchema: &modelv1.ResponseSchema{Name: "s", JsonSchema: `{"type":"object","properties":{}}`},
		ExtraHeaders: &modelv1.HeaderMap{Values: map[string]string{"X-Own": "1"}},
		Modalities:   &modelv1.ModalityList{Values: []*modelv1.Modality{{Type: "image"}}},
	}
}

// modelMember asks for another model than the call's, whose price and limits count.
const modelMember = "extra_body.model"

// askings are configurations with one option each, by the name of the option.
func askings(t *testing.T) map[string]*modelv1.GenerateConfig {
	t.Helper()
	all := map[string]*modelv1.GenerateConfig{
		"extra_body.service_tier":       {ExtraBodyJson: new(`{"service_tier":"x"}`)},
		"extra_body.metadata":           {ExtraBodyJson: new(`{"metadata":{"user_id":"u"}}`)},
		"extra_body.context_management": {ExtraBodyJson: new(`{"context_management":{"edits":[]}}`)},
		"extra_body.own":                {ExtraBodyJson: new(`{"own":7}`)},
		modelMember:                     {ExtraBodyJson: new(`{"model":"other"}`)},
	}
	asked := asking().ProtoReflect()
	fields := asked.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		name := string(field.Name())
		if followed[name] || name == "extra_body_json" {
			continue
		}
		require.True(t, asked.Has(field), "give %s a value that asks for something", name)
		all[name] = &modelv1.GenerateConfig{}
		all[name].ProtoReflect().Set(field, asked.Get(field))
	}
	return all
}

// Options checks for a model that every option of a configuration, and every member of extra_body, appears in the
// request, is refused, or is reported as not sent. New makes the model over an upstream API at an address.
func Options(t *testing.T, New func(t *testing.T, root string) provider.Provider) {
	t.Helper()
	options(t, New, []*toolv1.ToolInfo{weather})
}

// OptionsWithoutTools is Options for an API that takes none of the suite's tools. It leaves out parallel_tool_calls.
func OptionsWithoutTools(t *testing.T, New func(t *testing.T, root string) provider.Provider) {
	t.Helper()
	options(t, New, nil)
}

func options(t *testing.T, New func(t *testing.T, root string) provider.Provider, tools []*toolv1.ToolInfo) {
	t.Helper()
	r := newRecorder(t, nil)
	p := New(t, r.URL())
	without, _, bare, err := sent(t, r, p, &modelv1.GenerateConfig{}, tools)
	require.NoError(t, err)
	for name, config := range askings(t) {
		if name == "parallel_tool_calls" && tools == nil {
			continue
		}
		with, unsent, left, err := sent(t, r, p, config, tools)
		assert.False(t, name == modelMember && err == nil && !assert.ObjectsAreEqual(without, with), "another model is asked than the call's")
		switch {
		case err != nil:
			require.Error(t, p.Check(config), "%s is refused with each call, and not beforehand: %v", name, err)
		case assert.ObjectsAreEqual(without, with):
			assert.Equal(t, []string{name}, unsent, "nothing says that %s is not sent", name)
			assert.Empty(t, cmp.Diff(bare, left, protocmp.Transform()), "%s stays in what is said to be sent", name)
		default:
			assert.Empty(t, unsent, "%s is sent", name)
		}
	}
	testEfforts(t, r, p, words(without.body))
}

// seen is what an upstream API receives of one.
type seen struct {
	body   any
	header http.Header
}

// sent returns a configuration's request, the options reported as not sent, and the rest.
func sent(t *testing.T, r *recorder, p provider.Provider, config *modelv1.GenerateConfig, tools []*toolv1.ToolInfo) (request seen, unsent []string, left *modelv1.GenerateConfig, err error) {
	t.Helper()
	marked := chat.TextPart("q")
	marked.GetText().CacheBreakpoint = new(true)
	thought := &contentv1.Content{Part: &contentv1.Content_Reasoning{Reasoning: &contentv1.Reasoning{Reasoning: "hm"}}}
	prepared, err := prepare.Prepare(prepare.Conversation{Messages: []*modelv1.ChatMessage{
		{Role: modelv1.Role_ROLE_USER, Content: chat.ListContent(marked)},
		{Role: modelv1.Role_ROLE_ASSISTANT, Content: chat.ListContent(thought, chat.TextPart("a"))},
		chat.User("q"),
	}, Tools: tools, Config: config}, provider.CapabilitiesOf(p, config))
	require.NoError(t, err)
	fitted := provider.Fit(p, prepared.Config)
	left = fitted.Sent
	for _, u := range fitted.Unsent {
		unsent = append(unsent, u.Option)
		assert.NotEmpty(t, u.Why)
	}
	_, err = p.Generate(t.Context(), &provider.Request{Messages: prepared.Messages, Tools: prepared.Tools, ToolChoice: prepared.Choice, Config: left, Attempt: 1})
	if err != nil {
		return seen{}, nil, left, err
	}
	all := r.Requests()
	last := all[len(all)-1]
	header := maps.Clone(last.header)
	header.Del("Content-Length")
	if header.Get("X-Amz-Date") != "" { // A signature depends on the time.
		header.Del("X-Amz-Date")
		header.Del("Authorization")
	}
	return seen{last.Body, header}, unsent, left, nil
}
