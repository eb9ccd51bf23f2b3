package providertest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/evalfleet/evalfleet/pkg/dialect/awsstream"
)

// Operations of the Converse API, at the end of a path.
const (
	converseWhole  = "/converse"
	converseStream = "/converse-stream"
)

// ConverseServer starts a server that speaks Amazon Bedrock's Converse API and returns these answers in order. It
// returns its base URL.
func ConverseServer(t testing.TB, answers ...Answer) string {
	t.Helper()
	return serve(t, &vendor{answers: answers, failure: `{"message":"failure %d"}`, code: converseCode, stream: Answer.streamConverse, whole: Answer.wholeConverse})
}

// converseCode is the header that has the type of an error. AWS means the type and not the status.
func converseCode(status int) (name, value string) {
	value = map[int]string{
		401: "UnrecognizedClientException", 408: "RequestTimeout", 409: "ConflictException", 429: "ThrottlingException", 500: "ServiceUnavailable",
		503: "ServiceUnavailableException",
	}[status]
	return "X-Amzn-Errortype", value + ":http://internal.amazon.com/coral/com.amazon.bedrock/"
}

func (a Answer) converseStop() string {
	if a.Function != "" {
		return "tool_use"
	}
	return "end_turn"
}

func (a Answer) wholeConverse(w http.ResponseWriter) {
	var blocks []string
	if a.Text != "" {
		text, _ := json.Marshal(a.Text)
		blocks = append(blocks, `{"text":`+string(text)+`}`)
	}
	if a.Function != "" {
		blocks = append(blocks, fmt.Sprintf(`{"toolUse":{"toolUseId":"tooluse_1","name":%q,"input":%s}}`, a.Function, a.input()))
	}
	_, _ = fmt.Fprint(w, converseAnswer(strings.Join(blocks, ","), a.converseStop()))
}

// converseUsage is the usage of each answer.
const converseUsage = `"usage":{"inputTokens":3,"outputTokens":2,"totalTokens":5},"metrics":{"latencyMs":5}`

// converseAnswer is an answer. Blanks in its blocks stay.
func converseAnswer(blocks, stop string) string {
	return `{"output":{"message":{"role":"assistant","content":[` + blocks + `]}},"stopReason":"` + stop + `",` + converseUsage + `}`
}

// streamConverse cuts the answer into pieces of three bytes.
func (a Answer) streamConverse(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/vnd.amazon.eventstream")
	frames := awsstream.NewWriter(w)
	send := func(name, payload string) {
		_ = frames.Send(awsstream.KindEvent, awsstream.HeaderEvent, name, []byte(payload))
		_ = http.NewResponseController(w).Flush()
	}
	place := 0
	block := func(form string, pieces []string) {
		for _, piece := range pieces {
			quoted, _ := json.Marshal(piece)
			send("contentBlockDelta", fmt.Sprintf(`{"contentBlockIndex":%d,"delta":`+form+`,"p":"abc"}`, place, quoted))
		}
		send("contentBlockStop", fmt.Sprintf(`{"contentBlockIndex":%d}`, place))
		place++
	}
	send("messageStart", `{"role":"assistant"}`)
	if a.Text != "" {
		block(`{"text":%s}`, cut(a.Text))
	}
	if a.Function != "" {
		send("contentBlockStart", fmt.Sprintf(`{"contentBlockIndex":%d,"start":{"toolUse":{"toolUseId":"tooluse_1","name":%q}}}`, place, a.Function))
		block(`{"toolUse":{"input":%s}}`, cut(a.Arguments))
	}
	send("messageStop", `{"stopReason":"`+a.converseStop()+`"}`)
	send("metadata", "{"+converseUsage+"}")
}
