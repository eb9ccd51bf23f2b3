package modelgw_test

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/modelgw"
)

// Pieces of answers, each a whole event.
const (
	chatPiece     = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"word \"}}]}\n\n"
	messageStart  = "data: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"usage\":{\"input_tokens\":5,\"cache_read_input_tokens\":7,\"output_tokens\":1}}}\n\n" + "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n"
	messagePiece  = "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"word \"}}\n\n"
	messageCloses = "data: {\"type\":\"content_block_stop\",\"index\":0}\n\n"
)

// flood sends pieces until no reader is left, and returns the number of sent bytes.
func flood(sent *atomic.Int64, gone chan<- struct{}, start, piece string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		defer func() { gone <- struct{}{} }()
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, start)
		many := strings.Repeat(piece, 1000)
		for r.Context().Err() == nil {
			n, err := io.WriteString(w, many)
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
	}
}

// An answer that is decoded into the canonical form has a bound, whether it is read or not: the vendor's stream is
// ended there, and the client receives the reason.
func TestAnAnswerWithoutEndIsEnded(t *testing.T) {
	t.Parallel()
	const bound = 1 << 20
	small := func(c *modelgw.Config, _ *modelgw.Deps) { c.MaxAnswerBytes = bound }
	for name, tt := range map[string]struct {
		path, model, start, piece string
		serve                     func(*testing.T, *vendor, ...setup) *web
	}{
		"from chat completions": {messagesPath, "openai/gpt-4o", "", chatPiece, serveWeb},
		"from messages":         {chatPath, "anthropic/claude-sonnet-4-5", messageStart, messagePiece, serveMessages},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var sent atomic.Int64
			gone := make(chan struct{}, 8)
			v := vendorWith(t, flood(&sent, gone, tt.start, tt.piece))
			g := tt.serve(t, v, small)
			body := read(t, g.post(t, tt.path, `{"model":"`+tt.model+`","max_tokens":5,"stream":true,`+user+`}`))
			waittest.For(t, gone, "the end of the vendor's stream")
			assert.Contains(t, body[max(0, len(body)-500):], "max_answer_bytes")
			assert.Less(t, sent.Load(), int64(16*bound), "no more is taken than the bound and what the connection holds")
			require.Eventually(t, func() bool { return g.inFlight(t) == 0 }, waitLimit, tick)

			g.stubborn(t, tt.path, `{"model":"`+tt.model+`","max_tokens":5,"stream":true,`+user+`}`)
			waittest.For(t, gone, "the end of the vendor's stream")
			require.Eventually(t, func() bool { return g.inFlight(t) == 0 }, waitLimit, tick)
			assert.Less(t, sent.Load(), int64(32*bound), "nor for a client that does not read")
		})
	}
}

// Large answers that come at once are read one after another where there is no room for both, and all are read.
func TestLargeAnswersTakeTurns(t *testing.T) {
	t.Parallel()
	long := `{"choices":[{"message":{"role":"assistant","content":"` + strings.Repeat("a", 4<<20) + `"},"finish_reason":"stop"}]}`
	g := serveWeb(t, vendorWith(t, says(http.StatusOK, "application/json", long)), func(c *modelgw.Config, _ *modelgw.Deps) { c.MaxAnswersBytes = 1 })
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			answer := g.post(t, messagesPath, `{"model":"openai/gpt-4o","max_tokens":5,`+user+`}`)
			assert.Equal(t, http.StatusOK, answer.StatusCode)
			assert.Greater(t, len(read(t, answer)), 4<<20)
		})
	}
	all.Wait()
}

// Streams that say more than there is room for are read one after another too, and to their ends. That what they say is
// counted, each provider shows (providertest.Run), and that there are turns, the tests of generate.Answers.
func TestLongStreamsTakeTurns(t *testing.T) {
	t.Parallel()
	piece := `data: {"choices":[{"index":0,"delta":{"content":"` + strings.Repeat("a", 1<<20) + `"}}]}` + "\n\n"
	long := strings.Repeat(piece, 4) + `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n"
	g := serveWeb(t, vendorWith(t, says(http.StatusOK, "text/event-stream", long)), func(c *modelgw.Config, _ *modelgw.Deps) { c.MaxAnswersBytes = 1 })
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			answer := g.post(t, messagesPath, `{"model":"openai/gpt-4o","max_tokens":5,"stream":true,`+user+`}`)
			assert.Contains(t, read(t, answer), "message_stop")
		})
	}
	all.Wait()
}

func TestAWholeAnswerIsBoundedToo(t *testing.T) {
	t.Parallel()
	long := `{"choices":[{"message":{"role":"assistant","content":"` + strings.Repeat("a", 2000) + `"},"finish_reason":"stop"}]}`
	g := serveWeb(t, vendorWith(t, says(http.StatusOK, "application/json", long)), func(c *modelgw.Config, _ *modelgw.Deps) { c.MaxAnswerBytes = 1000 })
	answer := g.post(t, messagesPath, `{"model":"openai/gpt-4o","max_tokens":5,`+user+`}`)
	assert.GreaterOrEqual(t, answer.StatusCode, 500)
	message, _, _ := failure(t, answer)
	assert.Contains(t, message, "max_answer_bytes")
}
