package providertest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/evalfleet/evalfleet/services/modelgw/internal/xai"
)

// upstreamRequest is a request that reached the server. Of gRPC the path is the method, the headers are the metadata,
// and the body is the JSON form of the message.
type upstreamRequest struct {
	Method  string            `json:"method"`
	Path    string            `json:"path"`
	Query   map[string]any    `json:"query"`
	Headers map[string]string `json:"headers"`
	Body    any               `json:"body"`

	header http.Header
}

// Paths of Google's API for files: where an upload begins, and where the server has content sent to.
const (
	uploadPath = "/upload/"
	filePath   = "/put/files/"
	// defaultFile is a file that can be used.
	defaultFile = `{"file":{"name":"files/f1","uri":"https://files.example/f1","state":"ACTIVE"}}`
)

// isUpload reports whether the request uploads a file.
func (u *upstreamRequest) isUpload() bool {
	return strings.HasPrefix(u.Path, uploadPath) || strings.HasPrefix(u.Path, filePath)
}

// target is where the request goes. Clients differ in what they escape in a path. The version of the Gemini API comes
// from the recorded client library.
func (u *upstreamRequest) target() string {
	path := u.Path
	if plain, err := url.PathUnescape(path); err == nil {
		path = plain
	}
	path = strings.Replace(path, "/v1beta/models/", "/v1/models/", 1)
	if path == uploadPath+"v1beta/files" {
		path = uploadPath + "v1/files"
	}
	return u.Method + " " + path
}

// upstreamResponse is the server's answer.
type upstreamResponse struct {
	// GRPC is the code of a failure over gRPC, such as `UNAVAILABLE`, and Message its text.
	GRPC    string            `json:"grpc"`
	Message string            `json:"message"`
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

	defaultConversation = `{"object":"conversation.response","conversation_id":"conv_0","outputs":[{"object":"entry","type":"message.output","id":"msg_0","role":"assistant",` +
		`"model":"served-model","content":"Done."}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`

	defaultConversationStream = `data: {"type":"message.output.delta","id":"msg_0","content":"Done."}` + "\n\n" +
		`data: {"type":"conversation.response.done","usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}` + "\n\n"

	messagesPath      = "/v1/messages"
	responsesPath     = "/responses" // at the end
	conversationsPath = "/v1/conversations"
	countPath         = "/v1/messages/count_tokens"
	defaultCount      = `{"input_tokens":7}`

	// noModels is a list of models.
	noModels = `{"object":"list","data":[]}`
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
	r.server = serveGRPC(t, r, &xaiChat{answer: r.serveXAI})
	return r
}

// URL is the server's root.
func (r *recorder) URL() string { return r.server.URL }

// addresses puts the server's root and its gRPC address into a text of a case.
func (r *recorder) addresses(text string) string {
	return strings.NewReplacer("$ROOT", r.URL(), "$GROK", r.server.Listener.Addr().String()).Replace(text)
}

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
	if strings.HasPrefix(got.Path, filePath) {
		got.Body = fmt.Sprintf("<%d bytes>", len(body))
	}
	for name, values := range request.URL.Query() {
		got.Query[name] = values[0]
	}
	answer := r.record(got)
	if strings.HasPrefix(got.Path, uploadPath) {
		w.Header().Set("X-Goog-Upload-Url", r.URL()+filePath+"f1")
	}
	if answer == nil {
		got.writeDefault(w)
		return
	}
	answer.write(w)
}

// record records a request and returns its answer; nil if the case has none.
func (r *recorder) record(got upstreamRequest) *upstreamResponse {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = append(r.requests, got)
	if len(r.answers) == 0 || got.Path == countPath || got.Method == http.MethodGet || got.isUpload() {
		return nil
	}
	answer := &r.answers[0]
	if len(r.answers) > 1 {
		r.answers = r.answers[1:]
	}
	return answer
}

// serveXAI answers a call of xAI's chat API.
func (r *recorder) serveXAI(ctx context.Context, method string, request *xai.GetCompletionsRequest) (*xai.GetChatCompletionResponse, error) {
	got := upstreamRequest{Method: "GRPC", Path: method, Query: map[string]any{}, header: http.Header{}}
	md, _ := metadata.FromIncomingContext(ctx)
	for name, values := range md {
		got.header[http.CanonicalHeaderKey(name)] = values
	}
	body, err := protojson.Marshal(request)
	if err != nil {
		return nil, err
	}
	_ = json.Unmarshal(body, &got.Body)
	switch answer := r.record(got); {
	case answer == nil:
		return Answer{Text: "Done."}.xai()
	case answer.GRPC != "":
		var code codes.Code
		if err := code.UnmarshalJSON([]byte(`"` + answer.GRPC + `"`)); err != nil {
			return nil, err
		}
		return nil, status.Error(code, answer.Message)
	default:
		response := &xai.GetChatCompletionResponse{}
		return response, protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(answer.Body, response) // Not all that xAI sends is read.
	}
}

// writeDefault answers in the format of the path.
func (u *upstreamRequest) writeDefault(w http.ResponseWriter) {
	whole, stream := defaultAnswer, defaultStream
	streams := strings.HasSuffix(u.Path, geminiStream)
	switch {
	case u.Method != http.MethodPost:
		whole = noModels
	case u.isUpload():
		whole = defaultFile
	case u.Path == messagesPath, strings.HasSuffix(u.Path, rawPredictWhole), strings.HasSuffix(u.Path, rawPredictStream):
		whole, stream = defaultMessage, defaultMessageStream
	case strings.HasSuffix(u.Path, invokeWhole), strings.HasSuffix(u.Path, invokeStream):
		whole = defaultMessage
	case strings.HasSuffix(u.Path, responsesPath):
		whole, stream = defaultResponse, defaultResponseStream
	case u.Path == conversationsPath:
		whole, stream = defaultConversation, defaultConversationStream
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
