package modelgw_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/services/modelgw"
)

// BenchmarkLanes is a request at the endpoints, whose vendor answers at once: in the same format, and in the other one.
// It counts the client and the vendor too, which are the same in all.
func BenchmarkLanes(b *testing.B) {
	const pieces = 200
	text := strings.Repeat("a rather long answer ", 50)
	var chunks, events strings.Builder
	events.WriteString("event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"model\":\"m\",\"content\":[],\"usage\":{\"input_tokens\":3,\"output_tokens\":1}}}\n\n" +
		"event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n")
	for i := range pieces {
		fmt.Fprintf(&chunks, "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"word %d \"},\"finish_reason\":null}]}\n\n", i)
		fmt.Fprintf(&events, "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"word %d \"}}\n\n", i)
	}
	chunks.WriteString("data: {\"id\":\"c\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
	events.WriteString("event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n" +
		"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":200}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n")
	vendor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		streams, chat := strings.Contains(string(body), `"stream":true`), strings.HasSuffix(r.URL.Path, "/chat/completions")
		w.Header().Set("Content-Type", "application/json")
		if streams {
			w.Header().Set("Content-Type", "text/event-stream")
		}
		switch {
		case streams && chat:
			_, _ = io.WriteString(w, chunks.String())
		case streams:
			_, _ = io.WriteString(w, events.String())
		case chat:
			_, _ = io.WriteString(w, `{"id":"c","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"`+text+`"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}`)
		default:
			_, _ = io.WriteString(w, `{"id":"m","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"`+text+`"}],"stop_reason":"end_turn","usage":{"input_tokens":3,"output_tokens":2}}`)
		}
	}))
	b.Cleanup(vendor.Close)
	g := start(b, func(c *modelgw.Config, _ *modelgw.Deps) {
		c.OpenAI.APIKey, c.OpenAI.BaseURL = config.NewSecret("vendor-key"), vendor.URL+"/v1"
		c.Anthropic.APIKey, c.Anthropic.BaseURL = config.NewSecret("vendor-key"), vendor.URL
	})
	server := httptest.NewServer(g.web)
	b.Cleanup(server.Close)
	const model = "claude-3-5-haiku-latest"
	for _, bench := range []struct {
		name, path, model string
		stream            bool
		kib               int
	}{
		{"same format, 1 KiB", "/v1/chat/completions", "openai/gpt-4o", false, 1},
		{"same format, 100 KiB", "/v1/chat/completions", "openai/gpt-4o", false, 100},
		{"same format, stream", "/v1/chat/completions", "openai/gpt-4o", true, 1},
		{"messages of openai, 100 KiB", "/v1/messages", "openai/gpt-4o", false, 100},
		{"messages of openai, stream", "/v1/messages", "openai/gpt-4o", true, 1},
		{"completions of anthropic, 100 KiB", "/v1/chat/completions", "anthropic/" + model, false, 100},
		{"completions of anthropic, stream", "/v1/chat/completions", "anthropic/" + model, true, 1},
	} {
		b.Run(bench.name, func(b *testing.B) {
			content := strings.Repeat("0123456789abcde ", bench.kib*64)
			body := fmt.Sprintf(`{"model":%q,"max_tokens":100,"stream":%v,"messages":[{"role":"user","content":%q}]}`, bench.model, bench.stream, content)
			b.ReportAllocs()
			for b.Loop() {
				r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, server.URL+bench.path, strings.NewReader(body))
				require.NoError(b, err)
				r.Header.Set("Authorization", "Bearer right")
				answer, err := server.Client().Do(r)
				require.NoError(b, err)
				_, err = io.Copy(io.Discard, answer.Body)
				require.NoError(b, err)
				require.NoError(b, answer.Body.Close())
				require.Equal(b, http.StatusOK, answer.StatusCode)
			}
		})
	}
}
