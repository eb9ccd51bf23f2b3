package modelgw_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/telemetry"
	"github.com/evalfleet/evalfleet/services/modelgw"
)

// streams sends events and then ends as then says; nil ends well.
func streams(events string, then func(http.ResponseWriter, *http.Request)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, events)
		w.(http.Flusher).Flush()
		if then != nil {
			then(w, r)
		}
	}
}

// Ends of a vendor's stream.
var (
	breaksOff = func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	waits     = func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
)

func metricsOf(t *testing.T, registry *prometheus.Registry) string {
	t.Helper()
	page := httptest.NewRecorder()
	telemetry.Page(registry).ServeHTTP(page, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	return page.Body.String()
}

// What an answer took that did not come to its end is spent all the same, in both lanes, however it ended.
func TestABrokenAnswerIsPaidFor(t *testing.T) {
	t.Parallel()
	const failed = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n"
	for name, tt := range map[string]struct {
		events string
		then   func(http.ResponseWriter, *http.Request)
	}{
		"cut":             {messageStart + strings.Repeat(messagePiece, 20), breaksOff},
		"an error":        {messageStart + strings.Repeat(messagePiece, 20) + failed, nil},
		"the client left": {messageStart + strings.Repeat(messagePiece, 20), waits},
	} {
		for _, path := range []string{chatPath, messagesPath} {
			t.Run(name+path, func(t *testing.T) {
				t.Parallel()
				registry := prometheus.NewRegistry()
				g := serveMessages(t, vendorWith(t, streams(tt.events, tt.then)), func(_ *modelgw.Config, d *modelgw.Deps) { d.Registerer = registry })
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				answer := g.do(ctx, t, http.MethodPost, path, `{"model":"anthropic/claude-sonnet-4-5","max_tokens":50,"stream":true,`+user+`}`)
				if tt.then == nil {
					read(t, answer)
				}
				for lines, n := bufio.NewScanner(answer.Body), 0; tt.then != nil && n < 20 && lines.Scan(); {
					n += strings.Count(lines.Text(), "word")
				}
				leave()
				require.Eventually(t, func() bool { return g.inFlight(t) == 0 }, waitLimit, tick)
				require.Eventually(t, func() bool { return g.spent(t) >= 5+7+20 }, waitLimit, tick)
				assert.Less(t, g.spent(t), int64(5+7+20+5))
				for kind, tokens := range map[string]int{"input": 5, "cache_read": 7} {
					counted := fmt.Sprintf(`evalfleet_model_tokens_total{account="default",kind=%q,model="claude-sonnet-4-5",provider="anthropic"} %d`, kind, tokens)
					require.Eventually(t, func() bool { return strings.Contains(metricsOf(t, registry), counted) }, waitLimit, tick, counted)
				}
			})
		}
	}
	t.Run("without usage", func(t *testing.T) {
		t.Parallel()
		g := serveWeb(t, vendorWith(t, streams(strings.Repeat(chatPiece, 30), breaksOff)))
		read(t, g.post(t, messagesPath, `{"model":"openai/gpt-4o","max_tokens":50,"stream":true,`+user+`}`))
		require.Eventually(t, func() bool { return g.spent(t) >= 30 }, waitLimit, tick)
		assert.Less(t, g.spent(t), int64(60))
	})
}

// In both lanes an answer that ends before its end is measured as broken off, and no client takes it for whole.
func TestAnAnswerThatEndsBeforeItsEndIsMeasured(t *testing.T) {
	t.Parallel()
	const (
		failed  = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n"
		counted = `evalfleet_model_call_duration_seconds_count{account="default",model="claude-sonnet-4-5",outcome="broken_off",provider="anthropic"} 1`
	)
	for name, tt := range map[string]struct {
		answer http.HandlerFunc
		said   bool
	}{
		"an error":       {streams(messageStart+messagePiece+failed, nil), true},
		"without an end": {streams(messageStart+messagePiece+messageCloses, nil), false},
		"cut":            {streams(messageStart+messagePiece, breaksOff), false},
	} {
		for _, path := range []string{chatPath, messagesPath} {
			t.Run(name+path, func(t *testing.T) {
				t.Parallel()
				registry := prometheus.NewRegistry()
				g := serveMessages(t, vendorWith(t, tt.answer), func(_ *modelgw.Config, d *modelgw.Deps) { d.Registerer = registry })
				answer := g.post(t, path, `{"model":"anthropic/claude-sonnet-4-5","max_tokens":50,"stream":true,`+user+`}`)
				body, err := io.ReadAll(answer.Body)
				assert.Equal(t, path == messagesPath && !tt.said, err != nil, "as bytes it breaks off where the vendor said nothing: %v", err)
				assert.NotContains(t, string(body), `"finish_reason":"stop"`)
				assert.NotContains(t, string(body), "[DONE]")
				assert.Equal(t, path == chatPath || tt.said, strings.Contains(string(body), `"error"`), string(body))
				require.Eventually(t, func() bool { return strings.Contains(metricsOf(t, registry), counted) }, waitLimit, tick)
			})
		}
	}
}

// A stream in which nothing comes is an error with a status, as long as the client has seen nothing.
func TestAStreamWithoutAnythingIsAnError(t *testing.T) {
	t.Parallel()
	for name, vendor := range map[string]http.HandlerFunc{"empty": streams("", nil), "cut": streams("", breaksOff)} {
		g := serveWeb(t, vendorWith(t, vendor), func(c *modelgw.Config, _ *modelgw.Deps) { c.Endpoints.MaxRetries = 0 })
		answer := g.post(t, chatPath, `{"model":"openai/gpt-4o","stream":true,`+user+`}`)
		assert.Equal(t, http.StatusServiceUnavailable, answer.StatusCode, "one that may pass: %s", name)
		assert.Equal(t, "application/json", answer.Header.Get("Content-Type"), name)
		message, _, _ := failure(t, answer)
		assert.NotEmpty(t, message, name)
	}
}

// What is no answer at all is not passed on with a good status.
func TestWhatIsNoAnswerIsRefused(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{"a page": "<html>Log in</html>", "nothing": "", "a list": `[{"id":"x"}]`} {
		registry := prometheus.NewRegistry()
		v := vendorWith(t, says(http.StatusOK, "text/html", body))
		g := serveWeb(t, v, func(_ *modelgw.Config, d *modelgw.Deps) { d.Registerer = registry })
		answer := g.post(t, chatPath, `{"model":"openai/gpt-4o",`+user+`}`)
		assert.Equal(t, http.StatusBadGateway, answer.StatusCode, name)
		message, _, _ := failure(t, answer)
		assert.Contains(t, message, "no JSON object", name)
		counted := `outcome="provider_response_invalid",provider="openai"} 1`
		require.Eventually(t, func() bool { return strings.Contains(metricsOf(t, registry), counted) }, waitLimit, tick, name)
		assert.Len(t, v.body, 1, name)
	}
	v := vendorWith(t, says(http.StatusOK, "text/html; charset=utf-8", "<html>Log in</html>"))
	answer := serveWeb(t, v).post(t, messagesPath, `{"model":"openai/gpt-4o","max_tokens":9,"stream":true,`+user+`}`)
	assert.Equal(t, http.StatusBadGateway, answer.StatusCode, "a page in place of a stream that is read")
	assert.Len(t, v.body, 1, "another attempt would bring the page again")
}

// An answer that is not whole is charged, and is an error with a status as long as the client has seen nothing of it.
func TestHalfAnAnswerIsAnError(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	v := vendorWith(t, says(http.StatusOK, "application/json", whole[:100]))
	g := serveWeb(t, v, func(_ *modelgw.Config, d *modelgw.Deps) { d.Registerer = registry })
	answer := g.post(t, chatPath, `{"model":"openai/gpt-4o",`+user+`}`)
	assert.Equal(t, http.StatusBadGateway, answer.StatusCode)
	message, _, _ := failure(t, answer)
	assert.Contains(t, message, "the answer ended before its end")
	assert.Len(t, v.body, 1, "it is paid for, and not asked for again")
	require.Eventually(t, func() bool {
		all := metricsOf(t, registry)
		return strings.Contains(all, `outcome="broken_off"`) && strings.Contains(all, `evalfleet_model_tokens_total{account="default",kind="input"`)
	}, waitLimit, tick, "half an answer")

	half := func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, whole[:50])
		_ = http.NewResponseController(w).Flush()
		_, _ = io.WriteString(w, whole[50:100])
	}
	registry = prometheus.NewRegistry()
	g = serveWeb(t, vendorWith(t, half), func(_ *modelgw.Config, d *modelgw.Deps) { d.Registerer = registry })
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.url+chatPath, strings.NewReader(`{"model":"openai/gpt-4o",`+user+`}`))
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer right")
	answer, err = g.client.Do(r)
	if err == nil {
		_, err = io.ReadAll(answer.Body)
		_ = answer.Body.Close()
	}
	require.Error(t, err, "the client can tell")
	require.Eventually(t, func() bool { return strings.Contains(metricsOf(t, registry), `outcome="broken_off"`) }, waitLimit, tick, "half an answer")
}
