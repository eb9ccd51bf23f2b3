package providertest

import (
	"bytes"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/evalfleet/evalfleet/pkg/dialect/awsstream"
)

// Operations at the end of a path: of Amazon Bedrock's InvokeModel, and of models of partners on Vertex AI.
const (
	invokeWhole  = "/invoke"
	invokeStream = "/invoke-with-response-stream"

	rawPredictWhole  = ":rawPredict"
	rawPredictStream = ":streamRawPredict"
	rawPredictCount  = "/count-tokens:rawPredict"
)

// InvokeServer starts a server that speaks Anthropic's Messages API as Amazon Bedrock has it, and returns these answers
// in order. It returns its base URL.
func InvokeServer(t testing.TB, answers ...Answer) string {
	t.Helper()
	return serve(t, &vendor{answers: answers, failure: `{"message":"failure %d"}`, code: converseCode, stream: Answer.streamInvoke, whole: Answer.wholeMessage})
}

// streamInvoke is the stream of the Messages API in frames, each with one event.
func (a Answer) streamInvoke(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/vnd.amazon.eventstream")
	a.streamMessage(&invoked{ResponseWriter: w, frames: awsstream.NewWriter(w)})
}

// invoked makes a frame of each event.
type invoked struct {
	http.ResponseWriter
	frames *awsstream.Writer
}

// Write implements io.Writer. It is given one event.
func (i *invoked) Write(event []byte) (int, error) {
	_, data, _ := bytes.Cut(event, []byte("data: "))
	payload, err := json.Marshal(struct {
		Bytes []byte `json:"bytes"`
		P     string `json:"p"`
	}{bytes.TrimSpace(data), "abcdef"})
	if err != nil {
		return 0, err
	}
	return len(event), i.frames.Send(awsstream.KindEvent, awsstream.HeaderEvent, "chunk", payload)
}

// Unwrap is for http.ResponseController.
func (i *invoked) Unwrap() http.ResponseWriter { return i.ResponseWriter }
