package providertest

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// upstreamRequest is a request that reached the server.
type upstreamRequest struct {
	Method  string            `json:"method"`
	Path    string            `json:"path"`
	Query   map[string]any    `json:"query"`
	Headers map[string]string `json:"headers"`
	Body    any               `json:"body"`

	header http.Header
}

// target is where the request goes. Clients differ in what they escape in a path. The version of the Gemini API comes
// from the recorded client library.
func (u *upstreamRequest) target() string {
	path := u.Path
	if plain, err := url.PathUnescape(path); err == nil {
		path = plain
	}
	if rest, ok := strings.CutPrefix(path, "/v1beta/models/"); ok {
		path = "/v1/models/" + rest
	}
	return u.Method + " " + path
}

// upstreamResponse is the server's answer.
type upstreamResponse struct {
	Status  int               `json:"status"`
	Headers map[string]string `json:"headers"`
	Body    json.RawMessage   `json:"body"`
	SSE     []struct {
		Event string          `json:"event"`
		Data  json.RawMessage `json:"data"`
	} `json:"sse"`
}

// defaultAnswer is the server's answer if the case has none.
const defaultAnswer = `{"id":"chatcmpl-0","object":"chat.completion","created":1700000000,"model":"served-model",` +
	`"choices":[{"index":0,"message":{"role":"assistant","content":"Done."},"finish_reason":"stop"}],` +
	`"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`

const defaultStream = `data: {"id":"chatcmpl-0","object":"chat.completion.chunk","model":"served-model","choices":[{"index":0,"delta":{"content":"Done."},"finish_reason":"stop"}]}` +
	"\n\ndata: [DONE]\n\n"

const (
	defaultMessage = `{"id":"msg_0","type":"message","role":"assistant","model":"served-model","content":[{"type":"text","text":"Done."}],` +
		`"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":1}}`

	defaultMessageStream = `data: {"type":"message_start","message":{"id":"msg_0","type":"message","role":"assistant","model":"served-model","content":[],"usage":{"input_tokens":1,"output_tokens":1}}}` +
		"\n\n" + `data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":1}}` + "\n\n" + `data: {"type":"message_stop"}` + "\n\n"

	defaultResponse = `{"id":"resp_0","object":"response","status":"completed","error":null,"incomplete_details":null,"model":"served-model",` +
		`"output":[{"id":"msg_0","type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"Done.","annotations":[]}]}],` +
		`"usage":{"input_tokens":1,"output_tokens":1,"total_tokens":2}}`

	defaultResponseStream = `data: {"type":"response.completed","response":` + defaultResponse + "}\n\n"

	messagesPath  = "/v1/messages"
	responsesPath = "/v1/responses"
	countPath     = "/v1/messages/count_tokens"
	defaultCount  = `{"input_tokens":7}`
)

// recorder is a server that records requests and returns recorded answers in order, repeating the last one.
type recorder struct {
	server *httptest.Server

	mu       sync.Mutex
	requests []upstreamRequest
	answers  []upstreamResponse
}

func newRecorder(t testing.TB, answers []upstreamResponse) *recorder {
	t.Helper()
	r := &recorder{answers: answers}
	r.server = httptest.NewServer(r)
	t.Cleanup(r.server.Close)
	return r
}

// URL is the server's root.
func (r *recorder) URL() string { return r.server.URL }

// Requests returns the requests that reached the server.
func (r *recorder) Requests() []upstreamRequest {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.requests
}

// ServeHTTP implements http.Handler.
func (r *recorder) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, _ := io.ReadAll(request.Body)
	got := upstreamRequest{Method: request.Method, Path: request.URL.Path, Query: map[string]any{}, header: request.Header}
	_ = json.Unmarshal(body, &got.Body)
	for name, values := range request.URL.Query() {
		got.Query[name] = values[0]
	}
	r.mu.Lock()
	r.requests = append(r.requests, got)
	var answer *upstreamResponse
	if len(r.answers) > 0 && got.Path != countPath {
		answer = &r.answers[0]
		if len(r.answers) > 1 {
			r.answers = r.answers[1:]
		}
	}
	r.mu.Unlock()
	if answer == nil {
		got.writeDefault(w)
		return
	}
	answer.write(w)
}

// writeDefault answers in the format of the path.
func (u *upstreamRequest) writeDefault(w http.ResponseWriter) {
	whole, stream := defaultAnswer, defaultStream
	streams := strings.HasSuffix(u.Path, geminiStream)
	switch {
	case u.Path == messagesPath:
		whole, stream = defaultMessage, defaultMessageStream
	case u.Path == responsesPath:
		whole, stream = defaultResponse, defaultResponseStream
	case u.Path == countPath:
		whole = defaultCount
	case strings.HasSuffix(u.Path, converseWhole):
		whole = converseAnswer(`{"text":"Done."}`, "end_turn")
	case streams || strings.HasSuffix(u.Path, geminiWhole):
		whole = geminiAnswer(geminiText("Done."), `,"finishReason":"STOP"`)
		stream = "data: " + whole + "\n\n"
	}
	if object, _ := u.Body.(map[string]any); streams || object["stream"] == true {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, stream)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, whole)
}

func (a *upstreamResponse) write(w http.ResponseWriter) {
	body := string(a.Body)
	w.Header().Set("Content-Type", "application/json")
	if a.SSE != nil {
		w.Header().Set("Content-Type", "text/event-stream")
		body = a.stream()
	}
	for name, value := range a.Headers {
		w.Header().Set(name, value)
	}
	var raw string
	if json.Unmarshal(a.Body, &raw) == nil {
		body = raw
	}
	if a.Status != 0 {
		w.WriteHeader(a.Status)
	}
	_, _ = io.WriteString(w, body)
}

func (a *upstreamResponse) stream() string {
	var b strings.Builder
	for _, event := range a.SSE {
		if event.Event != "" {
			b.WriteString("event: " + event.Event + "\n")
		}
		var data bytes.Buffer
		_ = json.Compact(&data, event.Data) // an event is one line, however the case is written
		var text string
		if json.Unmarshal(event.Data, &text) == nil {
			data.Reset()
			data.WriteString(text)
		}
		b.WriteString("data: " + data.String() + "\n\n")
	}
	return b.String()
}
