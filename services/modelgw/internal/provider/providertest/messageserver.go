package providertest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
)

// MessageServer starts a server that speaks Anthropic's Messages API and returns these answers in order. It returns its
// base URL. Requests for a number of tokens do not consume an answer.
func MessageServer(t testing.TB, answers ...Answer) string {
	t.Helper()
	return serve(t, &vendor{
		answers: answers, failure: `{"type":"error","error":{"type":"test","message":"failure %d"}}`, stream: Answer.streamMessage, whole: Answer.wholeMessage,
	})
}

func (a Answer) wholeMessage(w http.ResponseWriter) {
	document, _ := json.Marshal(a.message(a.blocks(), a.stopReason()))
	_, _ = w.Write(bytes.Replace(document, []byte(`"`+inputHere+`"`), a.input(), 1)) // blanks in the input stay
}

func (a Answer) stopReason() string {
	if a.Function != "" {
		return "tool_use"
	}
	return "end_turn"
}

func (a Answer) message(content []object, stop any) object {
	return object{
		"id": "m1", "type": "message", "role": "assistant", "model": "served", "content": content, "stop_reason": stop, "stop_sequence": nil,
		"usage": object{"input_tokens": 3, "output_tokens": 2},
	}
}

func (a Answer) blocks() []object {
	blocks := []object{}
	if a.Text != "" {
		blocks = append(blocks, object{"type": "text", "text": a.Text})
	}
	if a.Function != "" {
		blocks = append(blocks, object{"type": "tool_use", "id": "toolu_1", "name": a.Function, "input": inputHere})
	}
	return blocks
}

// inputHere is the placeholder of the call's input.
const inputHere = "input of the call"

// input is the arguments; as a text, if they are not JSON.
func (a Answer) input() []byte {
	if json.Valid([]byte(a.Arguments)) {
		return []byte(a.Arguments)
	}
	text, _ := json.Marshal(a.Arguments)
	return text
}

// streamMessage cuts the answer into pieces of three bytes.
func (a Answer) streamMessage(w http.ResponseWriter) {
	send := func(name string, members object) {
		members["type"] = name
		document, _ := json.Marshal(members)
		_, _ = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", name, document)
		_ = http.NewResponseController(w).Flush()
	}
	place := 0
	block := func(first object, kind, member string, pieces []string) {
		send("content_block_start", object{"index": place, "content_block": first})
		for _, piece := range pieces {
			send("content_block_delta", object{"index": place, "delta": object{"type": kind, member: piece}})
		}
		send("content_block_stop", object{"index": place})
		place++
	}
	send("message_start", object{"message": a.message([]object{}, nil)})
	send("ping", object{})
	if a.Text != "" {
		block(object{"type": "text", "text": ""}, "text_delta", "text", cut(a.Text))
	}
	if a.Function != "" {
		block(object{"type": "tool_use", "id": "toolu_1", "name": a.Function, "input": object{}}, "input_json_delta", "partial_json", cut(a.Arguments))
	}
	send("message_delta", object{"delta": object{"stop_reason": a.stopReason(), "stop_sequence": nil}, "usage": object{"output_tokens": 2}})
	send("message_stop", object{})
}
