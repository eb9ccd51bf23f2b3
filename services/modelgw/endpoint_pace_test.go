package modelgw_test

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/config"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/modelgw"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// A vendor that says with an answer that little remains of its limit gets no further call for a while, in whatever lane
// it comes: the call waits in the queue, and is not refused.
func TestCallsWaitWhereAVendorSaysThatLittleRemains(t *testing.T) {
	t.Parallel()
	generate := func(ctx context.Context, g *web) {
		_, _ = g.models.Generate(ctx, &modelv1.GenerateRequest{Parent: project, Model: "openai/gpt-4o", Messages: []*modelv1.ChatMessage{chat.User("q")}})
	}
	endpoint := func(path string) func(context.Context, *web) {
		return func(ctx context.Context, g *web) {
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, g.url+path, strings.NewReader(`{"model":"openai/gpt-4o","max_tokens":5,`+user+`}`))
			if err != nil {
				return
			}
			r.Header.Set("Authorization", "Bearer right")
			if answer, err := g.client.Do(r); err == nil {
				_ = answer.Body.Close()
			}
		}
	}
	for name, tt := range map[string]struct {
		status    int
		remaining string
		reset     string
		ask       func(context.Context, *web)
		asked     int
	}{
		"relayed":         {http.StatusOK, "1", "2h", endpoint(chatPath), 1},
		"converted":       {http.StatusOK, "1", "2h", endpoint(messagesPath), 1},
		"an evaluation":   {http.StatusOK, "1", "2h", generate, 1},
		"a refusal":       {http.StatusTooManyRequests, "0", "2h", endpoint(chatPath), 1},
		"much remains":    {http.StatusOK, "8", "2h", endpoint(chatPath), 2},
		"what is no time": {http.StatusOK, "1", "soon", endpoint(chatPath), 2},
		"what cannot be":  {http.StatusOK, "-1", "2h", endpoint(chatPath), 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := vendorWith(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Ratelimit-Limit-Requests", "10")
				w.Header().Set("X-Ratelimit-Remaining-Requests", tt.remaining)
				w.Header().Set("X-Ratelimit-Reset-Requests", tt.reset)
				says(tt.status, "application/json", whole)(w, r)
			})
			g := serveWeb(t, v, func(c *modelgw.Config, _ *modelgw.Deps) { c.Endpoints.MaxRetries = 0 })
			tt.ask(t.Context(), g)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			second := make(chan struct{})
			go func() {
				defer close(second)
				tt.ask(ctx, g)
			}()
			if tt.asked == 1 {
				require.Eventually(t, func() bool { return poolOf(t, g.gateway).GetWaiting() == 1 }, waitLimit, tick)
				leave()
			}
			waittest.For(t, second, "the end of the second call")
			assert.Len(t, v.body, tt.asked)
		})
	}
}

// A client that would leave during the pause is refused with the time to ask again, and a call for which another
// credential is ready takes that.
func TestAPauseIsNotWaitedForInVain(t *testing.T) {
	t.Parallel()
	v := vendorWith(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Ratelimit-Limit-Requests", "10")
		w.Header().Set("X-Ratelimit-Remaining-Requests", "1")
		w.Header().Set("X-Ratelimit-Reset-Requests", "2h")
		says(http.StatusOK, "application/json", whole)(w, r)
	})
	ask := `{"model":"openai/gpt-4o",` + user + `}`
	g := serveWeb(t, v, func(c *modelgw.Config, _ *modelgw.Deps) { c.Endpoints.MaxRetryWait = time.Second })
	read(t, g.post(t, chatPath, ask))
	refused := g.post(t, chatPath, ask)
	assert.Equal(t, http.StatusTooManyRequests, refused.StatusCode)
	after, err := strconv.Atoi(refused.Header.Get("Retry-After"))
	require.NoError(t, err)
	assert.Positive(t, after)
	assert.Contains(t, read(t, refused), "little left of a rate limit")
	assert.Len(t, v.body, 1)

	g = serveWeb(t, v, func(c *modelgw.Config, _ *modelgw.Deps) {
		c.OpenAI.Keys = []provider.Key{{APIKey: config.NewSecret("another")}}
	})
	read(t, g.post(t, chatPath, ask))
	read(t, g.post(t, chatPath, ask))
	assert.Len(t, v.body, 3)
	keys := map[string]bool{}
	for range 3 {
		keys[(<-v.asked).Header.Get("Authorization")] = true
	}
	assert.Len(t, keys, 2)
}
