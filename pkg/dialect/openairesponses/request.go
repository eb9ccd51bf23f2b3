package openairesponses

import (
	"cmp"
	"encoding/json"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/openai"
	"github.com/evalfleet/evalfleet/pkg/dialect/toolname"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
)

// Request is a request with the options in which servers of the format differ.
type Request struct {
	dialect.Request
	// SealReasoning asks for the sealed form of reasoning, by which a server that stores nothing accepts it again.
	SealReasoning bool
	// Phases states the phase of each message of the assistant: comment before calls, or final answer. A phase that the
	// server gave is sent in any case.
	Phases bool
	// FillEmpty sends [dialect.NoContent] after an answer that is reasoning alone, which some servers refuse.
	FillEmpty bool
	// CacheMarks sends the marks that authors of messages set for the server's prompt cache, and one at the end of the
	// leading system messages. If a mark is in an answer or in a tool's result, none is sent.
	CacheMarks bool
	// Native are the tools of the request that the server runs itself, by their names.
	Native map[string]Native
	// CodeOutputs asks for the output of code that the server runs.
	CodeOutputs bool
	// Sources asks for the pages that a search of the server's found.
	Sources bool
	// ImageTool is the server's tool that draws images, as JSON; empty does not offer it.
	ImageTool string
}

// Native is a tool that the server runs itself.
type Native struct {
	// JSON is the tool on the wire, an object.
	JSON string
	// Choice is the type by which a choice names the tool; empty if none can.
	Choice string
	// Computer is a tool whose calls are the server's own items, and whose results are screenshots.
	Computer bool
	// Server is the name of the server of tools that a choice names besides; empty for other tools.
	Server string
	// Sources means that the caller wants to know what a search found.
	Sources bool
}

// Values of `include`: what an answer contains only if a request asks for it.
const (
	includeSeal     = "reasoning.encrypted_content"
	includeOutputs  = "code_interpreter_call.outputs"
	includeSources  = "web_search_call.action.sources"
	includeLogprobs = "message.output_text.logprobs"
)

// memberReasoning is the member with the options of reasoning.
const memberReasoning = "reasoning"

// AppendRequest implements dialect.Codec.
func (Codec) AppendRequest(dst []byte, r *dialect.Request) ([]byte, error) {
	return (&Request{Request: *r}).Append(dst)
}

// Append appends the body of the request to dst. It fails with *dialect.UnsupportedError where content cannot be
// expressed in the format. Members of the configuration's extra_body come last and replace all others, except options
// of reasoning, which are added to those of the configuration.
func (r *Request) Append(dst []byte) ([]byte, error) {
	e := r.encoder(dst)
	e.TakeExtraBody()
	e.Body.BeginObject()
	e.Member("model", func() { e.Body.Text(r.Model) })
	e.input()
	e.tools()
	e.options()
	e.marks.Declare(&e.MemberWriter)
	e.Overrides.Write(e.Body)
	e.Body.EndObject()
	return e.Written()
}

func (r *Request) encoder(dst []byte) *encoder {
	return &encoder{
		Request: r, Encoder: dialect.NewEncoder(dst, &r.Request, "the Responses API"), checks: map[string]json.RawMessage{},
		marks: openai.NewMarks(r.Messages, r.CacheMarks),
	}
}

// encoder writes one request.
type encoder struct {
	*Request
	dialect.Encoder
	// checks are what the server wants to be acknowledged of calls of its computer, by their ids.
	checks map[string]json.RawMessage
	// marks are the cache marks that are sent.
	marks openai.Marks
}

func (e *encoder) tools() {
	if len(e.Tools) == 0 && e.ImageTool == "" {
		return
	}
	e.Member("tools", func() {
		e.Body.BeginList()
		for _, tool := range e.Tools {
			if own, ok := e.Native[tool.GetName()]; ok {
				e.Body.Raw(own.JSON)
				continue
			}
			e.Body.BeginObject()
			e.Body.TextMember("type", "function")
			e.Body.TextMember("name", tool.GetName())
			e.Body.TextMember("description", tool.GetDescription())
			e.CheckTool(tool)
			e.Body.RawMember("parameters", cmp.Or(tool.GetParametersJson(), "null"))
			e.Body.BoolMember("strict", false) // The default is true, which few schemas satisfy.
			e.Body.EndObject()
		}
		if e.ImageTool != "" {
			e.Body.Raw(e.ImageTool)
		}
		e.Body.EndList()
	})
	if e.Choice != nil {
		function := e.Choice.GetFunction()
		native := e.Native[function]
		e.Member("tool_choice", func() { writeChoice(e.Body, e.Choice, native.Choice, native.Server, toolname.Name{Name: function}) })
	}
	e.OptBool("parallel_tool_calls", e.Config.ParallelToolCalls)
}

// options writes the options of the configuration that are set and that the format has.
func (e *encoder) options() {
	c := e.Config
	dialect.OptInt(&e.MemberWriter, "max_output_tokens", c.MaxTokens)
	e.OptFloat("temperature", c.Temperature)
	e.OptFloat("top_p", c.TopP)
	dialect.OptInt(&e.MemberWriter, "top_logprobs", c.TopLogprobs)
	e.include()
	e.reasoningOptions()
	if c.ResponseSchema != nil || c.Verbosity != nil {
		e.Object("text", func() {
			e.format(c.GetResponseSchema())
			e.Body.OptText("verbosity", c.Verbosity)
		})
	}
	if e.Stream {
		e.Member("stream", func() { e.Body.Bool(true) })
	}
}

// reasoningOptions writes the options of reasoning: those of the configuration, and further ones of extra_body.
func (e *encoder) reasoningOptions() {
	more := e.Overrides.TakeObject(memberReasoning)
	own := []struct {
		name  string
		value *string
	}{{"effort", e.Config.ReasoningEffort}, {"mode", e.Config.ReasoningMode}, {"summary", e.Config.ReasoningSummary}}
	options := &orderedjson.Object{}
	for _, option := range own {
		if option.value != nil {
			options.Set(option.name, *option.value)
			more.Delete(option.name)
		}
	}
	if e.Config.ReasoningSummary != nil {
		more.Delete("generate_summary") // the old name of it
	}
	for name, value := range more.All() {
		options.Set(name, value)
	}
	if options.Len() > 0 {
		e.Member(memberReasoning, func() { e.Body.Raw(string(orderedjson.Append(nil, options))) })
	}
}

func (e *encoder) include() {
	var all []string
	add := func(wanted bool, what string) {
		if wanted {
			all = append(all, what)
		}
	}
	add(e.SealReasoning, includeSeal)
	add(e.CodeOutputs, includeOutputs)
	add(e.Sources, includeSources)
	add(e.Config.GetLogprobs(), includeLogprobs)
	if len(all) > 0 {
		e.Member("include", func() { e.Body.Texts(all) })
	}
}

func (e *encoder) format(schema *modelv1.ResponseSchema) {
	if schema == nil {
		return
	}
	if dialect.IsAnyJSON(schema) {
		e.Body.TextObjectMember("format", "type", openai.AnyJSON)
		return
	}
	e.CheckSchema(schema)
	e.Body.BeginObjectMember("format")
	e.Body.TextMember("type", "json_schema")
	e.Body.TextMember("name", schema.GetName())
	e.Body.TextMember("description", cmp.Or(schema.GetDescription(), schema.GetName()))
	e.Body.RawUnlessEmpty("schema", schema.GetJsonSchema())
	e.Body.OptBool("strict", schema.Strict)
	e.Body.EndObject()
}
