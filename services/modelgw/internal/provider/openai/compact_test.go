package openai_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/config"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/openai"
)

// compactedDocument is an answer as OpenAI publishes it:
// https://platform.openai.com/docs/api-reference/responses/compact.
const compactedDocument = `{"id":"resp_1","object":"response.compaction","created_at":1764967971,"output":[
	{"id":"msg_0","type":"message","status":"completed","content":[{"type":"input_text","text":"Write a landing page."}],"role":"user"},
	{"id":"cmp_1","type":"compaction","encrypted_content":"c2VhbGVk"},
	{"id":"fc_1","type":"function_call","status":"completed","call_id":"c1","name":"python_exec","arguments":"{}"},
	{"type":"function_call_output","call_id":"c1","output":"2"}],
	"usage":{"input_tokens":139,"input_tokens_details":{"cached_tokens":0},"output_tokens":438,"output_tokens_details":{"reasoning_tokens":64},"total_tokens":577}}`

// compacting is a server with an answer to every request, and the requests that it received.
func compacting(t *testing.T, status int, document string) (url string, received *[]string) {
	t.Helper()
	received = &[]string{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		*received = append(*received, r.Method+" "+r.URL.RequestURI(), string(body))
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, document)
	}))
	t.Cleanup(server.Close)
	return server.URL, received
}

func compact(t *testing.T, p provider.Provider, r *provider.Request) (*provider.Response, error) {
	t.Helper()
	if r.Messages == nil {
		r.Messages = []*modelv1.ChatMessage{chat.System("s"), chat.User("q")}
	}
	if r.Config == nil {
		r.Config = &modelv1.GenerateConfig{ReasoningEffort: new("low")}
	}
	return p.(provider.Compactor).Compact(t.Context(), r, "Keep names.")
}

func TestAConversationIsCompacted(t *testing.T) {
	t.Parallel()
	url, received := compacting(t, http.StatusOK, compactedDocument)
	p := openAt(t, url+"/v1", "gpt-5", byResponses)
	assert.True(t, p.Capabilities().Features.GetCompaction())
	assert.False(t, openAt(t, url+"/v1", "gpt-4o", `{"responses_api": false}`).Capabilities().Features.GetCompaction(), "chat completions do not compact")
	history := chat.Assistant("", chat.Call("c1", "python", `{"code":"2"}`))
	response, err := compact(t, p, &provider.Request{
		Messages: []*modelv1.ChatMessage{chat.User("q"), history, chat.ToolMessage(&toolv1.ToolResult{CallId: "c1", Function: "python", Content: chat.TextContent("2")})},
		Tools:    []*toolv1.ToolInfo{{Name: "python", ParametersJson: `{"type":"object"}`}}, Record: provider.RecordAll,
	})
	require.NoError(t, err)
	require.Len(t, *received, 2)
	assert.Equal(t, "POST /v1/responses/compact", (*received)[0])
	var sent map[string]json.RawMessage
	require.NoError(t, json.Unmarshal([]byte((*received)[1]), &sent))
	assert.Len(t, sent, 3, "model, input, instructions")
	assert.Contains(t, string(sent["input"]), `"python_exec"`)

	require.Len(t, response.Compacted, 4)
	call := response.Compacted[2]
	assert.Equal(t, []string{"gpt-5", "python"}, []string{call.GetModel(), call.GetToolCalls()[0].GetFunction()}, "tools have the names that are offered")
	assert.Empty(t, response.Output.GetChoices())
	assert.Equal(t, []int64{139, 438, 64}, []int64{response.Output.GetUsage().GetInputTokens(), response.Output.GetUsage().GetOutputTokens(), response.Output.GetUsage().GetReasoningTokens()})
	assert.Contains(t, response.Call.GetResponseJson(), "response.compaction")
}

// A server without the endpoint does not compact; other failures are those of any call.
func TestAServerThatDoesNotCompact(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status   int
		document string
		want     errorsv1.ErrorReason
	}{
		"no route":               {404, `Not Found`, errorsv1.ErrorReason_ERROR_REASON_CAPABILITY_UNSUPPORTED},
		"another method":         {405, `{"detail":"Method Not Allowed"}`, errorsv1.ErrorReason_ERROR_REASON_CAPABILITY_UNSUPPORTED},
		"an unknown model":       {404, `{"error":{"message":"no such model","type":"invalid_request_error","code":"model_not_found"}}`, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_REJECTED},
		"an unknown deployment":  {404, `{"error":{"code":"DeploymentNotFound","message":"The API deployment for this resource does not exist."}}`, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_REJECTED},
		"too long":               {400, `{"error":{"message":"too long","type":"invalid_request_error","code":"context_length_exceeded"}}`, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_REJECTED},
		"overloaded":             {503, `{"error":{"message":"busy"}}`, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_UNAVAILABLE},
		"an answer that is none": {200, `{"id":"resp_1","output":[]}`, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_RESPONSE_INVALID},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, _ := compacting(t, test.status, test.document)
			_, err := compact(t, openAt(t, url+"/v1", "gpt-5", byResponses), &provider.Request{Record: provider.RecordFailures})
			err = provider.RPC(err)
			assert.True(t, rpcerr.Is(err, test.want), "%v", err)
			fault, ok := rpcerr.As(err)
			require.True(t, ok)
			require.Len(t, fault.Details, 1, "the exchange")
			if test.want == errorsv1.ErrorReason_ERROR_REASON_CAPABILITY_UNSUPPORTED {
				assert.ErrorContains(t, err, "summarise")
				assert.Equal(t, "compaction", fault.Metadata["capability"])
			}
		})
	}
}

// On Azure the version of the API follows the path.
func TestADeploymentOnAzureCompacts(t *testing.T) {
	t.Parallel()
	url, received := compacting(t, http.StatusOK, compactedDocument)
	kind, closeIdle := openai.Kind(openai.Config{Azure: openai.AzureConfig{APIKey: config.NewSecret("k"), BaseURL: url, APIVersion: "v1"}})
	t.Cleanup(func() { _ = closeIdle() })
	p, err := kind.Open(provider.Spec{Model: "azure/gpt-5", Account: provider.DefaultAccount})
	require.NoError(t, err)
	_, err = compact(t, p, &provider.Request{})
	require.NoError(t, err)
	assert.Equal(t, "POST /openai/responses/compact?api-version=v1", (*received)[0])
}
