package providertest

import (
	"net/http"
	"testing"

	"github.com/evalfleet/evalfleet/pkg/dialect/awsstream"
)

// SageMakerServer starts a server that speaks chat completions as Amazon SageMaker hosts them, and returns these
// answers in order. It returns its base URL.
func SageMakerServer(t testing.TB, answers ...Answer) string {
	t.Helper()
	return serve(t, &vendor{answers: answers, failure: `{"message":"failure %d"}`, stream: Answer.streamSageMaker, whole: Answer.writeWhole})
}

// streamSageMaker is the stream of chat completions in frames.
func (a Answer) streamSageMaker(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/vnd.amazon.eventstream")
	a.writeStream(&framed{ResponseWriter: w, frames: awsstream.NewWriter(w)})
}

// framed makes a frame of each write.
type framed struct {
	http.ResponseWriter
	frames *awsstream.Writer
}

// Write implements io.Writer.
func (f *framed) Write(p []byte) (int, error) {
	return len(p), f.frames.Send(awsstream.KindEvent, awsstream.HeaderEvent, "PayloadPart", p)
}

// Unwrap is for http.ResponseController.
func (f *framed) Unwrap() http.ResponseWriter { return f.ResponseWriter }
