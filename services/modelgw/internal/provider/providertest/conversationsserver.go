package providertest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
)

// ConversationsServer starts a server that speaks Mistral's Conversations API and returns these answers in order. It
// returns its base URL.
func ConversationsServer(t testing.TB, answers ...Answer) string {
	t.Helper()
	return serve(t, &vendor{
		answers: answers, failure: `{"object":"error","message":"failure %d","type":"test","param":null,"code":"3000"}`, stream: Answer.streamConversation, whole: Answer.wholeConversation,
	})
}

func (a Answer) wholeConversation(w http.ResponseWriter) {
	outputs := []object{}
	if a.Text != "" {
		outputs = append(outputs, object{"object": "entry", "type": "message.output", "id": "msg_1", "role": "assistant", "model": "served", "content": a.Text})
	}
	if a.Function != "" {
		outputs = append(outputs, object{
			"object": "entry", "type": "function.call", "id": "fc_1", "model": "served", "tool_call_id": "call_1", "name": a.Function, "arguments": a.Arguments,
		})
	}
	_ = json.NewEncoder(w).Encode(object{"object": "conversation.response", "conversation_id": "conv_1", "outputs": outputs, "usage": testUsage})
}

// streamConversation cuts the answer into pieces of three bytes.
func (a Answer) streamConversation(w http.ResponseWriter) {
	send := func(name string, members object) {
		members["type"] = name
		document, _ := json.Marshal(members)
		_, _ = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", name, document)
		_ = http.NewResponseController(w).Flush()
	}
	send("conversation.response.started", object{"conversation_id": "conv_1"})
	if a.Text != "" {
		for _, text := range cut(a.Text) {
			send("message.output.delta", object{"id": "msg_1", "output_index": 0, "content_index": 0, "model": "served", "role": "assistant", "content": text})
		}
	}
	if a.Function != "" {
		for _, text := range cut(a.Arguments) {
			send("function.call.delta", object{"id": "fc_1", "output_index": 1, "model": "served", "tool_call_id": "call_1", "name": a.Function, "arguments": text})
		}
	}
	send("conversation.response.done", object{"usage": testUsage})
}
