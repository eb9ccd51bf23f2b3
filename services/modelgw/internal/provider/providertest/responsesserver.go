package providertest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
)

// ResponsesServer starts a server that speaks OpenAI's Responses API and returns these answers in order. It returns its
// base URL.
func ResponsesServer(t testing.TB, answers ...Answer) string {
	t.Helper()
	return serve(t, &vendor{
		answers: answers, failure: `{"error":{"message":"failure %d","type":"test","param":null,"code":null}}`, stream: Answer.streamResponse, whole: Answer.wholeResponse,
	}) + "/v1"
}

func (a Answer) wholeResponse(w http.ResponseWriter) {
	_ = json.NewEncoder(w).Encode(response("completed", a.items()))
}

// response is an answer in a state.
func response(status string, items []object) object {
	usage := object{
		"input_tokens": 3, "input_tokens_details": object{"cached_tokens": 0}, "output_tokens": 2, "output_tokens_details": object{"reasoning_tokens": 0}, "total_tokens": 5,
	}
	if status != "completed" {
		usage = nil
	}
	return object{
		"id": "resp_1", "object": "response", "created_at": 1700000000, "status": status, "error": nil, "incomplete_details": nil, "model": "served",
		"output": items, "parallel_tool_calls": true, "tool_choice": "auto", "tools": []object{}, "usage": usage,
	}
}

// items are the items of the answer.
func (a Answer) items() []object {
	items := []object{}
	if a.Text != "" {
		items = append(items, object{"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": []object{textPart(a.Text)}})
	}
	if a.Function != "" {
		items = append(items, object{
			"id": "fc_1", "type": "function_call", "status": "completed", "call_id": "call_1", "name": a.Function, "arguments": a.Arguments,
		})
	}
	return items
}

func textPart(text string) object {
	return object{"type": "output_text", "text": text, "annotations": []object{}, "logprobs": []object{}}
}

// streamResponse cuts the answer into pieces of three bytes.
func (a Answer) streamResponse(w http.ResponseWriter) {
	sequence := 0
	send := func(name string, members object) {
		members["type"], members["sequence_number"] = name, sequence
		sequence++
		document, _ := json.Marshal(members)
		_, _ = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", name, document)
		_ = http.NewResponseController(w).Flush()
	}
	grow := func(name string, place object, text, member string) {
		of := func(members object) object {
			for key, value := range place {
				members[key] = value
			}
			return members
		}
		for _, piece := range cut(text) {
			send(name+".delta", of(object{"delta": piece}))
		}
		send(name+".done", of(object{member: text}))
	}
	send("response.created", object{"response": response("in_progress", []object{})})
	send("response.in_progress", object{"response": response("in_progress", []object{})})
	items := a.items()
	for i, item := range items {
		place := object{"item_id": item["id"], "output_index": i}
		if item["type"] == "message" {
			send("response.output_item.added", object{"output_index": i, "item": object{
				"id": item["id"], "type": "message", "role": "assistant", "status": "in_progress", "content": []object{},
			}})
			place["content_index"] = 0
			send("response.content_part.added", object{"item_id": item["id"], "output_index": i, "content_index": 0, "part": textPart("")})
			grow("response.output_text", place, a.Text, "text")
			send("response.content_part.done", object{"item_id": item["id"], "output_index": i, "content_index": 0, "part": textPart(a.Text)})
		} else {
			send("response.output_item.added", object{"output_index": i, "item": object{
				"id": item["id"], "type": "function_call", "status": "in_progress", "call_id": "call_1", "name": a.Function, "arguments": "",
			}})
			grow("response.function_call_arguments", place, a.Arguments, "arguments")
		}
		send("response.output_item.done", object{"output_index": i, "item": item})
	}
	send("response.completed", object{"response": response("completed", items)})
}
