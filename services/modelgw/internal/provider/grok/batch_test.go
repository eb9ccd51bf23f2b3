package grok_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/providertest"
)

func TestBatches(t *testing.T) {
	t.Parallel()
	providertest.RunBatch(t, providertest.BatchHarness{
		New: func(t *testing.T) (*providertest.BatchVendor, string, provider.Provider) {
			vendor, url := providertest.XAIBatches(t)
			return vendor, url, opened(t, "grok-4", url)
		},
		Path: "", InSteps: true, Answer: `{"id":"c"}`, Refusal: `{"code":3,"message":"bad"}`,
	})
}

// A batch whose requests were not all added before a crash is completed, and none of them is added twice.
func TestABatchThatLacksRequestsIsCompleted(t *testing.T) {
	t.Parallel()
	vendor, url := providertest.XAIBatches(t)
	api := opened(t, "grok-4", url).Capabilities().Batch.API
	lines := []provider.BatchLine{providertest.BatchLine("k-1", `{"model":"m"}`), providertest.BatchLine("k-2", `{"model":"m"}`)}
	intent := provider.BatchIntent{Key: "k", Requests: 2, Time: time.Now()}
	_, err := api.Submit(t.Context(), intent, lines[:1])
	require.NoError(t, err)
	id, err := api.Find(t.Context(), intent)
	require.NoError(t, err)
	assert.Empty(t, id)
	cancelled := intent
	cancelled.Cancelled = true
	id, err = api.Find(t.Context(), cancelled)
	require.NoError(t, err)
	assert.NotEmpty(t, id, "one that is to be cancelled is found as it is")
	made, err := api.Submit(t.Context(), intent, lines)
	require.NoError(t, err)
	require.Len(t, vendor.Batches(), 1)
	assert.Equal(t, []string{"k-1", "k-2"}, vendor.Batches()[0].IDs)
	id, err = api.Find(t.Context(), intent)
	require.NoError(t, err)
	assert.Equal(t, made, id)
}

// Requests that were added before one is refused have no caller any more, and are not to be paid for.
func TestABatchThatIsRefusedInPartIsCancelled(t *testing.T) {
	t.Parallel()
	vendor, url := providertest.XAIBatches(t)
	api := opened(t, "grok-4", url).Capabilities().Batch.API
	lines := []provider.BatchLine{providertest.BatchLine("k-1", `{"model":"m"}`), providertest.BatchLine("k-2", `{"model":"m"}`)}
	intent := provider.BatchIntent{Key: "k", Requests: 2, Time: time.Now()}
	_, err := api.Submit(t.Context(), intent, lines[:1])
	require.NoError(t, err)
	vendor.Do(func(v *providertest.BatchVendor) { v.Refuse = "a request is too long" })
	_, err = api.Submit(t.Context(), intent, lines)
	assert.ErrorContains(t, err, "a request is too long")
	require.Len(t, vendor.Batches(), 1)
	assert.True(t, vendor.Batches()[0].Cancelled)
}

// carrier answers every request with one answer.
type carrier struct {
	status int
	answer string
	asked  []string
}

func (c *carrier) Carry(_ context.Context, post provider.Post) (*http.Response, error) {
	c.asked = append(c.asked, string(post.Body))
	return &http.Response{StatusCode: c.status, Body: http.NoBody, Header: http.Header{}}, nil
}

// failing is a carrier that carries nothing.
type failing struct{ err error }

func (f failing) Carry(context.Context, provider.Post) (*http.Response, error) { return nil, f.err }

// bodied is a carrier's answer.
type bodied struct{ carrier }

func (c *bodied) Carry(ctx context.Context, post provider.Post) (*http.Response, error) {
	answer, err := c.carrier.Carry(ctx, post)
	answer.Body = body{strings.NewReader(c.answer)}
	return answer, err
}

type body struct{ *strings.Reader }

func (body) Close() error { return nil }

func TestACallIsCarried(t *testing.T) {
	t.Parallel()
	_, url := providertest.XAIBatches(t)
	p := opened(t, "grok-4", url)
	ask := func(c provider.Carrier) (*provider.Response, error) {
		question := chat.User("hi")
		return p.Generate(t.Context(), &provider.Request{Messages: []*modelv1.ChatMessage{question}, Config: &modelv1.GenerateConfig{}, Carrier: c})
	}
	c := &bodied{carrier{status: http.StatusOK, answer: `{"id":"c","outputs":[{"finishReason":"REASON_STOP","message":{"content":"fine","role":"ROLE_ASSISTANT"}}]}`}}
	response, err := ask(c)
	require.NoError(t, err)
	assert.Equal(t, "fine", chat.Text(chat.FirstMessage(response.Output)))
	assert.Contains(t, c.asked[0], `"text":"hi"`, "without blanks, so that it is always the same")

	_, err = ask(&bodied{carrier{status: http.StatusTooManyRequests, answer: `{"code":8,"message":"slow down"}`}})
	assert.Equal(t, provider.RateLimit, provider.ClassOfError(err), "%v", err)
	_, err = ask(&bodied{carrier{status: http.StatusOK, answer: `[]`}})
	failure, ok := provider.As(err)
	require.True(t, ok)
	assert.True(t, failure.Invalid)

	pending := rpcerr.BatchPending("grok/grok-4", "key", time.Minute, "the call waits for a batch")
	_, err = ask(failing{pending})
	assert.Equal(t, error(pending), err, "a failure of the carrier is none of the server's")
}
