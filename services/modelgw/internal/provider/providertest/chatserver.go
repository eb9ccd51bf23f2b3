package providertest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
)

// ChatServer starts a server that speaks OpenAI's chat completions and returns these answers in order. It returns its
// base URL.
func ChatServer(t testing.TB, answers ...Answer) string {
	t.Helper()
	return serve(t, &vendor{
		answers: answers, failure: `{"error":{"message":"failure %d","type":"test"}}`, stream: Answer.writeStream, whole: Answer.writeWhole,
	}) + "/v1"
}

type object = map[string]any

func (a Answer) calls() []object {
	if a.Function == "" {
		return nil
	}
	return []object{{"index": 0, "id": "call_1", "type": "function", "function": object{"name": a.Function, "arguments": a.Arguments}}}
}

func (a Answer) finish() string {
	if a.Function != "" {
		return "tool_calls"
	}
	return "stop"
}

var testUsage = object{"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}

func (a Answer) writeWhole(w http.ResponseWriter) {
	_ = json.NewEncoder(w).Encode(object{
		"id": "c1", "object": "chat.completion", "model": "served", "usage": testUsage,
		"choices": []object{{
			"index": 0, "finish_reason": a.finish(),
			"message": object{"role": "assistant", "content": a.Text, "tool_calls": a.calls()},
		}},
	})
}

// writeStream cuts the answer into pieces of three bytes.
func (a Answer) writeStream(w http.ResponseWriter) {
	send := func(choices []object, usage object) {
		document, _ := json.Marshal(object{"id": "c1", "object": "chat.completion.chunk", "model": "served", "choices": choices, "usage": usage})
		_, _ = fmt.Fprintf(w, "data: %s\n\n", document)
		_ = http.NewResponseController(w).Flush()
	}
	piece := func(delta object) { send([]object{{"index": 0, "delta": delta}}, nil) }
	for _, text := range cut(a.Text) {
		piece(object{"content": text})
	}
	if a.Function != "" {
		piece(object{"tool_calls": []object{{"index": 0, "id": "call_1", "type": "function", "function": object{"name": a.Function, "arguments": ""}}}})
		for _, text := range cut(a.Arguments) {
			piece(object{"tool_calls": []object{{"index": 0, "function": object{"arguments": text}}}})
		}
	}
	send([]object{{"index": 0, "delta": object{}, "finish_reason": a.finish()}}, nil)
	send([]object{}, testUsage)
	_, _ = fmt.Fprint(w, "data: [DONE]\n\n")
}

func cut(text string) []string {
	const size = 3
	var all []string
	for len(text) > size {
		all, text = append(all, text[:size]), text[size:]
	}
	return append(all, text)
}
