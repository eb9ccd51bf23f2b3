package modelgw_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/effect/memory"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/modeldata"
)

// compactor is a vendor that fails once and then compacts, and how often it was asked to.
func compactor(t *testing.T) (setup, *atomic.Int32) {
	t.Helper()
	asked := &atomic.Int32{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if !strings.HasSuffix(r.URL.Path, "/responses/compact") {
			_, _ = io.WriteString(w, `{"id":"resp_2","status":"completed","model":"gpt-5","output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"fine"}]}]}`)
			return
		}
		if asked.Add(1) == 1 {
			w.Header().Set("Retry-After", "0.001")
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, `{"id":"resp_1","object":"response.compaction","output":[{"type":"compaction","id":"cmp_1","encrypted_content":"c2VhbGVk"}],
			"usage":{"input_tokens":100,"output_tokens":7,"total_tokens":107}}`)
	}))
	t.Cleanup(server.Close)
	return func(c *modelConfig, _ *modelDeps) {
		c.OpenAI.APIKey, c.OpenAI.BaseURL, c.OpenAI.ResponsesAPI = config.NewSecret("k"), server.URL+"/v1", new(true)
	}, asked
}

func compaction() *modelv1.CompactRequest {
	return &modelv1.CompactRequest{
		Parent: project, RequestId: "r/1", Model: "openai/gpt-5", Messages: []*modelv1.ChatMessage{chat.System("s"), chat.User("q")}, Instructions: "Keep names.",
		Config: &modelv1.GenerateConfig{Cache: &modelv1.CacheSetting{Enabled: true}}, RecordCall: true,
	}
}

// A compaction is a call: it is tried again, counted, and made once under its key, across restarts.
func TestACompactionWithAKeyIsMadeOnce(t *testing.T) {
	t.Parallel()
	vendor, asked := compactor(t)
	ledger := &memory.Ledger{}
	g := start(t, vendor, withLedger(ledger, "one"))
	request := compaction()
	first, err := g.models.Compact(t.Context(), request)
	require.NoError(t, err)
	require.Len(t, first.GetMessages(), 1)
	assert.EqualValues(t, 107, first.GetUsage().GetTotalTokens())
	assert.EqualValues(t, 2, first.GetTiming().GetAttempts())
	assert.Len(t, first.GetFailedAttempts(), 1)
	assert.Contains(t, first.GetCall().GetRequestJson(), "Keep names.")

	budgets, err := g.limits.ListBudgets(t.Context(), &modelv1.ListBudgetsRequest{Parent: project})
	require.NoError(t, err)
	assert.EqualValues(t, 107, budgets.GetBudgets()[0].GetSpentTokens())
	pools, err := g.limits.ListConnectionPools(t.Context(), &modelv1.ListConnectionPoolsRequest{Parent: "accounts/openai/default"})
	require.NoError(t, err)
	require.Len(t, pools.GetConnectionPools(), 1)
	pool := pools.GetConnectionPools()[0]
	assert.Equal(t, "accounts/openai/default/connectionPools/gpt-5@compact", pool.GetName())
	assert.Equal(t, []any{int32(10), false}, []any{pool.GetLimit(), pool.GetAdaptive()})

	g.close()
	g = start(t, vendor, withLedger(ledger, "two"))
	again, err := g.models.Compact(t.Context(), request)
	require.NoError(t, err)
	assert.True(t, proto.Equal(first, again), "the answer that is kept")
	assert.EqualValues(t, 2, asked.Load())

	other := proto.CloneOf(request)
	other.Instructions = ""
	_, err = g.models.Compact(t.Context(), other)
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_REQUEST_ID_REUSED), "%v", err)
	_, err = g.models.Generate(t.Context(), &modelv1.GenerateRequest{
		Parent: project, RequestId: "r/1", Model: other.GetModel(), Messages: other.GetMessages(), Config: other.GetConfig(), RecordCall: true,
	})
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_REQUEST_ID_REUSED), "an answer is not a compaction: %v", err)
	stream, err := g.models.AttachGenerate(waittest.Context(t), &modelv1.AttachGenerateRequest{Parent: project, RequestId: "r/1"})
	require.NoError(t, err)
	_, err = receive(t, stream)
	assert.ErrorContains(t, err, "compaction")

	_, err = g.models.ReleaseRunGenerates(t.Context(), &modelv1.ReleaseRunGeneratesRequest{Parent: project, Runs: []string{project + "/runs/r"}})
	require.NoError(t, err)
	_, err = g.models.Compact(t.Context(), other)
	require.NoError(t, err, "its answer is released")
}

// A compaction that a killed process had in flight is made again, and says so.
func TestACompactionOfADeadProcessIsMadeAgain(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if asked.Add(1) == 1 {
			<-r.Context().Done()
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"output":[{"type":"compaction","encrypted_content":"c2VhbGVk"}]}`)
	}))
	t.Cleanup(server.Close)
	vendor := func(c *modelConfig, _ *modelDeps) {
		c.OpenAI.APIKey, c.OpenAI.BaseURL, c.OpenAI.ResponsesAPI = config.NewSecret("k"), server.URL+"/v1", new(true)
	}
	ledger, request := onDisk(t), compaction()
	dead := start(t, vendor, withLedger(dying{ledger}, "dead"))
	go func() { _, _ = dead.models.Compact(context.WithoutCancel(t.Context()), request) }()
	require.Eventually(t, func() bool { return asked.Load() == 1 }, waitLimit, tick, "the call has reached the vendor")
	dead.close()
	heir := start(t, vendor, withLedger(ledger, "heir"))
	answer, err := heir.models.Compact(t.Context(), request)
	require.NoError(t, err)
	assert.Len(t, answer.GetMessages(), 1)
	assert.True(t, answer.GetTiming().GetReissued())
	assert.EqualValues(t, 2, asked.Load())
}

// The messages of a compaction continue with the same provider, and with no other.
func TestACompactedConversationGoesOnWithItsProvider(t *testing.T) {
	t.Parallel()
	vendor, _ := compactor(t)
	g := start(t, vendor, func(c *modelConfig, _ *modelDeps) { c.Anthropic.APIKey = config.NewSecret("k") })
	short, err := g.models.Compact(t.Context(), compaction())
	require.NoError(t, err)
	messages := append([]*modelv1.ChatMessage{chat.System("s")}, short.GetMessages()...)
	messages = append(messages, chat.User("go on"))
	answer, err := g.models.Generate(t.Context(), &modelv1.GenerateRequest{Parent: project, Model: "openai/gpt-5", Messages: messages, RecordCall: true})
	require.NoError(t, err)
	assert.Contains(t, answer.GetCall().GetRequestJson(), `{"type":"compaction","id":"cmp_1","encrypted_content":"c2VhbGVk"}`)
	for _, model := range []string{"anthropic/claude-opus-4-8", "openai/gpt-5"} {
		args := ""
		if model == "openai/gpt-5" {
			args = `{"responses_api": false}`
		}
		_, err = g.models.Generate(t.Context(), &modelv1.GenerateRequest{Parent: project, Model: model, ModelArgsJson: args, Messages: messages})
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_CAPABILITY_UNSUPPORTED), "%s: %v", model, err)
	}
}

// A model without compaction is known before anything is called, and nothing is kept under the key.
func TestAModelWithoutCompactionIsRefused(t *testing.T) {
	t.Parallel()
	vendor, asked := compactor(t)
	g := start(t, vendor, func(c *modelConfig, _ *modelDeps) { c.Anthropic.APIKey = config.NewSecret("k") })
	for model, args := range map[string]string{"mockllm/model": "", "anthropic/claude-opus-4-1": "", "openai/gpt-5": `{"responses_api": false}`} {
		r := compaction()
		r.Model, r.ModelArgsJson = model, args
		_, err := g.models.Compact(t.Context(), r)
		require.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_CAPABILITY_UNSUPPORTED), "%s: %v", model, err)
		fault, _ := rpcerr.As(err)
		assert.Equal(t, "compaction", fault.Metadata["capability"])
		assert.ErrorContains(t, err, "summarise")
	}
	assert.Zero(t, asked.Load())
	_, err := g.models.Compact(t.Context(), compaction())
	require.NoError(t, err)
}

// A prefix is counted as the messages that it stands for.
func TestAPrefixIsCounted(t *testing.T) {
	t.Parallel()
	g := start(t)
	answer := begun(t, g)
	count := func(p *modelv1.MessagePrefix, messages ...*modelv1.ChatMessage) (*modelv1.CountTokensResponse, error) {
		return g.models.CountTokens(t.Context(), &modelv1.CountTokensRequest{Parent: project, Model: "mockllm/model", Prefix: p, Messages: messages})
	}
	whole, err := count(nil, chat.User("first"), chat.FirstMessage(answer.GetOutput()), chat.User("second"))
	require.NoError(t, err)
	short, err := count(answer.GetPrefix(), chat.User("second"))
	require.NoError(t, err)
	assert.Equal(t, whole.GetMessageTokens(), short.GetMessageTokens())
	alone, err := count(answer.GetPrefix())
	require.NoError(t, err)
	assert.Less(t, alone.GetMessageTokens(), whole.GetMessageTokens())
	unknown := proto.CloneOf(answer.GetPrefix())
	unknown.Count = 7
	_, err = count(unknown)
	assert.True(t, rpcerr.Is(err, unknownPrefix), "%v", err)
}

// A conversation that Claude compacted before is compacted again when the window is almost full that the operator has
// set for the model, for itself or by the model of which it is a kind.
func TestTheConfiguredWindowIsThatOfACompaction(t *testing.T) {
	t.Parallel()
	v := vendorWith(t, says(http.StatusOK, "application/json", `{"id":"msg_1","content":[{"type":"text","text":"so"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}`))
	g := start(t, func(c *modelConfig, _ *modelDeps) {
		c.Anthropic.APIKey, c.Anthropic.BaseURL = config.NewSecret("k"), v.URL
		c.Models = map[string]modeldata.Facts{
			"anthropic/claude-opus-4-8": {Context: 500_000}, "anthropic/our-claude": {Family: "anthropic/claude-sonnet-4-5", Display: "Ours"},
			"anthropic/claude-opus-4-7": {Context: 400_000, Input: 300_000}, "anthropic/claude-sonnet-4-6": {Context: 20_000}, "anthropic/claude-opus-4-6": {Display: "Opus"},
		}
	})
	known, _ := modeldata.Default().Find("anthropic/claude-sonnet-4-5")
	summary := chat.Assistant("")
	summary.Content = chat.ListContent(&contentv1.Content{Part: &contentv1.Content_Data{Data: &contentv1.Data{Json: `{"compaction_metadata":{"type":"anthropic_compact","content":"short"}}`}}})
	for model, from := range map[string]int64{
		"anthropic/claude-opus-4-8": 490_000, "anthropic/our-claude": known.Context - 10_000, "anthropic/claude-opus-4-7": 290_000,
		"anthropic/claude-sonnet-4-6": 50_000, // the least that the server compacts
		"anthropic/claude-opus-4-6":   990_000,
	} {
		_, err := g.models.Generate(t.Context(), &modelv1.GenerateRequest{Parent: project, Model: model, Messages: []*modelv1.ChatMessage{chat.User("q"), summary, chat.User("q")}})
		require.NoError(t, err)
		assert.Contains(t, string(<-v.body), fmt.Sprintf(`"trigger":{"type":"input_tokens","value":%d}`, from), model)
	}
}
