package modelgw_test

import (
	"cmp"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/services/modelgw"
)

// refuses is a vendor's 429 that asks to wait.
func refuses(seconds string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", seconds)
		says(http.StatusTooManyRequests, "application/json", `{"error":{"message":"slow down","type":"rate_limit_error"}}`)(w, r)
	}
}

// A wait that no client sits out is not begun: the vendor's word and its Retry-After go out at once.
func TestALongWaitIsTheClientsAffair(t *testing.T) {
	t.Parallel()
	for _, path := range []string{chatPath, messagesPath} {
		for _, stream := range []string{"true", "false"} {
			v := vendorWith(t, refuses("3600"))
			answer := serveWeb(t, v).post(t, path, `{"model":"openai/gpt-4o","max_tokens":5,"stream":`+stream+`,`+user+`}`)
			assert.Equal(t, http.StatusTooManyRequests, answer.StatusCode, path)
			assert.Equal(t, "3600", answer.Header.Get("Retry-After"), path)
			assert.Equal(t, "false", answer.Header.Get("X-Should-Retry"), path)
			assert.Len(t, v.body, 1, path)
		}
	}
}

// Only one of the two retries: the gateway, which then asks the client not to, or the client.
func TestRetriesDoNotMultiply(t *testing.T) {
	t.Parallel()
	for retries, should := range []string{"", "false"} {
		for _, path := range []string{chatPath, messagesPath} {
			v := vendorWith(t, refuses("0.001"))
			g := serveWeb(t, v, func(c *modelgw.Config, _ *modelgw.Deps) { c.Endpoints.MaxRetries = retries })
			answer := g.post(t, path, `{"model":"openai/gpt-4o","max_tokens":5,`+user+`}`)
			assert.Equal(t, http.StatusTooManyRequests, answer.StatusCode, path)
			assert.Equal(t, should, answer.Header.Get("X-Should-Retry"), path)
			assert.Len(t, v.body, retries+1, path)
		}
	}
}

// The lines of the log about a call have the id that its client was given, in both lanes.
func TestTheLogHasTheClientsRequestID(t *testing.T) {
	t.Parallel()
	for _, path := range []string{chatPath, messagesPath} {
		log := &safeBuffer{}
		g := serveWeb(t, vendorWith(t, refuses("0.001")), func(c *modelgw.Config, d *modelgw.Deps) {
			c.Endpoints.MaxRetries, d.Logger = 1, slog.New(slog.NewTextHandler(log, nil))
		})
		answer := g.post(t, path, `{"model":"openai/gpt-4o","max_tokens":5,`+user+`}`)
		id := cmp.Or(answer.Header.Get("X-Request-Id"), answer.Header.Get("Request-Id"))
		if path == messagesPath {
			require.NotEmpty(t, id)
		}
		assert.Regexp(t, `msg="model call is retried".* request_id="?req_`+strings.TrimPrefix(id, "req_"), log.String(), path)
	}
}

// Some clients end at a refusal that does not say when to ask again: one after which asking may help does, in whole
// seconds, as the platform's own do.
func TestARefusalSaysWhenToAskAgain(t *testing.T) {
	t.Parallel()
	const soon, spent = `{"error":{"message":"slow","type":"rate_limit_error","code":"rate_limit_exceeded"}}`, `{"error":{"message":"pay","type":"insufficient_quota","code":"insufficient_quota"}}`
	for _, tt := range []struct {
		status     int
		said, want string
	}{{http.StatusTooManyRequests, soon, "1"}, {http.StatusServiceUnavailable, soon, "1"}, {http.StatusTooManyRequests, spent, ""}, {http.StatusBadRequest, soon, ""}} {
		v := vendorWith(t, says(tt.status, "application/json", tt.said))
		g := serveWeb(t, v, throughResponses, func(c *modelgw.Config, _ *modelgw.Deps) { c.Endpoints.MaxRetries = 0 })
		answer := g.post(t, responsesPath, `{"model":"openai/gpt-5","input":"q"}`)
		assert.Equal(t, tt.status, answer.StatusCode)
		assert.Equal(t, tt.said, read(t, answer))
		assert.Equal(t, tt.want, answer.Header.Get("Retry-After"), "%d %s", tt.status, tt.said)
	}
	v := vendorWith(t, says(http.StatusTooManyRequests, "application/json", `{"error":{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED","details":[`+
		`{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34.5s"}]}}`))
	g := serveWeb(t, nil, func(c *modelgw.Config, _ *modelgw.Deps) {
		c.Google.APIKey, c.Google.BaseURL, c.Endpoints.MaxRetries = config.NewSecret("vendor-key"), v.URL, 0
	})
	assert.Equal(t, "35", g.post(t, geminiPath+"google/gemini-2.5-flash:generateContent", `{"contents":[]}`).Header.Get("Retry-After"), "Google says it in the body")
}

// An attempt without a vendor's error does not answer with that of the attempt before it.
func TestAnOldRefusalIsNotAnswered(t *testing.T) {
	t.Parallel()
	asked := 0
	v := vendorWith(t, func(w http.ResponseWriter, r *http.Request) {
		if asked++; asked == 1 {
			refuses("0.001")(w, r)
			return
		}
		http.Redirect(w, r, "/elsewhere", http.StatusFound)
	})
	g := serveWeb(t, v)
	answer := g.post(t, chatPath, `{"model":"openai/gpt-4o",`+user+`}`)
	assert.Equal(t, http.StatusBadGateway, answer.StatusCode)
	assert.Contains(t, read(t, answer), "the server redirects")
}
