package modelgw_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/effect"
	"github.com/evalfleet/evalfleet/pkg/effect/memory"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/modelgw"
	batchmemory "github.com/evalfleet/evalfleet/services/modelgw/internal/batch/memory"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/providertest"
)

// batching is a gateway whose models are those of a vendor of batches; a change may replace its stores.
func batching(url string, changes ...setup) []setup {
	return append([]setup{func(c *modelgw.Config, _ *modelgw.Deps) {
		c.OpenAI.APIKey, c.OpenAI.BaseURL = config.NewSecret("k"), url
		c.Anthropic.APIKey, c.Anthropic.BaseURL = config.NewSecret("k"), url
	}}, changes...)
}

// stores are those that outlive a gateway.
func stores(owner string, ledger effect.Ledger, batches *batchmemory.Store) setup {
	return func(_ *modelgw.Config, d *modelgw.Deps) { d.Ledger, d.Owner, d.Batches = ledger, owner, batches }
}

// batched is a request in a batch of n.
func batched(id, text string, n int32) *modelv1.GenerateRequest {
	asked := chat.User(text)
	asked.Id = "m1"
	return &modelv1.GenerateRequest{
		Parent: project, RequestId: id, Model: "openai/gpt-4o", Messages: []*modelv1.ChatMessage{asked},
		Config: &modelv1.GenerateConfig{Batch: &modelv1.BatchSetting{
			Enabled: true, Size: &n, SendDelay: durationpb.New(time.Hour), Tick: durationpb.New(10 * time.Millisecond),
		}},
	}
}

// echo answers a chat with what it was asked.
func echo(_ string, body []byte) (int, string) {
	var asked struct {
		Messages []struct {
			Content string `json:"content"`
		} `json:"messages"`
	}
	_ = json.Unmarshal(body, &asked)
	answer, _ := json.Marshal("echo " + asked.Messages[len(asked.Messages)-1].Content)
	return http.StatusOK, `{"id":"c","object":"chat.completion","model":"gpt-4o","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":` +
		string(answer) + `}}],"usage":{"prompt_tokens":1000000,"completion_tokens":0,"total_tokens":1000000}}`
}

func TestCallsInABatch(t *testing.T) {
	t.Parallel()
	vendor, url := providertest.OpenAIBatches(t)
	vendor.Do(func(v *providertest.BatchVendor) { v.Reply = echo })
	g := start(t, batching(url, func(c *modelgw.Config, _ *modelgw.Deps) {
		c.Budgets = map[string]modelgw.Budget{project: {MaxCost: new(100.0)}}
	})...)
	var calls sync.WaitGroup
	for i := range 3 {
		calls.Go(func() {
			id := fmt.Sprint("key-", i)
			if i == 0 {
				id = "" // Without a key, the call waits in the same way.
			}
			answer, err := g.models.Generate(t.Context(), batched(id, fmt.Sprint("question ", i), 3))
			if !assert.NoError(t, err) {
				return
			}
			assert.Equal(t, fmt.Sprint("echo question ", i), chat.Text(chat.FirstMessage(answer.GetOutput())))
			assert.InDelta(t, 1.25, answer.GetOutput().GetUsage().GetTotalCost(), 1e-9, "half of the plain price")
			assert.Nil(t, answer.GetOutput().Time)
		})
	}
	calls.Wait()
	budgets, err := g.limits.ListBudgets(t.Context(), &modelv1.ListBudgetsRequest{Parent: project})
	require.NoError(t, err)
	assert.InDelta(t, 3*1.25, budgets.GetBudgets()[0].GetSpentCost(), 1e-9)
	taken := vendor.Batches()
	require.Len(t, taken, 1)
	assert.Equal(t, "/v1/chat/completions", taken[0].Endpoint)
	assert.Len(t, taken[0].IDs, 3)

	again, err := g.models.Generate(t.Context(), batched("key-1", "question 1", 3))
	require.NoError(t, err)
	assert.Equal(t, "echo question 1", chat.Text(chat.FirstMessage(again.GetOutput())), "the stored answer")
	list, err := g.batches.ListBatches(t.Context(), &modelv1.ListBatchesRequest{Parent: project})
	require.NoError(t, err)
	require.Len(t, list.GetBatches(), 1)
	b := list.GetBatches()[0]
	assert.True(t, b.GetEnded())
	assert.EqualValues(t, 3, b.GetCompleted())
	assert.Equal(t, []string{"openai/gpt-4o", "default", taken[0].ID}, []string{b.GetModel(), b.GetAccount(), b.GetProviderId()})
	ended, err := g.batches.CancelBatch(t.Context(), &modelv1.CancelBatchRequest{Name: b.GetName()})
	require.NoError(t, err)
	assert.False(t, ended.GetCancelled())
	_, err = g.batches.CancelBatch(t.Context(), &modelv1.CancelBatchRequest{Name: project + "/batches/nosuch"})
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_RESOURCE_NOT_FOUND), "%v", err)
}

// xAI gives no one discount for batches: what an answer cost is in it, and else the dearest share counts.
func TestABudgetOfDollarsTakesGroksBatches(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		said string
		cost float64
	}{
		"the answer says what it cost": {`,"costInUsdTicks":"5000000000"`, 0.5},
		"it does not":                  {"", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			vendor, url := providertest.XAIBatches(t)
			vendor.Do(func(v *providertest.BatchVendor) {
				v.Reply = func(string, []byte) (int, string) {
					return http.StatusOK, `{"id":"c","outputs":[{"finishReason":"REASON_STOP","message":{"content":"fine","role":"ROLE_ASSISTANT"}}],"usage":{"promptTokens":1000000,"totalTokens":1000000` +
						tt.said + `}}`
				}
			})
			g := start(t, func(c *modelgw.Config, _ *modelgw.Deps) {
				c.Grok.APIKey, c.Grok.BaseURL = config.NewSecret("k"), url
				c.Budgets = map[string]modelgw.Budget{project: {MaxCost: new(100.0)}}
				c.Prices = map[string]modelgw.Price{"grok/grok-4.3": {Rates: modelgw.Rates{Input: new(1.25), Output: new(2.5)}}}
			})
			r := batched("key", "hi", 1)
			r.Model = "grok/grok-4.3"
			answer, err := g.models.Generate(t.Context(), r)
			require.NoError(t, err)
			assert.InDelta(t, tt.cost, answer.GetOutput().GetUsage().GetTotalCost(), 1e-9)
			assert.Empty(t, answer.GetWarnings())
		})
	}
}

func TestADeferredCallInABatchOutlivesTheGateway(t *testing.T) {
	t.Parallel()
	vendor, url := providertest.OpenAIBatches(t)
	vendor.Do(func(v *providertest.BatchVendor) { v.Reply, v.Hold = echo, true })
	ledger, batches := &memory.Ledger{}, &batchmemory.Store{}
	first := start(t, batching(url, stores("one", ledger, batches))...)
	ask := func(g *gateway) (*modelv1.GenerateResponse, error) {
		r := batched("run1/7", "hi", 1)
		r.DeferBatched = true
		return g.models.Generate(t.Context(), r)
	}
	for range 2 {
		_, err := ask(first)
		require.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_BATCH_PENDING), "%v", err)
		assert.Positive(t, rpcerr.RetryAfter(err))
		fault, _ := rpcerr.As(err)
		assert.Equal(t, map[string]string{"model": "openai/gpt-4o", "requestId": "run1/7"}, fault.Metadata)
	}
	require.Eventually(t, func() bool { return len(vendor.Batches()) == 1 }, waittest.Bound, time.Millisecond)
	first.close()

	second := start(t, batching(url, stores("two", ledger, batches))...)
	_, err := ask(second)
	require.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_BATCH_PENDING), "%v", err)
	vendor.Do(func(v *providertest.BatchVendor) { v.Hold = false })
	var answer *modelv1.GenerateResponse
	require.Eventually(t, func() bool {
		answer, err = ask(second)
		return err == nil
	}, waittest.Bound, 10*time.Millisecond)
	assert.Equal(t, "echo hi", chat.Text(chat.FirstMessage(answer.GetOutput())))
	assert.False(t, answer.GetTiming().GetReissued(), "no call was lost")
	assert.Len(t, vendor.Batches(), 1)
}

// A stop does not wait for a batch: the next process does for the calls with a key, and nobody for the others.
func TestAStopEndsTheWaitForABatch(t *testing.T) {
	t.Parallel()
	vendor, url := providertest.OpenAIBatches(t)
	batches := &batchmemory.Store{}
	g := start(t, batching(url, stores("one", &memory.Ledger{}, batches))...)
	ended := make(chan error, 2)
	for _, id := range []string{"", "run1/7"} {
		go func() {
			_, err := g.models.Generate(t.Context(), batched(id, "hi "+id, 9))
			ended <- err
		}()
	}
	waiting := func() int {
		pending, err := batches.Pending(t.Context())
		assert.NoError(t, err)
		return len(pending)
	}
	require.Eventually(t, func() bool { return waiting() == 2 }, waittest.Bound, time.Millisecond)
	g.stop()
	for range 2 {
		err := waittest.For(t, ended, "the call to end")
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_SERVICE_UNAVAILABLE), "%v", err)
	}
	assert.Equal(t, 1, waiting(), "that with a key")
	assert.Empty(t, vendor.Batches())
}

// xAI's batches are made first and filled afterwards. One whose filling a stop cut short is completed by the next
// process, and none is made twice. Its answers, of which some failed, reach their calls, with the cost that xAI
// reports.
func TestABatchOfXAIOutlivesTheGatewayAndFailsInPart(t *testing.T) {
	t.Parallel()
	vendor, url := providertest.XAIBatches(t)
	vendor.Do(func(v *providertest.BatchVendor) {
		v.Hold, v.LoseCreate = true, 1
		v.Reply = func(_ string, body []byte) (int, string) {
			switch {
			case strings.Contains(string(body), "wrong"):
				return http.StatusBadRequest, `{"code":3,"message":"no such thing"}`
			case strings.Contains(string(body), "busy"):
				return http.StatusServiceUnavailable, `{"code":14,"message":"busy"}`
			}
			return http.StatusOK, `{"id":"c","model":"grok-4",` +
				`"outputs":[{"finishReason":"REASON_STOP","message":{"content":"fine","role":"ROLE_ASSISTANT"}}],` +
				`"usage":{"promptTokens":1000000,"completionTokens":0,"totalTokens":1000000,"costInUsdTicks":"15000000000"}}`
		}
	})
	ledger, batches := &memory.Ledger{}, &batchmemory.Store{}
	changes := func(owner string) []setup {
		return []setup{stores(owner, ledger, batches), func(c *modelgw.Config, _ *modelgw.Deps) {
			c.Grok.APIKey, c.Grok.BaseURL = config.NewSecret("k"), url
		}}
	}
	texts := []string{"right", "wrong", "busy"}
	ask := func(g *gateway, text string) (*modelv1.GenerateResponse, error) {
		r := batched("run1/"+text, text, int32(len(texts)))
		r.Model, r.DeferBatched, r.Config.MaxRetries = "grok/grok-4", true, new(int32(0))
		return g.models.Generate(t.Context(), r)
	}
	first := start(t, changes("one")...)
	for _, text := range texts {
		_, err := ask(first, text)
		require.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_BATCH_PENDING), "%v", err)
	}
	require.Eventually(t, func() bool { return len(vendor.Batches()) == 1 }, waittest.Bound, time.Millisecond)
	first.close()

	second := start(t, changes("two")...)
	vendor.Do(func(v *providertest.BatchVendor) { v.Hold = false })
	outcome := func(text string) (answer *modelv1.GenerateResponse, err error) {
		require.Eventually(t, func() bool {
			answer, err = ask(second, text)
			return !rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_BATCH_PENDING)
		}, waittest.Bound, 10*time.Millisecond)
		return answer, err
	}
	answer, err := outcome("right")
	require.NoError(t, err)
	assert.Equal(t, "fine", chat.Text(chat.FirstMessage(answer.GetOutput())))
	assert.InDelta(t, 1.5, answer.GetOutput().GetUsage().GetTotalCost(), 1e-9)
	assert.NotContains(t, strings.Join(answer.GetWarnings(), "\n"), "cost")
	_, err = outcome("wrong")
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_REJECTED), "%v", err)
	assert.ErrorContains(t, err, "no such thing")
	_, err = outcome("busy")
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_UNAVAILABLE), "%v", err)
	assert.Len(t, vendor.Batches(), 1)
}

func TestAFailureInABatchIsRetriedAsOthersAre(t *testing.T) {
	t.Parallel()
	vendor, url := providertest.OpenAIBatches(t)
	vendor.Do(func(v *providertest.BatchVendor) {
		v.Reply = func(id string, body []byte) (int, string) {
			return http.StatusBadRequest, `{"error":{"message":"no such thing","type":"invalid_request_error"}}`
		}
	})
	g := start(t, batching(url)...)
	_, err := g.models.Generate(t.Context(), batched("key", "hi", 1))
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_REJECTED), "%v", err)
	assert.ErrorContains(t, err, "no such thing")
	vendor.Do(func(v *providertest.BatchVendor) {
		v.Reply = func(string, []byte) (int, string) {
			return http.StatusInternalServerError, `{"error":{"message":"busy"}}`
		}
	})
	r := batched("other", "hi", 1)
	r.Config.MaxRetries = new(int32(0))
	_, err = g.models.Generate(t.Context(), r)
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_UNAVAILABLE), "%v", err)
}

func TestBatchesOfAnthropicHaveTheHeadersOfTheirCalls(t *testing.T) {
	t.Parallel()
	vendor, url := providertest.AnthropicBatches(t)
	vendor.Do(func(v *providertest.BatchVendor) {
		v.Reply = func(string, []byte) (int, string) {
			return http.StatusOK, `{"id":"m","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[{"type":"text","text":"fine"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}`
		}
	})
	g := start(t, batching(url)...)
	r := batched("key", "hi", 1)
	r.Model = "anthropic/claude-sonnet-4-5"
	r.Config.ExtraHeaders = &modelv1.HeaderMap{Values: map[string]string{"anthropic-beta": "one", "x-other": "y"}}
	r.Config.FallbackModels = &modelv1.StringList{Values: []string{"claude-sonnet-4-0"}}
	answer, err := g.models.Generate(t.Context(), r)
	require.NoError(t, err)
	assert.Contains(t, answer.GetUnsentOptions(), "fallback_models")
	assert.Equal(t, "fine", chat.Text(chat.FirstMessage(answer.GetOutput())))
	assert.Contains(t, answer.GetUnsentOptions(), "extra_headers")
	require.Len(t, vendor.Batches(), 1)
	assert.Equal(t, "one", vendor.Batches()[0].Header.Get("Anthropic-Beta"))
	assert.Empty(t, vendor.Batches()[0].Header.Get("X-Other"))
	for _, body := range vendor.Batches()[0].Bodies {
		assert.NotContains(t, string(body), `"stream":true`)
	}
}

func TestAModelWithoutBatchesRefusesThem(t *testing.T) {
	t.Parallel()
	g := start(t)
	r := batched("", "hi", 1)
	r.Model = "mockllm/model"
	for _, check := range []bool{true, false} {
		r.ValidateOnly = check
		_, err := g.models.Generate(t.Context(), r)
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_CAPABILITY_UNSUPPORTED), "%v", err)
		assert.True(t, rpcerr.Concerns("config.batch", err), "%v", err)
	}
	r.ValidateOnly, r.Config.Batch = false, &modelv1.BatchSetting{}
	_, err := g.models.Generate(t.Context(), r)
	assert.NoError(t, err, "it is switched off")
	r.Config.Batch = &modelv1.BatchSetting{MaxConsecutiveCheckFailures: new(int32(5))}
	_, err = g.models.Generate(t.Context(), r)
	assert.True(t, rpcerr.Concerns("config.batch", err), "a schedule is not ignored: %v", err)
}

// TestARefusedRequestLeavesTheBatchOfItsKeyAlone: what is paid for is not dropped since another request has the key.
func TestARefusedRequestLeavesTheBatchOfItsKeyAlone(t *testing.T) {
	t.Parallel()
	vendor, url := providertest.OpenAIBatches(t)
	vendor.Do(func(v *providertest.BatchVendor) { v.Reply, v.Hold = echo, true })
	g := start(t, batching(url)...)
	ask := func(text string, epoch int64) (*modelv1.GenerateResponse, error) {
		r := batched("run1/7", text, 1)
		r.DeferBatched, r.Attribution = true, &effectv1.Attribution{Run: project + "/runs/run1", OwnerEpoch: epoch}
		return g.models.Generate(t.Context(), r)
	}
	_, err := ask("hi", 2)
	require.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_BATCH_PENDING), "%v", err)
	require.Eventually(t, func() bool { return len(vendor.Batches()) == 1 }, waittest.Bound, time.Millisecond)

	_, err = ask("hi", 1)
	require.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_NOT_OWNER), "%v", err)
	other := batched("run1/7", "something else", 1)
	other.DeferBatched = true
	_, err = g.models.Generate(t.Context(), other)
	require.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_REQUEST_ID_REUSED), "%v", err)

	vendor.Do(func(v *providertest.BatchVendor) { v.Hold = false })
	var answer *modelv1.GenerateResponse
	require.Eventually(t, func() bool {
		answer, err = ask("hi", 2)
		return err == nil
	}, waittest.Bound, 10*time.Millisecond)
	assert.Equal(t, "echo hi", chat.Text(chat.FirstMessage(answer.GetOutput())))
	assert.Len(t, vendor.Batches(), 1, "nothing is sent twice")
}

// TestABatchHasTheFirstKeyOfAnAccount: its calls are encoded for the address of that key, and blame no other one.
func TestABatchHasTheFirstKeyOfAnAccount(t *testing.T) {
	t.Parallel()
	vendor, url := providertest.OpenAIBatches(t)
	vendor.Do(func(v *providertest.BatchVendor) {
		v.Reply = func(string, []byte) (int, string) {
			return http.StatusTooManyRequests, `{"error":{"message":"slow down"}}`
		}
	})
	g := start(t, batching(url, func(c *modelgw.Config, _ *modelgw.Deps) {
		c.OpenAI.Keys = []provider.Key{{APIKey: config.NewSecret("second"), BaseURL: "https://elsewhere.example/v1"}}
	})...)
	var calls sync.WaitGroup
	for i := range 8 {
		calls.Go(func() {
			r := batched(fmt.Sprint("key-", i), strings.Repeat("q", i+1), 8)
			r.Config.MaxRetries = new(int32(0))
			_, err := g.models.Generate(waittest.Context(t), r)
			assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_RATE_LIMITED), "%v", err)
		})
	}
	calls.Wait()
	taken := vendor.Batches()
	require.Len(t, taken, 1, "another key is no other batch")
	assert.Equal(t, "/v1/chat/completions", taken[0].Endpoint)
	assert.Len(t, taken[0].IDs, 8)
}

// A batch is sent by the first key of its account, and so are the calls that are in it.
func TestCallsInABatchHaveTheFirstKey(t *testing.T) {
	t.Parallel()
	vendor, url := providertest.OpenAIBatches(t)
	vendor.Do(func(v *providertest.BatchVendor) { v.Reply = echo })
	g := start(t, batching(url, twoKeys)...)
	for i := range 6 {
		answer, err := g.models.Generate(waittest.Context(t), batched("", fmt.Sprint("question ", i), 1))
		require.NoError(t, err)
		assert.Equal(t, int32(1), answer.GetKey())
	}
	pools, err := g.limits.ListConnectionPools(t.Context(), &modelv1.ListConnectionPoolsRequest{Parent: "accounts/openai/default"})
	require.NoError(t, err)
	assert.Len(t, pools.GetConnectionPools(), 1)
}
