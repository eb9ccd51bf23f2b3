package exchange_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/anthropic"
	"github.com/evalfleet/evalfleet/pkg/dialect/openaichat"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/exchange"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/transport"
)

const key = "sk-0123456789abcdef"

// said is an answer of an API.
type said struct {
	status     int
	kind, body string
}

const (
	document = "application/json"
	events   = "text/event-stream"
	page     = "text/html"
)

// ask makes an attempt against an API with these answers, and returns the number of reported streams without an end.
func ask(t *testing.T, codec dialect.Codec, quirks exchange.Quirks, answer said) (response *provider.Response, unfinished int, err error) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", answer.kind)
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(answer.status)
		_, _ = io.WriteString(w, answer.body)
	}))
	t.Cleanup(server.Close)
	client := transport.NewClient()
	t.Cleanup(client.CloseIdleConnections)
	x := &exchange.Exchange{Codec: codec, HTTP: transport.RedactSecrets(client, config.NewSecret(key)), Provider: "vendor", Quirks: quirks}
	request := &dialect.Request{Model: "m", Messages: []*modelv1.ChatMessage{chat.User("q")}, Stream: answer.kind != document}
	r := &provider.Request{Record: provider.RecordAll, Unfinished: func(*modelv1.ModelUsage, int64) { unfinished++ }}
	call := &exchange.Call{URL: server.URL, Header: http.Header{"Authorization": {"Bearer " + key}}, Model: "m", Stream: request.Stream}
	response, err = x.Do(t.Context(), r, call, func(dst []byte) ([]byte, error) { return codec.AppendRequest(dst, request) })
	return response, unfinished, err
}

// What an answer means is decided once, for every dialect and every provider.
func TestWhatAFailureMeans(t *testing.T) {
	t.Parallel()
	chat, messages := openaichat.Codec{}, anthropic.Codec{}
	const begun = `data: {"choices":[{"delta":{"content":"hal"}}]}` + "\n\n"
	const started = `data: {"type":"message_start","message":{"model":"m"}}` + "\n\n"
	for name, test := range map[string]struct {
		codec      dialect.Codec
		answer     said
		want       provider.Error // Class, Status, Auth, Invalid
		unfinished int
	}{
		"slow down":                      {chat, said{429, document, `{"error":{"message":"m"}}`}, provider.Error{Class: provider.RateLimit, Status: 429}, 0},
		"a fault of the API":             {messages, said{500, page, `<p>oops</p>`}, provider.Error{Class: provider.Transient, Status: 500}, 0},
		"a wrong key":                    {chat, said{401, document, `{"error":{"message":"m"}}`}, provider.Error{Status: 401, Auth: true}, 0},
		"words go before a status":       {messages, said{400, document, `{"error":{"message":"Overloaded"}}`}, provider.Error{Class: provider.Transient, Status: 400}, 0},
		"a redirect":                     {chat, said{302, document, ``}, provider.Error{Status: 502}, 0},
		"an error with a 200":            {messages, said{200, document, `{"error":{"type":"overloaded_error","message":"m"}}`}, provider.Error{Class: provider.Transient, Status: 529}, 0},
		"a code with a 200":              {chat, said{200, document, `{"error":{"code":503,"message":"m"}}`}, provider.Error{Class: provider.Transient, Status: 503}, 0},
		"words with a 200":               {chat, said{200, document, `{"error":{"message":"m"}}`}, provider.Error{Status: 200}, 0},
		"no answer":                      {chat, said{200, document, `{}`}, provider.Error{Status: 200, Invalid: true}, 0},
		"a page in place of a stream":    {messages, said{200, page, `<p>hello</p>`}, provider.Error{Status: 200, Invalid: true}, 0},
		"a stream without an event":      {messages, said{200, events, `hello`}, provider.Error{Class: provider.Transient, Status: 200}, 0},
		"an error within a stream":       {chat, said{200, events, begun + `data: {"error":{"message":"m"}}` + "\n\n"}, provider.Error{Class: provider.Transient, Status: 200}, 1},
		"too fast, within a stream":      {chat, said{200, events, `data: {"error":{"code":"rate_limit_exceeded","message":"m"}}` + "\n\n"}, provider.Error{Class: provider.RateLimit, Status: 429}, 0},
		"ours, within a stream of chat":  {chat, said{200, events, begun + `data: {"error":{"type":"invalid_request_error","message":"m"}}` + "\n\n"}, provider.Error{Status: 200}, 1},
		"our fault, within a stream":     {messages, said{200, events, started + `data: {"error":{"type":"invalid_request_error","message":"m"}}` + "\n\n"}, provider.Error{Status: 400}, 1},
		"what is no event of the format": {messages, said{200, events, started + "data: [\n\n"}, provider.Error{Status: 200, Invalid: true}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, unfinished, err := ask(t, test.codec, exchange.Quirks{}, test.answer)
			failure, ok := provider.As(err)
			require.True(t, ok, "%v", err)
			assert.Equal(t, test.want, provider.Error{Class: failure.Class, Status: failure.Status, Auth: failure.Auth, Invalid: failure.Invalid})
			assert.Equal(t, test.unfinished, unfinished)
			if failure.Class == provider.RateLimit {
				assert.Equal(t, 7*time.Second, failure.RetryAfter)
			}
		})
	}
}

// An error that represents an output ends the call; a stream that is cut off returns the received part.
func TestWhatIsNoFailure(t *testing.T) {
	t.Parallel()
	const full = `{"error":{"code":"context_length_exceeded","message":"too long"}}`
	for name, test := range map[string]struct {
		quirks     exchange.Quirks
		answer     said
		text       string
		stop       modelv1.StopReason
		unfinished int
	}{
		"a full context":                 {exchange.Quirks{}, said{400, document, full}, "too long", modelv1.StopReason_STOP_REASON_MODEL_LENGTH, 0},
		"with a 200":                     {exchange.Quirks{StopStatuses: []int{400}}, said{200, document, full}, "too long", modelv1.StopReason_STOP_REASON_MODEL_LENGTH, 0},
		"with another success":           {exchange.Quirks{StopStatuses: []int{400}}, said{201, document, full}, "too long", modelv1.StopReason_STOP_REASON_MODEL_LENGTH, 0},
		"an answer with such a status":   {exchange.Quirks{}, said{201, document, `{"choices":[{"message":{"content":"fine"},"finish_reason":"stop"}]}`}, "fine", modelv1.StopReason_STOP_REASON_STOP, 0},
		"within a stream":                {exchange.Quirks{}, said{200, events, "data: " + full + "\n\n"}, "too long", modelv1.StopReason_STOP_REASON_MODEL_LENGTH, 0},
		"a stream that is cut off":       {exchange.Quirks{}, said{200, events, `data: {"choices":[{"delta":{"content":"hal"}}]}` + "\n\n"}, "hal", modelv1.StopReason_STOP_REASON_UNKNOWN, 1},
		"a stream that is called a page": {exchange.Quirks{}, said{200, page, "\n" + `data: {"choices":[{"delta":{"content":"hal"}}]}` + "\n\n"}, "hal", modelv1.StopReason_STOP_REASON_UNKNOWN, 1},
		"words of its own": {exchange.Quirks{Stop: func(_ int, e *dialect.Error, model string) (*modelv1.ModelOutput, bool) {
			return chat.MessageOutput(model, chat.Assistant("own "+e.Message), modelv1.StopReason_STOP_REASON_MODEL_LENGTH), true
		}}, said{400, document, `{"error":{"message":"words"}}`}, "own words", modelv1.StopReason_STOP_REASON_MODEL_LENGTH, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			response, unfinished, err := ask(t, openaichat.Codec{}, test.quirks, test.answer)
			require.NoError(t, err)
			assert.Equal(t, test.text, chat.Completion(response.Output))
			assert.Equal(t, test.stop, chat.StopReason(response.Output))
			assert.Equal(t, test.unfinished, unfinished)
		})
	}
	_, _, err := ask(t, openaichat.Codec{}, exchange.Quirks{StopStatuses: []int{422}}, said{400, document, full})
	failure, ok := provider.As(err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, 400, failure.Status, "not at this status")
}

func TestTheKeyIsInNoErrorAndNoRecord(t *testing.T) {
	t.Parallel()
	for _, answer := range []said{
		{400, document, `{"error":{"message":"the key ` + key + ` is wrong"}}`},
		{500, page, key},
		{200, document, `{"error":{"message":"` + key + `"}}`},
		{200, events, `data: {"error":{"message":"` + key + `"}}` + "\n\n"},
		{200, document, key},
	} {
		_, _, err := ask(t, openaichat.Codec{}, exchange.Quirks{}, answer)
		failure, ok := provider.As(err)
		require.True(t, ok, "%v", err)
		require.NotNil(t, failure.Call)
		assert.NotContains(t, err.Error()+failure.Message+failure.Call.GetRequestJson()+failure.Call.GetResponseJson(), key)
	}
}

// cutOff is an API whose answer begins; then the context ends.
type cutOff struct {
	kind, begun string // begun is empty: the context ends before the answer
	cut         context.CancelFunc
}

func (c *cutOff) RoundTrip(r *http.Request) (*http.Response, error) {
	if c.begun == "" {
		return c.read(r)
	}
	header := http.Header{"Content-Type": {c.kind}}
	return &http.Response{StatusCode: http.StatusOK, Header: header, Body: io.NopCloser(io.MultiReader(strings.NewReader(c.begun), ender{c, r}))}, nil
}

func (c *cutOff) read(r *http.Request) (*http.Response, error) {
	c.cut()
	return nil, r.Context().Err()
}

type ender struct {
	*cutOff
	request *http.Request
}

func (e ender) Read([]byte) (int, error) {
	_, err := e.read(e.request)
	return 0, err
}

// The end of the context is no failure of the API, but its record says what was sent, and what had arrived.
func TestTheRecordOfAnExchangeThatIsCutOff(t *testing.T) {
	t.Parallel()
	const begun = `data: {"choices":[{"delta":{"content":"hal"}}]}` + "\n\n"
	for name, test := range map[string]struct {
		kind, begun, want string
	}{
		"before the answer": {document, "", ""},
		"within a document": {document, `{"choices":"` + key, `{"body":"{\"choices\":\"*******************"}`},
		"within a stream":   {events, begun, `{"events":[{"choices":[{"delta":{"content":"hal"}}]}]}`},
	} {
		for _, record := range []provider.Record{provider.RecordNone, provider.RecordFailures} {
			t.Run(fmt.Sprintf("%s, %d", name, record), func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithCancel(t.Context())
				client := &http.Client{Transport: &cutOff{test.kind, test.begun, cancel}}
				x := &exchange.Exchange{Codec: openaichat.Codec{}, HTTP: transport.RedactSecrets(client, config.NewSecret(key)), Provider: "vendor"}
				asked := &dialect.Request{Model: "m", Messages: []*modelv1.ChatMessage{chat.User("how are you?")}, Stream: test.kind != document}
				call := &exchange.Call{URL: "http://vendor", Header: http.Header{}, Model: "m", Stream: asked.Stream}
				_, err := x.Do(ctx, &provider.Request{Record: record}, call, func(dst []byte) ([]byte, error) { return x.Codec.AppendRequest(dst, asked) })
				require.ErrorIs(t, err, context.Canceled)
				_, failed := provider.As(err)
				assert.False(t, failed)
				cut := provider.ExchangeOf(err)
				require.Equal(t, record == provider.RecordFailures, cut != nil)
				if cut != nil {
					assert.True(t, cut.GetError())
					assert.Contains(t, cut.GetRequestJson(), "how are you?")
					assert.Equal(t, test.want, cut.GetResponseJson())
				}
			})
		}
	}
}

func TestWhatTheDialectCannotExpressIsSaid(t *testing.T) {
	t.Parallel()
	x := &exchange.Exchange{Codec: openaichat.Codec{}, Provider: "vendor"}
	_, err := x.Encode(func([]byte) ([]byte, error) {
		return nil, &dialect.UnsupportedError{API: "it", What: "video", Field: "messages"}
	})
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_CAPABILITY_UNSUPPORTED), "%v", err)
	assert.ErrorContains(t, err, "messages: vendor: it cannot take video")
	assert.True(t, rpcerr.Concerns("messages", err))
}
