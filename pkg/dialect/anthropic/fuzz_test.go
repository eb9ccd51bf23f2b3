package anthropic_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/anthropic"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

const everyBlock = `[{"type":"text","text":"a","citations":[{"type":"char_location","document_index":0,"start_char_index":0,"end_char_index":1}]},` +
	`{"type":"thinking","thinking":"b","signature":"c"},{"type":"redacted_thinking","data":"d"},{"type":"tool_use","id":"e","name":"f","input":{"g":[1,2.0]}},` +
	`{"type":"server_tool_use","id":"h","name":"web_search","input":{}},{"type":"web_search_tool_result","tool_use_id":"h","content":[]},` +
	`{"type":"mcp_tool_use","id":"i","name":"j","server_name":"k"},{"type":"mcp_tool_result","tool_use_id":"i","is_error":true,"content":"l"},` +
	`{"type":"compaction","content":"m"},{"type":"fallback","from":{"model":"n"},"to":{"model":"o"}},{"type":"image","source":{"type":"url","url":"p"}}]`

// FuzzParseRequest says that no body of a client brings the reader down, and that what it reads can be written and read again.
func FuzzParseRequest(f *testing.F) {
	for _, seed := range []string{
		conversationBody, `{"model":"m","messages":[{"role":"assistant","content":` + everyBlock + `}]}`,
		`{"model":"m","messages":[{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{}}]},{"role":"user","content":[{"type":"document","source":{"type":"content","content":[{"type":"text","text":"x"}]}},` +
			`{"type":"tool_result","tool_use_id":"t","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"aGk="}}]}]}]}`,
		`{"model":"m","messages":[{"role":"user","content":"x"}],"system":"s","tool_choice":{"type":"none"},"output_format":{"type":"json_schema","schema":{}}}`, `[`, `{"model":1}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := anthropic.ParseCount(body) // What ParseRequest asks for beyond it is one number.
		if err != nil {
			return
		}
		r.Messages, _ = anthropic.Arrange(r.Messages, len(body)%2 == 0)
		written, err := r.Append(nil)
		if err != nil {
			return
		}
		if !json.Valid(written) {
			t.Fatalf("%q became %q, which is no JSON", body, written)
		}
	})
}

// FuzzDecode says that no answer of a server brings the reader down, and that what it reads can be given on to a client.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		answerBody, `{"content":` + everyBlock + `,"usage":{"input_tokens":1},"stop_details":{"category":"c"}}`, `{"error":{"type":"t","message":"m"}}`, `{"content":null}`, `{`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		_ = anthropic.DecodeError(body).Status()
		m, err := anthropic.Decode(body)
		if err != nil {
			return
		}
		output, err := m.Output(nil)
		if err != nil {
			return
		}
		written, err := anthropic.AppendResponse(nil, output, anthropic.ResponseMeta{Model: "m"})
		if err != nil || !json.Valid(written) {
			t.Fatalf("%q became %q: %v", body, written, err)
		}
	})
}

// FuzzStream says that no stream of a server brings the reader down, that its pieces make a stream for a client, and that a client can read it.
func FuzzStream(f *testing.F) {
	var whole bytes.Buffer
	w := anthropic.NewStreamWriter(&whole, anthropic.ResponseMeta{ID: "msg_1", Model: "m"})
	if err := w.Close(answer()); err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{
		whole.String(), "data: {\"type\":\"content_block_delta\",\"index\":7}\n\n", "data: {\"type\":\"error\",\"error\":{}}\n\n", "event: ping\ndata: {}\n\n",
		"data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"b\",\"input\":{}}}\n\n" +
			"data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"c\"}}\n\ndata: {\"type\":\"content_block_stop\"}\n\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		var s anthropic.Stream
		var out bytes.Buffer
		w := anthropic.NewStreamWriter(&out, anthropic.ResponseMeta{ID: "msg_1", Model: "m"})
		write := func(deltas []*modelv1.GenerateDelta) {
			for _, d := range deltas {
				if err := w.Write(d); err != nil {
					t.Fatal(err)
				}
			}
		}
		for event, err := range dialect.Events(bytes.NewReader(stream)) {
			if err != nil {
				return
			}
			deltas, err := s.Add(event.Data)
			if err != nil {
				return
			}
			write(deltas)
		}
		output, err := s.Message().Output(nil)
		if err != nil {
			return
		}
		if err := w.Close(output); err != nil {
			t.Fatal(err)
		}
		var again anthropic.Stream
		for event, err := range dialect.Events(bytes.NewReader(out.Bytes())) {
			if err != nil {
				t.Fatal(err)
			}
			if _, err := again.Add(event.Data); err != nil {
				t.Fatalf("%q became %q: %v", stream, out.Bytes(), err)
			}
		}
		if !again.Ended() {
			t.Fatal("the stream has no end")
		}
	})
}
