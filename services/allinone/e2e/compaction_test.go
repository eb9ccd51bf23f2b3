package e2e_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// compactingVendor is a server of the Responses API whose model thinks until the conversation was compacted, and then
// submits. It counts the compactions.
func compactingVendor(t *testing.T) (address string, compactions *atomic.Int32) {
	t.Helper()
	compactions = &atomic.Int32{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var asked struct {
			Input []object `json:"input"`
		}
		_ = json.NewDecoder(r.Body).Decode(&asked)
		answer := func(output object, tokens int) {
			w.Header().Set("Content-Type", "application/json")
			usage := object{"input_tokens": tokens, "output_tokens": 1, "total_tokens": tokens + 1}
			_ = json.NewEncoder(w).Encode(object{"id": "r", "status": "completed", "model": "gpt-5", "output": []object{output}, "usage": usage})
		}
		calls := func(name, arguments string, tokens int) {
			answer(object{"type": "function_call", "id": "fc_" + name, "call_id": "call_" + name, "name": name, "arguments": arguments, "status": "completed"}, tokens)
		}
		switch compacted := len(asked.Input) > 0 && asked.Input[0]["type"] == "compaction"; {
		case strings.HasSuffix(r.URL.Path, "/compact"):
			compactions.Add(1)
			answer(object{"type": "compaction", "id": "cmp", "encrypted_content": "c2VhbGVk"}, 5000)
		case compacted:
			calls("submit", `{"answer":"42"}`, 100)
		default:
			calls("think", `{"thought":"long"}`, 5000)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL + "/v1", compactions
}

// An agent goes on with what its provider's own compaction left, also if the server is killed around it.
func TestAnAgentIsCompactedByItsProvider(t *testing.T) {
	t.Parallel()
	inEachForm(t, func(t *testing.T, f form) {
		for _, place := range []string{"", "agentorch/after-intent=3", "modelgw/after-claim=2"} {
			t.Run(place, func(t *testing.T) {
				t.Parallel()
				address, compactions := compactingVendor(t)
				once := filepath.Join(t.TempDir(), "once")
				h := newHome(t, &breakable, f, "EVALFLEET_FAILPOINT="+place, "EVALFLEET_FAILPOINT_ONCE="+once, "OPENAI_API_KEY=k", "OPENAI_BASE_URL="+address)
				c := h.serve()
				name := c.create(t, &agentv1.EvalSpec{
					Task: "compacted", Dataset: questions(1), Scorers: []*agentv1.ScorerRef{{Name: "includes"}}, Models: []*agentv1.ModelRef{{Model: "openai/gpt-5", ModelArgsJson: `{"responses_api": true}`}},
					Steps: []*agentv1.AgentRef{{
						Name: "react", ParamsJson: `{"prompt": null, "compaction": {"strategy": "native", "threshold": 1000}}`, Tools: []*toolv1.ToolRef{{Name: "think"}},
					}},
				})
				if place != "" {
					h.died()
					require.FileExists(t, once, "it was the failpoint that ended the server")
					c = h.serve()
				}
				eval := c.await(t, name)
				assert.Equal(t, agentv1.EvalState_EVAL_STATE_SUCCEEDED, eval.GetState())
				assert.Empty(t, eval.GetWarnings())
				assert.EqualValues(t, 1, compactions.Load())
				var kinds []string
				for _, e := range c.journal(t, c.samples(t, name)[0].GetRun()) {
					if k := e.GetCompacted(); k != nil {
						kinds = append(kinds, k.GetMetadataJson())
					}
				}
				require.Len(t, kinds, 1)
				assert.Contains(t, kinds[0], `"strategy":"native"`)
			})
		}
	})
}
