package openaicompat_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/config"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/openaicompat"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/providertest"
)

// openRaw configures the services that the recorded cases of raw prompts name.
func openRaw(t testing.TB, setup providertest.GoldenSetup) provider.Kind {
	t.Helper()
	account := provider.Account{APIKey: config.NewSecret(setup.APIKey), BaseURL: setup.BaseURL}
	kind, closeIdle := openaicompat.RawKind(openaicompat.Config{Services: map[string]provider.Account{setup.Service: account}})
	t.Cleanup(func() { _ = closeIdle() })
	return kind
}

func TestGoldenRawPrompts(t *testing.T) {
	t.Parallel()
	providertest.Golden(t, "request", []string{"providers/request/openai-api-completions/*.json"}, openRaw)
	providertest.Golden(t, "vllm", []string{"providers/request/vllm-completions/*.json"}, func(t testing.TB, setup providertest.GoldenSetup) provider.Kind {
		account := openaicompat.Account{Account: provider.Account{APIKey: config.NewSecret(setup.APIKey), BaseURL: setup.BaseURL}}
		return kindOf(t, "vllm-completions", openaicompat.Services{"vllm": {Account: account}})
	})
}

// rawAt opens a model that completes prompts, by a server with one answer.
func rawAt(t *testing.T, status int, answer string, asked *map[string]json.RawMessage) provider.Provider {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "/v1/completions", r.URL.Path)
		if asked != nil {
			assert.NoError(t, json.NewDecoder(r.Body).Decode(asked))
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = fmt.Fprint(w, answer)
	}))
	t.Cleanup(server.Close)
	p, err := openRaw(t, providertest.GoldenSetup{APIKey: "k", Service: "acme", BaseURL: server.URL + "/v1"}).
		Open(provider.Spec{Model: "acme/base", Account: provider.DefaultAccount})
	require.NoError(t, err)
	return p
}

func TestARawAnswer(t *testing.T) {
	t.Parallel()
	p := rawAt(t, http.StatusOK, `{"id":"c1","model":"served","usage":{"prompt_tokens":3,"completion_tokens":2},"choices":[
		{"index":1,"text":"two","finish_reason":"length"},
		{"index":0,"text":" one.","finish_reason":"stop",
		 "logprobs":{"tokens":[" one","."],"token_logprobs":[-0.5,null],"top_logprobs":[{" one":-0.5," two":-1.5},null]},
		 "prompt_logprobs":[null,{"7":{"logprob":-2.5,"decoded_token":" a"},"9":{"logprob":-0.1}}]}]}`, nil)
	response, err := p.Generate(t.Context(), &provider.Request{Messages: []*modelv1.ChatMessage{chat.User("q")}, Config: &modelv1.GenerateConfig{}})
	require.NoError(t, err)
	choices := response.Output.GetChoices()
	require.Len(t, choices, 2)
	assert.Equal(t, " one.", chat.Completion(response.Output))
	assert.Equal(t, modelv1.StopReason_STOP_REASON_STOP, choices[0].GetStopReason())
	assert.Equal(t, modelv1.StopReason_STOP_REASON_MAX_TOKENS, choices[1].GetStopReason())
	assert.Equal(t, int64(5), response.Output.GetUsage().GetTotalTokens())
	assert.Equal(t, "c1", response.Output.GetResponseId())
	assert.Empty(t, cmp.Diff(&modelv1.Logprobs{Content: []*modelv1.Logprob{{
		Token: " one", Logprob: -0.5, TopLogprobs: []*modelv1.TopLogprob{{Token: " one", Logprob: -0.5}, {Token: " two", Logprob: -1.5}},
	}}}, choices[0].GetLogprobs(), protocmp.Transform()))
	assert.Empty(t, cmp.Diff(&modelv1.Logprobs{Content: []*modelv1.Logprob{{
		Token: " a", Logprob: -2.5, TopLogprobs: []*modelv1.TopLogprob{{Token: "9", Logprob: -0.1}},
	}}}, choices[0].GetPromptLogprobs(), protocmp.Transform()))
}

// Each option is in the request, or said not to be.
func TestOptionsOfARawPrompt(t *testing.T) {
	t.Parallel()
	const options = `{"max_tokens": 9, "top_p": 0.9, "temperature": 0.5, "stop_seqs": ["END"], "frequency_penalty": 0.1, "presence_penalty": 0.2, "seed": 7,
		"num_choices": 2, "logprobs": true, "top_logprobs": 3, "prompt_logprobs": 2,
		"extra_body": {"echo": true, "metadata": {"a": 1}},
		"top_k": 4, "reasoning_effort": "low"}`
	c, err := chat.ParseConfig([]byte(options))
	require.NoError(t, err)
	var asked map[string]json.RawMessage
	p := rawAt(t, http.StatusOK, `{"choices":[]}`, &asked)
	_, err = p.Generate(t.Context(), &provider.Request{Messages: []*modelv1.ChatMessage{chat.User("q")}, Config: c})
	require.NoError(t, err)
	sent, err := json.Marshal(asked)
	require.NoError(t, err)
	assert.JSONEq(t, `{"model":"base","prompt":"q","max_tokens":9,"top_p":0.9,"temperature":0.5,"stop":["END"],"frequency_penalty":0.1,"presence_penalty":0.2,
		"seed":7,"n":2,"logprobs":3,"prompt_logprobs":2,"echo":true,"metadata":{"a":1}}`, string(sent))
	unsent := provider.Fit(p, c).Unsent
	assert.Equal(t, []provider.Unsent{{Option: "reasoning_effort", Why: "which does not take it"}, {Option: "top_k", Why: "which does not take it"}}, unsent)
}

// A server without the API, and answers that are none.
func TestRawFailures(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]struct {
		status int
		class  provider.Class
	}{
		`{"error":{"message":"Not Found"}}`:            {http.StatusNotFound, provider.Final},
		`{"error":{"message":"busy"}}`:                 {http.StatusServiceUnavailable, provider.Transient},
		`{"error":{"message":"Slow down","code":429}}`: {http.StatusOK, provider.RateLimit},
		`{}`:     {http.StatusOK, provider.Final},
		`<html>`: {http.StatusOK, provider.Transient},
	} {
		_, err := rawAt(t, want.status, body, nil).Generate(t.Context(), &provider.Request{Messages: []*modelv1.ChatMessage{chat.User("q")}, Config: &modelv1.GenerateConfig{}})
		failure, ok := provider.As(err)
		require.True(t, ok, "%s: %v", body, err)
		assert.Equal(t, want.class, failure.Class, body)
	}
}
