package openai_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// asked is a request with members that a question for its tokens lacks.
func asked() *provider.Request {
	return &provider.Request{
		Messages: []*modelv1.ChatMessage{chat.System("s"), chat.User("q")},
		Tools:    []*toolv1.ToolInfo{{Name: "python", Description: "d", ParametersJson: `{"type":"object"}`}},
		Config: &modelv1.GenerateConfig{
			MaxTokens: new(int64(9)), ReasoningEffort: new("low"), ExtraBodyJson: new(`{"user":"u"}`),
		},
	}
}

func TestTokensAreCountedByTheResponsesAPI(t *testing.T) {
	t.Parallel()
	url, received := compacting(t, http.StatusOK, `{"object":"response.input_tokens","input_tokens":11}`)
	tokens, err := openAt(t, url+"/v1", "gpt-5", byResponses).(provider.TokenCounter).CountTokens(t.Context(), asked())
	require.NoError(t, err)
	assert.EqualValues(t, 11, tokens)
	require.Len(t, *received, 2)
	assert.Equal(t, "POST /v1/responses/input_tokens", (*received)[0])
	var sent map[string]json.RawMessage
	require.NoError(t, json.Unmarshal([]byte((*received)[1]), &sent))
	known := []string{"input", "model", "reasoning", "tools"}
	assert.Equal(t, known, slices.Sorted(maps.Keys(sent)), "the server refuses members that it does not know")
	assert.Contains(t, string(sent["tools"]), `"python_exec"`, "tools have the names that are sent")
	assert.JSONEq(t, `{"effort":"low"}`, string(sent["reasoning"]),
		"a summary is output, which is refused to an organization that is not verified")
}

func TestWhatCountsNoTokensIsAskedOnce(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status   int
		document string
		args     string
		times    int
		want     string
	}{
		"chat completions": {200, `{}`, `{"responses_api": false}`, 0, provider.ErrCountsNone.Error()},
		"no route":         {404, `Not Found`, byResponses, 1, provider.ErrCountsNone.Error()},
		"another method":   {405, `{}`, byResponses, 1, provider.ErrCountsNone.Error()},
		"a lost item": {
			404, `{"error":{"message":"Item with id 'rs_1' not found.",
				"type":"invalid_request_error","param":"input","code":null}}`, byResponses, 2, "rs_1",
		},
		"an unknown model": {
			404, `{"error":{"message":"no such model","code":"model_not_found"}}`, byResponses, 2, "no such model",
		},
		"overloaded": {503, `{"error":{"message":"busy"}}`, byResponses, 2, "busy"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, received := compacting(t, test.status, test.document)
			p := openAt(t, url+"/v1", "gpt-5", test.args).(provider.TokenCounter)
			for range 2 {
				_, err := p.CountTokens(t.Context(), asked())
				require.ErrorContains(t, err, test.want)
			}
			assert.Len(t, *received, 2*test.times, "a line and a body each")
		})
	}
}

func TestARequestWithoutAConfigurationIsCounted(t *testing.T) {
	t.Parallel()
	url, _ := compacting(t, http.StatusOK, `{"input_tokens":3}`)
	r := &provider.Request{Messages: []*modelv1.ChatMessage{chat.User("q")}}
	tokens, err := openAt(t, url+"/v1", "gpt-5", byResponses).(provider.TokenCounter).CountTokens(t.Context(), r)
	require.NoError(t, err)
	assert.EqualValues(t, 3, tokens)
}
