// Package anthropic is the format of Anthropic's Messages API in both directions. As a client: requests are written (Request.Append), answers and streams
// are read (Decode, Stream). As a server: requests are read (ParseRequest), answers, streams and errors are written (AppendResponse, StreamWriter,
// EncodeError).
//
// Reference: https://platform.claude.com/docs/en/api/messages. Requests are written in one order of members, the conversation last, and schemas and inputs
// of tools go through byte for byte, so that equal prefixes of conversations are equal prefixes of bytes. What differs between models is the caller's
// to know and stands in Request.
package anthropic

import (
	"encoding/json"

	"github.com/evalfleet/evalfleet/pkg/chat/encode"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/orderedjson"
)

// Name is the dialect's name.
const Name = "anthropic"

// Request is what to ask. As a client writes it, it goes through Arrange first; as a server reads it, it comes from ParseRequest.
type Request struct {
	// Model is the name that the server knows.
	Model string
	// Messages are the conversation. System messages at its beginning are the request's instructions; later ones are turns of their own, which only
	// the newest models take.
	Messages []*modelv1.ChatMessage
	Tools    []*toolv1.ToolInfo
	// Choice is sent where there are tools; nil leaves it to the server.
	Choice *toolv1.ToolChoice
	// Config holds the options to send; those that the format does not know are passed over.
	Config *modelv1.GenerateConfig
	// Stream asks for the answer in pieces.
	Stream bool
	// Thinking says how the model thinks; nil leaves it to the server.
	Thinking *Thinking
	// Cache says what of the prompt the server is asked to cache.
	Cache Cache
	// Paused are the blocks of a turn that the server paused, as it gave them, for it to go on with.
	Paused []json.RawMessage
	// Members are further members of the request; one that the request has already is replaced.
	Members []Member
}

// Member is a member of a JSON object.
type Member struct {
	Name string
	// JSON is its value.
	JSON string
}

// Thinking says how the model thinks before and between its words.
type Thinking struct {
	// Type is `adaptive`, `enabled`, `disabled` or `between_tools`.
	Type string
	// BudgetTokens bounds what is spent on it; 0 says nothing. `enabled` needs it.
	BudgetTokens int64
	// Display is how much is shown, such as `summarized`; empty says nothing.
	Display string
	// DropUnbound asks to drop thinking that does not belong to what stands before it, in place of failing.
	DropUnbound bool
}

// Cache says what of the prompt the server is asked to cache.
type Cache struct {
	// Off sets no marks, those of the messages neither.
	Off bool
	// TTL is how long, `5m` or `1h`; empty says nothing.
	TTL string
	// Automatic lets the server mark the end of the request by itself.
	Automatic bool
}

// UnsupportedError says that the format has no way to say something, or that this package does not take it.
type UnsupportedError struct {
	// What cannot be said.
	What string
}

// Error implements error.
func (e *UnsupportedError) Error() string { return "the Messages API cannot take " + e.What }

// Append appends a request to dst. It fails where content cannot be said in the format.
func (r *Request) Append(dst []byte) ([]byte, error) {
	return r.write(dst, func(e *encoder) {
		if c := e.Config; c.GetMaxTokens() != 0 {
			e.member("max_tokens", func() { e.w.Int(c.GetMaxTokens()) })
		}
		e.options()
		e.member("stream", func() { e.w.Bool(e.Stream) })
	})
}

// AppendCount appends the request that asks how many input tokens a request has.
func (r *Request) AppendCount(dst []byte) ([]byte, error) { return r.write(dst, func(*encoder) {}) }

// write appends a request with these options between the model's name and the conversation.
func (r *Request) write(dst []byte, options func(*encoder)) ([]byte, error) {
	p, err := r.plan()
	if err != nil {
		return nil, err
	}
	e := &encoder{Request: r, w: encode.Append(dst, 1024+r.size()), replaced: map[string]bool{}, cites: cites(r.Messages)}
	for _, m := range r.Members {
		e.replaced[m.Name] = true
	}
	e.w.BeginObject()
	e.member("model", func() { e.w.Text(r.Model) })
	options(e)
	if p.automatic {
		e.member("cache_control", e.cacheControl)
	}
	e.thinking()
	for _, m := range r.Members {
		e.w.RawMember(m.Name, m.JSON)
	}
	if len(r.Tools) > 0 {
		e.tools(p.toolsMarked)
	}
	if len(p.system) > 0 {
		e.member("system", func() { e.blocks(p.system) })
	}
	e.member("messages", func() { e.turns(p.turns) })
	e.w.EndObject()
	return e.w.Bytes(), nil
}

// encoder writes one request.
type encoder struct {
	*Request
	w *encode.Writer
	// replaced are the names of Members.
	replaced map[string]bool
	// cites says that a document is to be cited. The server then wants it of all documents.
	cites bool
}

// member writes a member, unless Members gives it.
func (e *encoder) member(name string, value func()) {
	if e.replaced[name] {
		return
	}
	e.w.Key(name)
	value()
}

func (e *encoder) cacheControl() {
	e.w.BeginObject()
	e.w.TextMember("type", "ephemeral")
	e.w.TextUnlessEmpty("ttl", e.Cache.TTL)
	e.w.EndObject()
}

func (e *encoder) thinking() {
	t := e.Thinking
	if t == nil {
		return
	}
	e.member("thinking", func() {
		e.w.BeginObject()
		e.w.TextMember("type", t.Type)
		if t.BudgetTokens != 0 {
			e.w.IntMember("budget_tokens", t.BudgetTokens)
		}
		e.w.TextUnlessEmpty("display", t.Display)
		if t.DropUnbound {
			e.w.RawMember("block_binding", `{"prefix_mismatch_behavior":"drop_block"}`)
		}
		e.w.EndObject()
	})
}

// options writes the options of the configuration that are set.
func (e *encoder) options() {
	c := e.Config
	if c == nil {
		return
	}
	for _, number := range []struct {
		name  string
		value *float64
	}{{"temperature", c.Temperature}, {"top_p", c.TopP}} {
		if number.value != nil {
			e.member(number.name, func() { e.w.Float(*number.value) })
		}
	}
	if c.TopK != nil {
		e.member("top_k", func() { e.w.Int(int64(c.GetTopK())) })
	}
	if c.StopSeqs != nil {
		e.member("stop_sequences", func() {
			e.w.BeginList()
			for _, text := range c.GetStopSeqs().GetValues() {
				e.w.Text(text)
			}
			e.w.EndList()
		})
	}
	if c.Effort != nil {
		e.member("output_config", func() {
			e.w.BeginObject()
			e.w.TextMember("effort", c.GetEffort())
			e.w.EndObject()
		})
	}
	if c.ResponseSchema != nil {
		e.member("output_format", func() {
			e.w.BeginObject()
			e.w.TextMember("type", "json_schema")
			e.w.RawMember("schema", closed(c.GetResponseSchema().GetJsonSchema()))
			e.w.EndObject()
		})
	}
	if c.FallbackModels != nil {
		e.member("fallbacks", func() {
			e.w.BeginList()
			for _, model := range c.GetFallbackModels().GetValues() {
				e.w.BeginObject()
				e.w.TextMember("model", model)
				e.w.EndObject()
			}
			e.w.EndList()
		})
	}
}

// tools writes the tools and the choice among them.
func (e *encoder) tools(marked bool) {
	e.member("tools", func() {
		e.w.BeginList()
		for i, tool := range e.Tools {
			e.w.BeginObject()
			e.w.TextMember("name", tool.GetName())
			e.w.TextUnlessEmpty("description", tool.GetDescription())
			schema := tool.GetParametersJson()
			if schema == "" {
				schema = `{"type":"object"}`
			}
			e.w.RawMember("input_schema", schema)
			if marked && i == len(e.Tools)-1 {
				e.w.Key("cache_control")
				e.cacheControl()
			}
			e.w.EndObject()
		}
		e.w.EndList()
	})
	if e.Choice != nil {
		e.member("tool_choice", e.choice)
	}
}

func (e *encoder) choice() {
	choice := ChoiceObject(e.Choice)
	// A choice of none has no such member.
	if e.Config != nil && e.Config.ParallelToolCalls != nil && e.Choice.GetMode() != toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_NONE {
		choice.Set("disable_parallel_tool_use", !e.Config.GetParallelToolCalls())
	}
	e.w.Raw(string(orderedjson.Append(nil, choice)))
}

// ChoiceObject returns a choice among tools as the format says it.
func ChoiceObject(choice *toolv1.ToolChoice) *orderedjson.Object {
	o := &orderedjson.Object{}
	if name := choice.GetFunction(); name != "" {
		o.Set("type", "tool")
		o.Set("name", name)
		return o
	}
	switch choice.GetMode() {
	case toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_ANY:
		o.Set("type", "any")
	case toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_NONE:
		o.Set("type", "none")
	default:
		o.Set("type", "auto")
	}
	return o
}
