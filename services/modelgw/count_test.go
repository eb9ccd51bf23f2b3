package modelgw_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/blob"
	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/config"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// counting is a vendor of both formats: each message is 100 tokens, and the tools together are 30.
func counting(t *testing.T, asked *atomic.Int32) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		type request struct{ Messages, Contents, Tools []json.RawMessage }
		var body struct {
			request
			Whole *request `json:"generateContentRequest"`
		}
		assert.NoError(t, json.NewDecoder(r.Body).Decode(&body))
		member := "input_tokens"
		if body.Whole != nil {
			body.request, member = *body.Whole, "totalTokens"
			assert.True(t, strings.HasSuffix(r.URL.Path, "/models/gemini-2.5-flash:countTokens"), r.URL.Path)
		} else {
			assert.Equal(t, "/v1/messages/count_tokens", r.URL.Path)
		}
		tokens := 100 * (len(body.Messages) + len(body.Contents))
		if len(body.Tools) > 0 {
			tokens += 30
		}
		fmt.Fprintf(w, `{"%s":%d}`, member, tokens)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestTokensAreCountedByTheProviderThatCanCount(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	url := counting(t, &asked)
	g := start(t, func(c *modelConfig, _ *modelDeps) {
		c.Anthropic.APIKey, c.Anthropic.BaseURL = config.NewSecret("k"), url
		c.Google.APIKey, c.Google.BaseURL = config.NewSecret("k"), url
	})
	talk := []*modelv1.ChatMessage{chat.User("q"), chat.Assistant("", chat.Call("id", "f", "{}")), chat.ToolMessage(&toolv1.ToolResult{CallId: "id", Function: "f", Content: chat.TextContent("r")})}
	tools := []*toolv1.ToolInfo{{Name: "f", Description: "d"}}
	for name, test := range map[string]struct {
		messages []*modelv1.ChatMessage
		tools    []*toolv1.ToolInfo
		want     []int64
		asked    int32
	}{
		"messages": {talk, nil, []int64{300, 0}, 1},
		"both":     {talk, tools, []int64{300, 30}, 3},
		"tools":    {nil, tools, []int64{1, 30}, 2},
	} {
		for _, model := range []string{"anthropic/claude-sonnet-4-5", "google/gemini-2.5-flash"} {
			asked.Store(0)
			count, err := g.models.CountTokens(t.Context(), &modelv1.CountTokensRequest{Parent: project, Model: model, Messages: test.messages, Tools: test.tools})
			require.NoError(t, err, name)
			assert.Equal(t, test.want, []int64{count.GetMessageTokens(), count.GetToolTokens()}, "%s of %s", name, model)
			assert.False(t, count.GetEstimated())
			assert.Equal(t, test.asked, asked.Load(), name)
		}
	}
	asked.Store(0)
	count, err := g.models.CountTokens(t.Context(), &modelv1.CountTokensRequest{Parent: project, Model: "anthropic/claude-sonnet-4-5"})
	require.NoError(t, err)
	assert.True(t, count.GetEstimated(), "there is nothing to ask for")
	assert.Zero(t, asked.Load())
}

// A number that a provider refuses is an error: an estimate in its place would look like the provider's.
func TestACountThatFailsIsNotEstimated(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "messages") {
			w.Header().Set("Retry-After", "600") // Longer than a question is repeated.
			w.WriteHeader(http.StatusTooManyRequests)
			fmt.Fprint(w, `{"type":"error","error":{"type":"rate_limit_error","message":"slowly"}}`)
			return
		}
		fmt.Fprint(w, `{}`)
	}))
	t.Cleanup(server.Close)
	g := start(t, func(c *modelConfig, _ *modelDeps) {
		c.Anthropic.APIKey, c.Anthropic.BaseURL = config.NewSecret("k"), server.URL
		c.Google.APIKey, c.Google.BaseURL = config.NewSecret("k"), server.URL
	})
	ask := func(model string) error {
		_, err := g.models.CountTokens(t.Context(), &modelv1.CountTokensRequest{Parent: project, Model: model, Messages: []*modelv1.ChatMessage{chat.User("q")}})
		return err
	}
	err := ask("anthropic/claude-sonnet-4-5")
	require.ErrorContains(t, err, "slowly")
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_RATE_LIMITED), "%v", err)
	err = ask("google/gemini-2.5-flash")
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_RESPONSE_INVALID), "%v", err)
}

// A question for a number is repeated as a call of the model is, in both lanes, and has connections of its own.
func TestACountIsRepeated(t *testing.T) {
	t.Parallel()
	var failures, asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		if failures.Add(-1) >= 0 {
			w.Header().Set("Retry-After-Ms", "1")
			w.Header().Set("Retry-After", "0.001")
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, `{"input_tokens":7}`)
	}))
	t.Cleanup(server.Close)
	g := serveWeb(t, nil, func(c *modelConfig, _ *modelDeps) {
		c.Anthropic.APIKey, c.Anthropic.BaseURL = config.NewSecret("k"), server.URL
	})
	for name, ask := range map[string]func() int64{
		"over gRPC": func() int64 {
			count, err := g.models.CountTokens(t.Context(), &modelv1.CountTokensRequest{
				Parent: project, Model: "anthropic/claude-sonnet-4-5", Messages: []*modelv1.ChatMessage{chat.User("q")},
			})
			require.NoError(t, err)
			return count.GetMessageTokens()
		},
		"as bytes": func() int64 {
			answer := g.post(t, "/v1/messages/count_tokens", `{"model":"anthropic/claude-sonnet-4-5","messages":[{"role":"user","content":"q"}]}`)
			require.Equal(t, http.StatusOK, answer.StatusCode)
			var said struct {
				InputTokens int64 `json:"input_tokens"`
			}
			require.NoError(t, json.Unmarshal([]byte(read(t, answer)), &said))
			return said.InputTokens
		},
	} {
		asked.Store(0)
		failures.Store(2)
		assert.EqualValues(t, 7, ask(), name)
		assert.EqualValues(t, 3, asked.Load(), name)
	}
	pools, err := g.limits.ListConnectionPools(t.Context(), &modelv1.ListConnectionPoolsRequest{Parent: "accounts/anthropic/default"})
	require.NoError(t, err)
	require.Len(t, pools.GetConnectionPools(), 1)
	pool := pools.GetConnectionPools()[0]
	assert.Equal(t, []any{"accounts/anthropic/default/connectionPools/claude-sonnet-4-5@count", int32(10)}, []any{pool.GetName(), pool.GetLimit()})
}

// Tools that a server counts as less than none count nothing.
func TestNoNumberOfTokensIsNegative(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		tokens := 9
		if strings.Contains(string(body), `"tools"`) {
			tokens = 5
		}
		fmt.Fprintf(w, `{"input_tokens":%d}`, tokens)
	}))
	t.Cleanup(server.Close)
	g := start(t, func(c *modelConfig, _ *modelDeps) {
		c.Anthropic.APIKey, c.Anthropic.BaseURL = config.NewSecret("k"), server.URL
	})
	count, err := g.models.CountTokens(t.Context(), &modelv1.CountTokensRequest{
		Parent: project, Model: "anthropic/claude-sonnet-4-5", Messages: []*modelv1.ChatMessage{chat.User("q")}, Tools: []*toolv1.ToolInfo{{Name: "f", Description: "d"}},
	})
	require.NoError(t, err)
	assert.Equal(t, []int64{5, 0}, []int64{count.GetMessageTokens(), count.GetToolTokens()})
}

// All questions about a conversation have its key.
func TestACountHasTheKeyOfItsConversation(t *testing.T) {
	t.Parallel()
	keys := make(chan string, 3)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		keys <- r.Header.Get("X-Api-Key")
		fmt.Fprint(w, `{"input_tokens":7}`)
	}))
	t.Cleanup(server.Close)
	g := start(t, func(c *modelConfig, _ *modelDeps) {
		c.Anthropic.APIKey, c.Anthropic.BaseURL = config.NewSecret("0"), server.URL
		c.Anthropic.Keys = []provider.Key{{APIKey: config.NewSecret("1")}}
	})
	used := map[string]bool{}
	for i := range 20 {
		_, err := g.models.CountTokens(t.Context(), &modelv1.CountTokensRequest{
			Parent: project, Model: "anthropic/claude-sonnet-4-5", Messages: []*modelv1.ChatMessage{chat.User(fmt.Sprint(i))},
			Tools: []*toolv1.ToolInfo{{Name: "f", Description: "d"}},
		})
		require.NoError(t, err)
		key := <-keys
		assert.Equal(t, []string{key, key}, []string{<-keys, <-keys})
		used[key] = true
	}
	assert.Len(t, used, 2)
}

// Media that are stored reach the server that counts them. Those that cannot be read are no estimate.
func TestStoredMediaAreCounted(t *testing.T) {
	t.Parallel()
	sent := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		sent <- string(body)
		fmt.Fprint(w, `{"input_tokens":7,"totalTokens":7}`)
	}))
	t.Cleanup(server.Close)
	stored := strings.Repeat("ab", 32)
	g := start(t, func(c *modelConfig, d *modelDeps) {
		c.Anthropic.APIKey, c.Anthropic.BaseURL = config.NewSecret("k"), server.URL
		c.Google.APIKey, c.Google.BaseURL = config.NewSecret("k"), server.URL
		c.OpenAI.APIKey, c.OpenAI.BaseURL, c.OpenAI.ResponsesAPI = config.NewSecret("k"), server.URL, new(true)
		d.Blobs = func(_ context.Context, _, hash string) ([]byte, error) {
			if hash != stored {
				return nil, blob.ErrNotFound
			}
			return []byte("picture"), nil
		}
	})
	for _, model := range []string{"anthropic/claude-sonnet-4-5", "google/gemini-2.5-flash", "openai/gpt-5"} {
		ask := func(hash string) (*modelv1.CountTokensResponse, error) {
			picture := chat.User("")
			picture.Content = chat.ListContent(&contentv1.Content{Part: &contentv1.Content_Image{Image: &contentv1.Image{
				Media: &contentv1.Media{Source: &contentv1.Media_Blob{Blob: &contentv1.BlobRef{Hash: hash, MediaType: "image/png"}}},
			}}})
			return g.models.CountTokens(t.Context(), &modelv1.CountTokensRequest{Parent: project, Model: model, Messages: []*modelv1.ChatMessage{picture}})
		}
		count, err := ask(stored)
		require.NoError(t, err, model)
		assert.False(t, count.GetEstimated(), model)
		assert.Contains(t, waittest.For(t, sent, "the question"), "cGljdHVyZQ==", model)
		_, err = ask(strings.Repeat("cd", 32))
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST), "%s: %v", model, err)
	}
}

// A server that counts no tokens is no failure.
func TestTokensAreEstimatedWhereTheServerCountsNone(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	g := start(t, func(c *modelConfig, _ *modelDeps) {
		c.OpenAI.APIKey, c.OpenAI.BaseURL, c.OpenAI.ResponsesAPI = config.NewSecret("k"), server.URL, new(true)
	})
	count, err := g.models.CountTokens(t.Context(), &modelv1.CountTokensRequest{
		Parent: project, Model: "openai/gpt-5", Tools: []*toolv1.ToolInfo{{Name: "f", Description: "d"}},
		Messages: []*modelv1.ChatMessage{chat.User("hello"), chat.User("world")},
	})
	require.NoError(t, err)
	assert.True(t, count.GetEstimated())
	assert.EqualValues(t, 3, count.GetMessageTokens())
	assert.Positive(t, count.GetToolTokens())
}

// Media at an address are no obstacle to an estimate, also where a model of the same provider would be counted.
func TestMediaByTheirAddressAreEstimated(t *testing.T) {
	t.Parallel()
	g := start(t, func(c *modelConfig, _ *modelDeps) {
		c.OpenAI.APIKey, c.OpenAI.BaseURL = config.NewSecret("k"), "http://localhost:1"
		c.Google.APIKey, c.Google.BaseURL = config.NewSecret("k"), "http://localhost:1"
		c.Grok.APIKey, c.Grok.BaseURL = config.NewSecret("k"), "http://localhost:1"
	})
	picture := chat.User("")
	picture.Content = chat.ListContent(chat.ImagePart("https://example.com/a.png"))
	for _, model := range []string{"openai/gpt-4o", "google/gemini-2.5-flash", "grok/grok-4"} {
		count, err := g.models.CountTokens(t.Context(), &modelv1.CountTokensRequest{
			Parent: project, Model: model, Messages: []*modelv1.ChatMessage{picture},
		})
		require.NoError(t, err, model)
		assert.True(t, count.GetEstimated(), model)
		assert.EqualValues(t, 765, count.GetMessageTokens(), model)
	}
}
