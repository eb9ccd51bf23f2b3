package e2e_test

import (
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

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
)

// wordy is a server in the format of OpenAI whose every answer has 3 MB; largest is the size of the largest request.
func wordy(t *testing.T) (server *httptest.Server, largest *atomic.Int64) {
	t.Helper()
	largest = &atomic.Int64{}
	piece := strings.Repeat("word ", 20_000)
	const pieces = 30
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var request struct{ Stream bool }
		if err != nil || json.Unmarshal(body, &request) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		for size := int64(len(body)); ; {
			if known := largest.Load(); known >= size || largest.CompareAndSwap(known, size) {
				break
			}
		}
		const usage = `"usage":{"prompt_tokens":5,"completion_tokens":7,"total_tokens":12}`
		if !request.Stream {
			_, _ = fmt.Fprintf(w, `{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":%q},"finish_reason":"stop"}],%s}`,
				strings.Repeat(piece, pieces), usage)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		chunk := func(rest string) {
			_, _ = fmt.Fprintf(w, "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",%s}\n\n", rest)
		}
		for range pieces {
			chunk(fmt.Sprintf(`"choices":[{"index":0,"delta":{"role":"assistant","content":%q},"finish_reason":null}]`, piece))
		}
		chunk(`"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],` + usage)
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	}))
	t.Cleanup(server.Close)
	return server, largest
}

// A text of 5 MB, answers of 3 MB and a conversation that grows beyond 20 MB are ordinary content, with a remote server
// that the model names.
func TestLargeContent(t *testing.T) {
	t.Parallel()
	inEachForm(t, func(t *testing.T, f form) {
		vendor, largest := wordy(t)
		h := newHome(t, &shipped, f)
		h.configure("modelgw", object{"modelgw": object{"openai_api": object{"services": object{"local": object{"base_url": vendor.URL + "/v1", "key_optional": true}}}}})
		h.serve()
		h.write("large.jsonl", text(t, object{"input": strings.Repeat("much ", 1_000_000), "target": "word"})+"\n")

		for name, tt := range map[string]struct {
			task string
			sent int64
		}{
			"one call":       {"solver: generate\n", 5_000_000},
			"a conversation": {"solver: react\nlimits: {turns: 6}\n", 20_000_000},
		} {
			largest.Store(0)
			task := h.write(strings.ReplaceAll(name, " ", "_")+".yaml", "dataset: large.jsonl\nscorer: includes\nmodel: openai-api/local/wordy\n"+tt.task)
			ran := h.run("eval", "run", task, "--json")
			require.Equal(t, 0, ran.code, "%s: %s", name, ran.err)
			eval := evalOf(t, ran)
			assert.Equal(t, agentv1.EvalState_EVAL_STATE_SUCCEEDED, eval.GetState(), name)
			assert.InDelta(t, 1, metric(t, eval, "includes", "accuracy"), 1e-9, name)
			assert.Greater(t, largest.Load(), tt.sent, "%s: bytes of the largest request", name)
			seen := h.run("logs", eval.GetName(), "--sample", "1", "--json")
			assert.Equal(t, 0, seen.code, "%s: %s", name, seen.err)
			assert.Greater(t, len(seen.out), 8_000_000, "%s: the transcript tells all", name)
		}
	})
}
