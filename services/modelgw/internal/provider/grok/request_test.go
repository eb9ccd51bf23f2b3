package grok_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/evalfleet/evalfleet/pkg/chat"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/providertest"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/xai"
)

func account(address string) providertest.GoldenSetup {
	return providertest.GoldenSetup{APIKey: "key-of-the-account", BaseURL: address}
}

// sent is what a server receives of a request to a model.
func sent(t *testing.T, model, args string, r *provider.Request) (*xai.GetCompletionsRequest, error) {
	t.Helper()
	var got *xai.GetCompletionsRequest
	address := serve(t, &server{whole: func(_ context.Context, request *xai.GetCompletionsRequest) (*xai.GetChatCompletionResponse, error) {
		got = request
		return said("fine"), nil
	}})
	p, err := open(t, account(address)).Open(provider.Spec{Model: model, Account: provider.DefaultAccount, Args: args})
	require.NoError(t, err)
	_, err = p.Generate(t.Context(), r)
	return got, err
}

// An answer goes back as it came: what the server ran, its seal, and the calls of the client's tools.
func TestAnAnswerGoesBack(t *testing.T) {
	t.Parallel()
	response, err := opened(t, "grok-4-fast", answering(t, researched(), nil)).Generate(t.Context(), question())
	require.NoError(t, err)
	got, err := sent(t, "grok-4-fast", "", &provider.Request{Messages: []*modelv1.ChatMessage{chat.User("q"), chat.FirstMessage(response.Output)}})
	require.NoError(t, err)
	text := func(text string) *xai.Content { return &xai.Content{Content: &xai.Content_Text{Text: text}} }
	assert.Empty(t, cmp.Diff(&xai.Message{
		Role: xai.MessageRole_ROLE_ASSISTANT, Content: []*xai.Content{text("Let me look."), text("Bergen.")},
		ReasoningContent: new("Where?"), EncryptedContent: "c2VhbA==",
		ToolCalls: []*xai.ToolCall{
			call("s1", xai.ToolCallType_TOOL_CALL_TYPE_WEB_SEARCH_TOOL, "web_search", `{"query":"harbour"}`),
			call("s2", xai.ToolCallType_TOOL_CALL_TYPE_CODE_EXECUTION_TOOL, "code_execution", `{"code":"1/0"}`),
			call("c1", xai.ToolCallType_TOOL_CALL_TYPE_CLIENT_SIDE_TOOL, "weather", `{"city": "Bergen"}`),
		},
	}, got.GetMessages()[1], protocmp.Transform()))
}

// What the API has no place for is refused, and named.
func TestWhatTheAPICannotTake(t *testing.T) {
	t.Parallel()
	parts := map[string]*contentv1.Content{
		"audio":      {Part: &contentv1.Content_Audio{Audio: &contentv1.Audio{}}},
		"video":      {Part: &contentv1.Content_Video{Video: &contentv1.Video{}}},
		"a document": {Part: &contentv1.Content_Document{Document: &contentv1.Document{}}},
		"data":       {Part: &contentv1.Content_Data{Data: &contentv1.Data{}}},
	}
	for name, part := range parts {
		for _, role := range []modelv1.Role{modelv1.Role_ROLE_USER, modelv1.Role_ROLE_ASSISTANT, modelv1.Role_ROLE_SYSTEM} {
			got, err := sent(t, "grok-4-fast", "", &provider.Request{Messages: []*modelv1.ChatMessage{{Role: role, Content: chat.ListContent(part)}}})
			assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_CAPABILITY_UNSUPPORTED), "%s: %v", name, err)
			assert.True(t, rpcerr.Concerns("messages", err), name)
			assert.Nil(t, got, name)
		}
	}
}

// A tool that the server has itself is offered as such, as far as its options and the model allow it.
func TestToolsOfTheServer(t *testing.T) {
	t.Parallel()
	search := func(options string) *toolv1.ToolInfo {
		return &toolv1.ToolInfo{Name: "web_search", OptionsJson: options}
	}
	plain := &xai.WebSearch{EnableImageUnderstanding: new(false), EnableImageSearch: new(false)}
	for name, tt := range map[string]struct {
		model string
		tool  *toolv1.ToolInfo
		want  *xai.WebSearch // nil: a function
	}{
		"with options": {"grok-4-fast", search(`{"grok":{"allowed_domains":["a.example"],"enable_image_search":true,"user_location_country":"NO","user_location_timezone":"Europe/Oslo"}}`), &xai.WebSearch{
			AllowedDomains: []string{"a.example"}, EnableImageUnderstanding: new(false), EnableImageSearch: new(true),
			UserLocation: &xai.WebSearchUserLocation{Country: new("NO"), Timezone: new("Europe/Oslo")},
		}},
		"without options":     {"grok-4-fast", search(`{"grok":{}}`), plain},
		"allowed":             {"sherlock-think", search(`{"grok":true}`), plain},
		"not allowed":         {"grok-4-fast", search(`{"grok":false}`), nil},
		"null":                {"grok-4-fast", search(`{"grok":null,"openai":{}}`), nil},
		"of another provider": {"grok-4-fast", search(`{"tavily":{}}`), nil},
		"an older model":      {"grok-3-mini", search(`{"grok":{}}`), nil},
		"another name":        {"grok-4-fast", &toolv1.ToolInfo{Name: "find", OptionsJson: `{"grok":{}}`}, nil},
		"other options":       {"grok-4-fast", search(`{"grok":`), nil},
	} {
		r := question()
		r.Tools = []*toolv1.ToolInfo{tt.tool}
		got, err := sent(t, tt.model, "", r)
		require.NoError(t, err, name)
		require.Len(t, got.GetTools(), 1, name)
		assert.Empty(t, cmp.Diff(tt.want, got.GetTools()[0].GetWebSearch(), protocmp.Transform()), name)
		if tt.want == nil {
			assert.JSONEq(t, `{"type":"object","properties":{}}`, got.GetTools()[0].GetFunction().GetParameters(), name)
		}
	}
	r := question()
	r.Tools = []*toolv1.ToolInfo{search(`{"grok":{"depth":3}}`)}
	_, err := sent(t, "grok-4-fast", "", r)
	require.ErrorContains(t, err, "depth")
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST), "%v", err)
}

// Options that only some models take, and arguments that all requests have.
func TestOptionsByModel(t *testing.T) {
	t.Parallel()
	config := func() *modelv1.GenerateConfig {
		return &modelv1.GenerateConfig{
			ReasoningEffort: new("max"), StopSeqs: &modelv1.StringList{Values: []string{"END"}}, FrequencyPenalty: new(0.5), PresencePenalty: new(0.25),
			MaxTokens: new(int64(1 << 40)), Seed: new(int64(-4)),
		}
	}
	for name, tt := range map[string]struct {
		effort    *xai.ReasoningEffort
		penalties bool
	}{
		"grok-2-1212":     {nil, true},
		"grok-3":          {nil, false},
		"grok-3-mini":     {xai.ReasoningEffort_EFFORT_HIGH.Enum(), false},
		"grok-4":          {nil, false},
		"grok-4-latest":   {nil, false},
		"grok-4-0709-us":  {nil, false},
		"grok-4-fast":     {xai.ReasoningEffort_EFFORT_XHIGH.Enum(), false},
		"grok-4.20":       {xai.ReasoningEffort_EFFORT_XHIGH.Enum(), false},
		"sherlock-think":  {xai.ReasoningEffort_EFFORT_XHIGH.Enum(), false},
		"grok-5-reasoner": {xai.ReasoningEffort_EFFORT_XHIGH.Enum(), false},
	} {
		r := question()
		r.Config = config()
		got, err := sent(t, name, `{"service_tier":"priority"}`, r)
		require.NoError(t, err, name)
		assert.Equal(t, tt.effort, got.ReasoningEffort, name)
		assert.Equal(t, []any{tt.penalties, tt.penalties}, []any{len(got.GetStop()) == 1, got.FrequencyPenalty != nil && got.PresencePenalty != nil}, name)
		assert.Equal(t, xai.ServiceTier_SERVICE_TIER_PRIORITY, got.GetServiceTier(), name)
		assert.Equal(t, []int32{1<<31 - 1, -4}, []int32{got.GetMaxTokens(), got.GetSeed()}, name)
	}
}

// An effort that has no counterpart is left out, and said to be.
func TestAnEffortWithoutACounterpartIsSaid(t *testing.T) {
	t.Parallel()
	none := &modelv1.GenerateConfig{ReasoningEffort: new("none")}
	for name, why := range map[string]string{"grok-4-fast": "own default", "grok-4": "does not take it"} {
		unsent := provider.Fit(opened(t, name, ""), none).Unsent
		require.Len(t, unsent, 1, name)
		assert.Equal(t, "reasoning_effort", unsent[0].Option)
		assert.Contains(t, unsent[0].Why, why, name)
	}
}

// A record has the request without its pictures, and without the key.
func TestARecordHasNoPictures(t *testing.T) {
	t.Parallel()
	r := &provider.Request{Messages: []*modelv1.ChatMessage{{
		Role: modelv1.Role_ROLE_USER, Content: chat.ListContent(chat.TextPart("What is it?"), chat.ImagePart("data:image/png;base64,"+strings.Repeat("AAAA", 200))),
	}}, Record: provider.RecordAll}
	response, err := opened(t, "grok-4-fast", answering(t, said("fine"), nil)).Generate(t.Context(), r)
	require.NoError(t, err)
	assert.Contains(t, response.Call.GetRequestJson(), "What is it?")
	assert.NotContains(t, response.Call.GetRequestJson(), "AAAA")
	assert.Contains(t, response.Call.GetResponseJson(), "fine")
	assert.NotContains(t, response.Call.String(), "key-of-the-account")
}
