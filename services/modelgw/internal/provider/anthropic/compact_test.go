package anthropic_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/config"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/anthropic"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/providertest"
)

const (
	compactUsage = `"usage":{"input_tokens":5,"output_tokens":1,"iterations":[{"type":"compaction","input_tokens":60000,"output_tokens":900}]}`
	// summarized is an answer as Anthropic publishes it: https://platform.claude.com/docs/en/build-with-claude/compaction.
	summarized = `{"id":"m","model":"served","content":[{"type":"thinking","thinking":"What matters?","signature":"s"},
		{"type":"compaction","content":"short","encrypted_content":"c2VhbGVk"}],"stop_reason":"compaction",` + compactUsage + `}`
)

func compact(t *testing.T, url, args string, r *provider.Request, instructions string) (*provider.Response, error) {
	t.Helper()
	p, err := openModel(t, anthropic.Config{APIKey: config.NewSecret("k"), BaseURL: url}, provider.Spec{Model: "claude-opus-4-8", Args: args})
	require.NoError(t, err)
	if r.Messages == nil {
		r.Messages = []*modelv1.ChatMessage{chat.System("s"), chat.User("q")}
	}
	if r.Config == nil {
		r.Config = &modelv1.GenerateConfig{MaxTokens: new(int64(100))}
	}
	return p.(provider.Compactor).Compact(t.Context(), r, instructions)
}

// The edit of the context is the call's own, whatever else the context is to be edited by.
func TestAConversationIsCompacted(t *testing.T) {
	t.Parallel()
	const edit = `{"edits":[{"type":"compact_20260112","trigger":{"type":"input_tokens","value":50000},"pause_after_compaction":true}]}`
	const told = `{"edits":[{"type":"compact_20260112","trigger":{"type":"input_tokens","value":50000},"instructions":"Keep names.","pause_after_compaction":true}]}`
	for name, test := range map[string]struct{ args, extra, instructions, want string }{
		"plain":             {want: edit},
		"with instructions": {instructions: "Keep names.", want: told},
		"for others":        {extra: `{"context_management":{"edits":[{"type":"clear_tool_uses_20250919"}]}}`, want: edit},
		"for the model":     {args: `{"extra_body":{"context_management":{"edits":[]}}}`, want: edit},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, url := newVendor(t, map[string][]string{"/v1/messages": {summarized, plain}})
			r := &provider.Request{Config: &modelv1.GenerateConfig{MaxTokens: new(int64(100))}}
			if test.extra != "" {
				r.Config.ExtraBodyJson = &test.extra
			}
			response, err := compact(t, url, test.args, r, test.instructions)
			require.NoError(t, err)
			management, err := json.Marshal(v.asked[0].body["context_management"])
			require.NoError(t, err)
			assert.JSONEq(t, test.want, string(management))
			assert.Equal(t, "compact-2026-01-12", v.asked[0].header.Get("anthropic-beta"))

			require.Len(t, response.Compacted, 2)
			parts := response.Compacted[0].GetContent().GetList().GetParts()
			require.Len(t, parts, 1, "reasoning about the summary is left out")
			assert.JSONEq(t, `{"compaction_metadata":{"type":"anthropic_compact","content":"short","encrypted_content":"c2VhbGVk"}}`, parts[0].GetData().GetJson())
			assert.Equal(t, modelv1.Role_ROLE_USER, response.Compacted[1].GetRole())
			assert.Empty(t, response.Output.GetChoices())
			assert.GreaterOrEqual(t, response.Output.GetUsage().GetOutputTokens(), int64(1))

			generate(t, anthropic.Config{APIKey: config.NewSecret("k"), BaseURL: url}, provider.Spec{Model: "claude-opus-4-8"}, &provider.Request{
				Messages: append([]*modelv1.ChatMessage{chat.System("s")}, response.Compacted...),
			})
			last := v.asked[len(v.asked)-1]
			sent, err := json.Marshal(last.body["messages"])
			require.NoError(t, err)
			assert.Contains(t, string(sent), `"encrypted_content":"c2VhbGVk"`)
			assert.Equal(t, "compact-2026-01-12", last.header.Get("anthropic-beta"))
		})
	}
}

// A summary comes in one piece, and what the server needs to accept it again comes in others.
func TestACompactionIsStreamed(t *testing.T) {
	t.Parallel()
	const start, end = `{"type":"message_start","message":{"id":"m","model":"served","usage":{"input_tokens":5,"output_tokens":1}}}`, `{"type":"message_stop"}`
	for name, test := range map[string]struct{ block, delta, want string }{
		"a summary": {
			`{"type":"compaction","content":null}`, `{"type":"compaction_delta","content":"short","encrypted_content":"c2VhbGVk"}`,
			`{"compaction_metadata":{"type":"anthropic_compact","content":"short","encrypted_content":"c2VhbGVk","signature":"sig"}}`,
		},
		"none": {`{"type":"compaction","content":""}`, `{"type":"compaction_delta","content":null,"encrypted_content":null}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				for _, event := range []string{
					start, `{"type":"content_block_start","index":0,"content_block":` + test.block + `}`, `{"type":"content_block_delta","index":0,"delta":` + test.delta + `}`,
					`{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"sig"}}`, `{"type":"content_block_stop","index":0}`,
					`{"type":"message_delta","delta":{"stop_reason":"compaction"},"usage":{"output_tokens":2}}`, end,
				} {
					_, _ = io.WriteString(w, "data: "+event+"\n\n")
				}
			}))
			t.Cleanup(server.Close)
			response, err := compact(t, server.URL, `{"streaming": true}`, &provider.Request{}, "")
			if test.want == "" {
				assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_CAPABILITY_UNSUPPORTED), "%v", err)
				return
			}
			require.NoError(t, err)
			assert.JSONEq(t, test.want, response.Compacted[0].GetContent().GetList().GetParts()[0].GetData().GetJson())
		})
	}
}

// A summary whose end did not arrive may lack what the server needs to accept it: it is asked for again, and counted.
func TestACompactionThatBreaksOffIsNone(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, event := range []string{
			`{"type":"message_start","message":{"id":"m","model":"served","usage":{"input_tokens":5,"output_tokens":1}}}`,
			`{"type":"content_block_start","index":0,"content_block":{"type":"compaction","content":null}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"compaction_delta","content":"short"}}`,
		} {
			_, _ = io.WriteString(w, "data: "+event+"\n\n")
		}
	}))
	t.Cleanup(server.Close)
	counted := 0
	r := &provider.Request{Unfinished: func(*modelv1.ModelUsage, int64) { counted++ }}
	_, err := compact(t, server.URL, `{"streaming": true}`, r, "")
	failure, ok := provider.As(err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, provider.Transient, failure.Class)
	assert.Equal(t, 1, counted)
}

// A model that is asked to compact and does not is no failure of the server. What it took counts.
func TestAModelThatDoesNotCompact(t *testing.T) {
	t.Parallel()
	const unsupported, rejected = errorsv1.ErrorReason_ERROR_REASON_CAPABILITY_UNSUPPORTED, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_REJECTED
	for name, test := range map[string]struct {
		status   int
		document string
		want     errorsv1.ErrorReason
		counted  bool
	}{
		"it answers":            {200, plain, unsupported, true},
		"an empty block":        {200, `{"id":"m","model":"served","content":[{"type":"compaction","content":null}],"stop_reason":"end_turn",` + compactUsage + `}`, unsupported, true},
		"no context management": {400, `{"type":"error","error":{"type":"invalid_request_error","message":"claude-x does not support context management."}}`, unsupported, false},
		"no compaction":         {400, `{"type":"error","error":{"type":"invalid_request_error","message":"This model does not support the compact_20260112 strategy."}}`, unsupported, false},
		"a summary cut short":   {200, `{"id":"m","model":"served","content":[{"type":"compaction","content":"sho"}],"stop_reason":"max_tokens",` + compactUsage + `}`, rejected, true},
		"an unknown member":     {400, `{"message":"context_management: Extra inputs are not permitted"}`, unsupported, false},
		"an unknown feature":    {400, `{"message":"invalid beta flag"}`, unsupported, false},
		"another refusal":       {400, `{"type":"error","error":{"type":"invalid_request_error","message":"messages: at least one message is required"}}`, rejected, false},
		"too long":              {400, `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 300000 tokens > 200000 maximum"}}`, rejected, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(test.status)
				_, _ = io.WriteString(w, test.document)
			}))
			t.Cleanup(server.Close)
			counted := false
			r := &provider.Request{Record: provider.RecordFailures, Unfinished: func(*modelv1.ModelUsage, int64) { counted = true }}
			_, err := compact(t, server.URL, "", r, "")
			err = provider.RPC(err)
			assert.True(t, rpcerr.Is(err, test.want), "%v", err)
			fault, ok := rpcerr.As(err)
			require.True(t, ok)
			assert.Len(t, fault.Details, 1, "the exchange")
			assert.Equal(t, test.counted, counted)
			if test.want == unsupported {
				assert.ErrorContains(t, err, "summarise")
			}
		})
	}
}

// A cloud gets the preview feature where it reads such: Bedrock in the body, without which it refuses the edit, and
// Vertex AI in a header.
func TestACompactionInACloud(t *testing.T) {
	t.Parallel()
	for model, test := range map[string]struct{ path, version, header string }{
		"bedrock/us.anthropic.claude-opus-4-8": {
			"/model/us.anthropic.claude-opus-4-8/invoke", `"anthropic_version":"bedrock-2023-05-31","anthropic_beta":["of-the-request","compact-2026-01-12"]`, "compact-2026-01-12,of-the-request",
		},
		"vertex/claude-opus-4-8": {
			"/projects/p/locations/us-east5/publishers/anthropic/models/claude-opus-4-8:rawPredict", `"anthropic_version":"vertex-2023-10-16"`, "compact-2026-01-12,of-the-request",
		},
	} {
		t.Run(model, func(t *testing.T) {
			t.Parallel()
			v, url := newVendor(t, map[string][]string{test.path: {summarized}})
			c := bedrockAt(url)
			c.Vertex = anthropic.VertexConfig{BaseURL: url, Project: "p", Region: "us-east5"}
			c.Vertex.Credentials = providertest.GoogleCredentials(t)
			p, err := openModel(t, c, provider.Spec{Model: model, Args: `{"betas":["of-the-request"]}`})
			require.NoError(t, err)
			assert.True(t, p.Capabilities().Features.GetCompaction())
			response, err := p.(provider.Compactor).Compact(t.Context(), &provider.Request{
				Messages: []*modelv1.ChatMessage{chat.User("q")}, Config: &modelv1.GenerateConfig{MaxTokens: new(int64(100))},
			}, "")
			require.NoError(t, err)
			assert.Len(t, response.Compacted, 2)
			body, err := json.Marshal(v.asked[0].body)
			require.NoError(t, err)
			want := `{"max_tokens":100,"messages":[{"role":"user","content":"q"}],"context_management":` +
				`{"edits":[{"type":"compact_20260112","trigger":{"type":"input_tokens","value":50000},"pause_after_compaction":true}]},` + test.version
			if strings.HasPrefix(model, "vertex/") {
				want += `,"stream":false`
			}
			assert.JSONEq(t, want+"}", string(body))
			assert.Equal(t, test.header, v.asked[0].header.Get("anthropic-beta"))
		})
	}
}

func TestOldModelsDoNotCompact(t *testing.T) {
	t.Parallel()
	for model, want := range map[string]bool{"claude-opus-4-5": false, "claude-haiku-4-5": false, "claude-opus-4-6": true, "claude-sonnet-5": true, "claude-next": true} {
		p, err := openModel(t, anthropic.Config{APIKey: config.NewSecret("k")}, provider.Spec{Model: model})
		require.NoError(t, err)
		assert.Equal(t, want, p.Capabilities().Features.GetCompaction(), model)
	}
}
