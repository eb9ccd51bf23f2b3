package providertest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// Methods of the Gemini API, at the end of a path.
const (
	geminiWhole  = ":generateContent"
	geminiStream = ":streamGenerateContent"
)

// GeminiServer starts a server that speaks Google's Gemini API and returns these answers in order. It returns its base
// URL.
func GeminiServer(t testing.TB, answers ...Answer) string {
	t.Helper()
	return serve(t, &vendor{
		answers: answers, failure: `{"error":{"code":%d,"message":"failure","status":"TEST"}}`, stream: Answer.streamGemini, whole: Answer.wholeGemini,
	})
}

func (a Answer) wholeGemini(w http.ResponseWriter) {
	parts := []string{}
	if a.Text != "" {
		parts = append(parts, geminiText(a.Text))
	}
	if a.Function != "" {
		parts = append(parts, a.geminiCall())
	}
	_, _ = fmt.Fprint(w, geminiAnswer(strings.Join(parts, ","), `,"finishReason":"STOP"`))
}

// streamGemini cuts the text into pieces of three bytes; a call is whole.
func (a Answer) streamGemini(w http.ResponseWriter) {
	send := func(parts, finish string) {
		_, _ = fmt.Fprintf(w, "data: %s\r\n\r\n", geminiAnswer(parts, finish))
		_ = http.NewResponseController(w).Flush()
	}
	for _, text := range cut(a.Text) {
		send(geminiText(text), "")
	}
	if a.Function != "" {
		send(a.geminiCall(), "")
	}
	send(geminiText(""), `,"finishReason":"STOP"`)
}

func geminiText(text string) string {
	quoted, _ := json.Marshal(text)
	return `{"text":` + string(quoted) + `}`
}

func (a Answer) geminiCall() string {
	return fmt.Sprintf(`{"functionCall":{"name":%q,"args":%s},"thoughtSignature":"c2ln"}`, a.Function, a.input())
}

// geminiAnswer is an answer with one candidate. Blanks in its parts stay.
func geminiAnswer(parts, finish string) string {
	return `{"candidates":[{"content":{"role":"model","parts":[` + parts + `]}` + finish + `,"index":0}],` +
		`"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":2,"totalTokenCount":5},"modelVersion":"served","responseId":"r1"}`
}
