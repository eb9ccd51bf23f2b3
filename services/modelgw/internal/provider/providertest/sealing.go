package providertest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Sealing is a vendor that seals what its model thinks, and refuses a request with a seal that it did not make, as the
// vendors document it:
//
//   - Anthropic: https://platform.claude.com/docs/en/build-with-claude/thinking-troubleshooting
//   - OpenAI: https://platform.openai.com/docs/guides/reasoning
//   - Google, which also refuses a call without a seal: https://ai.google.dev/gemini-api/docs/thought-signatures
//
// Its model thinks, and then calls the tool that it is offered, or if the conversation ends with a result answers with
// a text. It is safe for concurrent use.
type Sealing struct {
	// URL is its address.
	URL string

	wire sealingWire

	mu sync.Mutex
	// made are its seals, each with the thought that it seals.
	made map[string]string
	// returned are the seals of the latest request, and latest is its body.
	returned []string
	latest   string
	// counted is the latest request for a number of tokens.
	counted string
	// failing answers each request instead.
	failing int
}

// sealingWire is the format of such a vendor.
type sealingWire struct {
	// read returns the seals of a request with what each seals, and whether the conversation ends with a result.
	// refusal is the message of a request that is refused for something else.
	read func(body []byte) (seals []sealed, result bool, refusal string)
	// refuse writes the refusal of a seal.
	refuse func(w http.ResponseWriter, message string)
	// answer writes an answer.
	answer func(w http.ResponseWriter, a sealedAnswer, stream bool)
	// invalid is the message for a seal of another vendor.
	invalid string
	// streams reports whether a request asks for a stream.
	streams func(r *http.Request, body []byte) bool
}

// sealed is a seal in a request. Thought is what it comes with; nil where the format has no place for it.
type sealed struct {
	seal    string
	thought *string
}

// sealedAnswer is an answer: its n-th, with a thought and its seal.
type sealedAnswer struct {
	n             int
	thought, seal string
	calls         bool
}

// text is what the model says.
func (a sealedAnswer) text() string { return fmt.Sprintf("said %d", a.n) }

// SealedTool is the name of the tool that these models call.
const SealedTool = "look"

// SealingAnthropic starts such a vendor that speaks Anthropic's Messages API.
func SealingAnthropic(t testing.TB) *Sealing { return sealing(t, sealingMessages) }

// SealingOpenAI starts such a vendor that speaks OpenAI's Responses API. Its address ends with /v1.
func SealingOpenAI(t testing.TB) *Sealing {
	s := sealing(t, sealingResponses)
	s.URL += "/v1"
	return s
}

// SealingGoogle starts such a vendor that speaks Google's Gemini API.
func SealingGoogle(t testing.TB) *Sealing { return sealing(t, sealingGemini) }

func sealing(t testing.TB, wire sealingWire) *Sealing {
	t.Helper()
	s := &Sealing{wire: wire, made: map[string]string{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.URL = server.URL
	return s
}

// Made returns the seals that it made.
func (s *Sealing) Made() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for seal := range s.made {
		all = append(all, seal)
	}
	slices.Sort(all)
	return all
}

// Returned returns the seals of the latest request, in the order of Made.
func (s *Sealing) Returned() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(slices.Values(s.returned))
}

// Latest returns the body of the latest request.
func (s *Sealing) Latest() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.latest
}

// Counted returns the body of the latest request for a number of tokens.
func (s *Sealing) Counted() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counted
}

// Fail makes it answer each request with a status; 0 ends that.
func (s *Sealing) Fail(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failing = status
}

// ServeHTTP implements http.Handler.
func (s *Sealing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	s.mu.Lock()
	defer s.mu.Unlock()
	if strings.HasSuffix(r.URL.Path, countPath) {
		s.counted = string(body)
		_, _ = fmt.Fprint(w, defaultCount)
		return
	}
	if s.failing != 0 {
		w.WriteHeader(s.failing)
		_, _ = fmt.Fprint(w, `{"error":{"message":"failure"}}`)
		return
	}
	s.latest = string(body)
	seals, result, refusal := s.wire.read(body)
	s.returned = nil
	for _, given := range seals {
		thought, own := s.made[given.seal]
		if !own || given.thought != nil && *given.thought != thought {
			refusal = s.wire.invalid
		}
		s.returned = append(s.returned, given.seal)
	}
	if refusal != "" {
		w.WriteHeader(http.StatusBadRequest)
		s.wire.refuse(w, refusal)
		return
	}
	n := len(s.made) + 1
	// Bytes that the two alphabets of base64 write in different ways.
	seal := base64.StdEncoding.EncodeToString([]byte(fmt.Sprintf("\xfb\xff%s seal %d", s.URL, n)))
	a := sealedAnswer{n: n, thought: fmt.Sprintf("thought %d", n), seal: seal, calls: !result}
	s.made[seal] = a.thought
	stream := s.wire.streams(r, body)
	if stream {
		w.Header().Set("Content-Type", "text/event-stream")
	}
	s.wire.answer(w, a, stream)
}

// streamsByMember reports whether the member `stream` of a request is true.
func streamsByMember(_ *http.Request, body []byte) bool {
	var asked struct {
		Stream bool `json:"stream"`
	}
	return json.Unmarshal(body, &asked) == nil && asked.Stream
}

// event writes an event whose data has its name.
func event(w io.Writer, name string, members object) {
	members["type"] = name
	document, _ := json.Marshal(members)
	_, _ = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", name, document)
}

var sealingMessages = sealingWire{
	streams: streamsByMember,
	invalid: "messages.1.content.0: Invalid `signature` in `thinking` block",
	refuse: func(w http.ResponseWriter, message string) {
		_ = json.NewEncoder(w).Encode(object{"type": "error", "error": object{"type": "invalid_request_error", "message": message}})
	},
	read: func(body []byte) (seals []sealed, result bool, refusal string) {
		var asked struct {
			Messages []struct{ Content json.RawMessage }
		}
		_ = json.Unmarshal(body, &asked)
		for _, message := range asked.Messages {
			var blocks []struct {
				Type, Text, Data, Signature string
				Thinking                    *string
			}
			_ = json.Unmarshal(message.Content, &blocks) // Others are texts.
			result = false
			if len(blocks) == 0 && message.Content[0] == '[' {
				refusal = "messages: a turn must have content"
			}
			for _, b := range blocks {
				switch b.Type {
				case "thinking":
					seals = append(seals, sealed{b.Signature, b.Thinking})
				case "redacted_thinking":
					seals = append(seals, sealed{b.Data, nil})
				case "text":
					if b.Text == "" {
						refusal = "messages: text content blocks must be non-empty"
					}
				case "tool_result":
					result = true
				}
			}
		}
		return seals, result, refusal
	},
	answer: func(w http.ResponseWriter, a sealedAnswer, stream bool) {
		thinking := object{"type": "thinking", "thinking": a.thought, "signature": a.seal}
		said := object{"type": "text", "text": a.text()}
		call := object{"type": "tool_use", "id": fmt.Sprintf("toolu_%d", a.n), "name": SealedTool, "input": object{}}
		message := object{
			"id": "m1", "type": "message", "role": "assistant", "model": "served", "content": []object{thinking, said}, "stop_reason": "end_turn", "stop_sequence": nil,
			"usage": object{"input_tokens": 3, "output_tokens": 2},
		}
		if a.calls {
			message["content"], message["stop_reason"] = []object{thinking, call}, "tool_use"
		}
		if !stream {
			_ = json.NewEncoder(w).Encode(message)
			return
		}
		stop := message["stop_reason"]
		message["content"], message["stop_reason"] = []object{}, nil
		event(w, "message_start", object{"message": message})
		event(w, "content_block_start", object{"index": 0, "content_block": object{"type": "thinking", "thinking": "", "signature": ""}})
		for _, piece := range cut(a.thought) {
			event(w, "content_block_delta", object{"index": 0, "delta": object{"type": "thinking_delta", "thinking": piece}})
		}
		event(w, "content_block_delta", object{"index": 0, "delta": object{"type": "signature_delta", "signature": a.seal}})
		event(w, "content_block_stop", object{"index": 0})
		if a.calls {
			event(w, "content_block_start", object{"index": 1, "content_block": call})
			event(w, "content_block_delta", object{"index": 1, "delta": object{"type": "input_json_delta", "partial_json": "{}"}})
		} else {
			event(w, "content_block_start", object{"index": 1, "content_block": object{"type": "text", "text": ""}})
			event(w, "content_block_delta", object{"index": 1, "delta": object{"type": "text_delta", "text": a.text()}})
		}
		event(w, "content_block_stop", object{"index": 1})
		event(w, "message_delta", object{"delta": object{"stop_reason": stop, "stop_sequence": nil}, "usage": object{"output_tokens": 2}})
		event(w, "message_stop", object{})
	},
}

var sealingResponses = sealingWire{
	streams: streamsByMember,
	invalid: "The encrypted content for item rs_1 could not be verified. Reason: Encrypted content could not be decrypted or parsed.",
	refuse: func(w http.ResponseWriter, message string) {
		_ = json.NewEncoder(w).Encode(object{"error": object{"message": message, "type": "invalid_request_error", "param": nil, "code": "invalid_encrypted_content"}})
	},
	read: func(body []byte) (seals []sealed, result bool, refusal string) {
		var asked struct{ Input json.RawMessage }
		_ = json.Unmarshal(body, &asked)
		var items []struct {
			Type, ID string
			Sealed   *string `json:"encrypted_content"`
		}
		_ = json.Unmarshal(asked.Input, &items) // Another is a text.
		for _, item := range items {
			result = item.Type == "function_call_output"
			if item.Type != "reasoning" {
				continue
			}
			if item.Sealed != nil {
				seals = append(seals, sealed{*item.Sealed, nil})
			} else if item.ID != "" {
				refusal = "Item with id '" + item.ID + "' not found. Items are not persisted when `store` is set to false."
			}
		}
		return seals, result, refusal
	},
	answer: func(w http.ResponseWriter, a sealedAnswer, stream bool) {
		id := fmt.Sprintf("rs_%d", a.n)
		summary := object{"type": "summary_text", "text": a.thought}
		reasoning := object{"id": id, "type": "reasoning", "summary": []object{summary}, "encrypted_content": a.seal}
		said := object{"id": fmt.Sprintf("msg_%d", a.n), "type": "message", "role": "assistant", "status": "completed", "content": []object{textPart(a.text())}}
		call := object{"id": fmt.Sprintf("fc_%d", a.n), "type": "function_call", "status": "completed", "call_id": fmt.Sprintf("call_%d", a.n), "name": SealedTool, "arguments": "{}"}
		items := []object{reasoning, said}
		if a.calls {
			items[1] = call
		}
		if !stream {
			_ = json.NewEncoder(w).Encode(response("completed", items))
			return
		}
		event(w, "response.created", object{"response": response("in_progress", []object{})})
		event(w, "response.output_item.added", object{"output_index": 0, "item": object{"id": id, "type": "reasoning", "summary": []object{}}})
		place := func(members object) object {
			members["item_id"], members["output_index"], members["summary_index"] = id, 0, 0
			return members
		}
		event(w, "response.reasoning_summary_part.added", place(object{"part": object{"type": "summary_text", "text": ""}}))
		for _, piece := range cut(a.thought) {
			event(w, "response.reasoning_summary_text.delta", place(object{"delta": piece}))
		}
		event(w, "response.reasoning_summary_text.done", place(object{"text": a.thought}))
		event(w, "response.reasoning_summary_part.done", place(object{"part": summary}))
		event(w, "response.output_item.done", object{"output_index": 0, "item": reasoning})
		if a.calls {
			begun := object{"id": call["id"], "type": "function_call", "status": "in_progress", "call_id": call["call_id"], "name": SealedTool, "arguments": ""}
			event(w, "response.output_item.added", object{"output_index": 1, "item": begun})
			event(w, "response.function_call_arguments.delta", object{"item_id": call["id"], "output_index": 1, "delta": "{}"})
			event(w, "response.function_call_arguments.done", object{"item_id": call["id"], "output_index": 1, "arguments": "{}"})
		} else {
			begun := object{"id": said["id"], "type": "message", "role": "assistant", "status": "in_progress", "content": []object{}}
			event(w, "response.output_item.added", object{"output_index": 1, "item": begun})
			at := func(members object) object {
				members["item_id"], members["output_index"], members["content_index"] = said["id"], 1, 0
				return members
			}
			event(w, "response.content_part.added", at(object{"part": textPart("")}))
			event(w, "response.output_text.delta", at(object{"delta": a.text()}))
			event(w, "response.output_text.done", at(object{"text": a.text()}))
			event(w, "response.content_part.done", at(object{"part": textPart(a.text())}))
		}
		event(w, "response.output_item.done", object{"output_index": 1, "item": items[1]})
		event(w, "response.completed", object{"response": response("completed", items)})
	},
}

// skippedSignature is the text that Google takes in place of the seal of a call which its model did not make.
const skippedSignature = "skip_thought_signature_validator"

var sealingGemini = sealingWire{
	streams: func(r *http.Request, _ []byte) bool { return strings.HasSuffix(r.URL.Path, geminiStream) },
	invalid: "Thought signature is not valid.",
	refuse: func(w http.ResponseWriter, message string) {
		_ = json.NewEncoder(w).Encode(object{"error": object{"code": 400, "message": message, "status": "INVALID_ARGUMENT"}})
	},
	read: func(body []byte) (seals []sealed, result bool, refusal string) {
		type part struct {
			Text      *string
			Thought   bool
			Signature string          `json:"thoughtSignature"`
			Call      json.RawMessage `json:"functionCall"`
			CallOf    json.RawMessage `json:"function_call"`
			Result    json.RawMessage `json:"functionResponse"`
			ResultOf  json.RawMessage `json:"function_response"`
		}
		var asked struct{ Contents []struct{ Parts []part } }
		_ = json.Unmarshal(body, &asked)
		for _, content := range asked.Contents {
			result = false
			calls := 0
			if len(content.Parts) == 0 {
				refusal = "Unable to submit request because it must include at least one parts field."
			}
			for _, p := range content.Parts {
				result = result || p.Result != nil || p.ResultOf != nil
				if p.Call != nil || p.CallOf != nil {
					if calls++; calls == 1 && p.Signature == "" {
						refusal = "Function call is missing a thought_signature in functionCall parts."
					}
				}
				if p.Signature != "" && p.Signature != skippedSignature {
					standard := strings.NewReplacer("-", "+", "_", "/").Replace(p.Signature)
					seals = append(seals, sealed{standard, nil})
				}
			}
		}
		return seals, result, refusal
	},
	answer: func(w http.ResponseWriter, a sealedAnswer, stream bool) {
		thought := fmt.Sprintf(`{"text":%q,"thought":true}`, a.thought)
		said := fmt.Sprintf(`{"text":%q,"thoughtSignature":%q}`, a.text(), a.seal)
		if a.calls {
			said = fmt.Sprintf(`{"functionCall":{"name":%q,"args":{}},"thoughtSignature":%q}`, SealedTool, a.seal)
		}
		if !stream {
			_, _ = fmt.Fprint(w, geminiAnswer(thought+","+said, `,"finishReason":"STOP"`))
			return
		}
		_, _ = fmt.Fprintf(w, "data: %s\r\n\r\n", geminiAnswer(thought, ""))
		_, _ = fmt.Fprintf(w, "data: %s\r\n\r\n", geminiAnswer(said, ""))
		_, _ = fmt.Fprintf(w, "data: %s\r\n\r\n", geminiAnswer(geminiText(""), `,"finishReason":"STOP"`))
	},
}
