package openairesponses

import (
	"cmp"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/openai"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// Request is a request with the options in which servers of the format differ.
type Request struct {
	dialect.Request
	// SealReasoning asks for the sealed form of reasoning, by which a server that stores nothing accepts it again.
	SealReasoning bool
	// Phases states the phase of each message of the assistant: comment before calls, or final answer. A phase that the
	// server gave is sent in any case.
	Phases bool
	// CacheMarks sends the marks that authors of messages set for the server's prompt cache, and one at the end of the
	// leading system messages. If a mark is in an answer or in a tool's result, none is sent.
	CacheMarks bool
	// ImageTool is the server's tool that draws images, as JSON; empty does not offer it.
	ImageTool string
}

// Values of `include`: what an answer contains only if a request asks for it.
const (
	includeSeal     = "reasoning.encrypted_content"
	includeLogprobs = "message.output_text.logprobs"
)

// AppendRequest implements dialect.Codec.
func (Codec) AppendRequest(dst []byte, r *dialect.Request) ([]byte, error) {
	return (&Request{Request: *r}).Append(dst)
}

// Append appends the body of the request to dst. It fails with *dialect.UnsupportedError where content cannot be
// expressed in the format. Members of the configuration's extra_body come last and replace all others.
func (r *Request) Append(dst []byte) ([]byte, error) {
	e := &encoder{Request: r, w: jsonwrite.Append(dst, 1024+r.Size()), config: r.Config, marks: openai.NewMarks(r.Messages, r.CacheMarks)}
	if e.config == nil {
		e.config = &modelv1.GenerateConfig{}
	}
	var ok bool
	if e.overrides, ok = dialect.NewOverrides(&r.Request); !ok {
		return nil, unsupported("config.extra_body_json", "extra_body that is no JSON object")
	}
	e.w.BeginObject()
	e.member("model", func() { e.w.Text(r.Model) })
	if err := e.input(); err != nil {
		return nil, err
	}
	e.tools()
	e.options()
	if e.marks.Set() {
		name, options := e.marks.Declaration()
		e.member(name, func() { e.w.Raw(options) })
	}
	e.overrides.Write(e.w)
	e.w.EndObject()
	return e.w.Bytes(), nil
}

// encoder writes one request.
type encoder struct {
	*Request
	w *jsonwrite.Writer
	// config is the request's, and never nil.
	config *modelv1.GenerateConfig
	// overrides replace members that would be written.
	overrides dialect.Overrides
	// marks are the cache marks that are sent.
	marks openai.Marks
}

// member writes a member, unless it is overridden.
func (e *encoder) member(name string, value func()) {
	if !e.overrides.Have(name) {
		e.w.Key(name)
		value()
	}
}

// unsupported is the error for content that the format cannot express.
func unsupported(field, what string) error {
	return &dialect.UnsupportedError{API: "the Responses API", What: what, Field: field}
}

func (e *encoder) tools() {
	if len(e.Tools) == 0 && e.ImageTool == "" {
		return
	}
	e.member("tools", func() {
		e.w.BeginList()
		for _, tool := range e.Tools {
			e.w.BeginObject()
			e.w.TextMember("type", "function")
			e.w.TextMember("name", tool.GetName())
			e.w.TextMember("description", tool.GetDescription())
			e.w.RawMember("parameters", cmp.Or(tool.GetParametersJson(), "null"))
			e.w.BoolMember("strict", false) // The default is true, which few schemas satisfy.
			e.w.EndObject()
		}
		if e.ImageTool != "" {
			e.w.Raw(e.ImageTool)
		}
		e.w.EndList()
	})
	if e.Choice != nil {
		e.member("tool_choice", e.choice)
	}
	if e.config.ParallelToolCalls != nil {
		e.member("parallel_tool_calls", func() { e.w.Bool(e.config.GetParallelToolCalls()) })
	}
}

func (e *encoder) choice() {
	if name := e.Choice.GetFunction(); name != "" {
		e.w.BeginObject()
		e.w.TextMember("type", "function")
		e.w.TextMember("name", name)
		e.w.EndObject()
		return
	}
	switch e.Choice.GetMode() {
	case toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_ANY:
		e.w.Text("required")
	case toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_NONE:
		e.w.Text("none")
	default:
		e.w.Text("auto")
	}
}

// options writes the options of the configuration that are set and that the format has.
func (e *encoder) options() {
	c := e.config
	if c.MaxTokens != nil {
		e.member("max_output_tokens", func() { e.w.Int(c.GetMaxTokens()) })
	}
	if c.Temperature != nil {
		e.member("temperature", func() { e.w.Float(c.GetTemperature()) })
	}
	if c.TopP != nil {
		e.member("top_p", func() { e.w.Float(c.GetTopP()) })
	}
	if c.TopLogprobs != nil {
		e.member("top_logprobs", func() { e.w.Int(int64(c.GetTopLogprobs())) })
	}
	e.include()
	if c.ReasoningEffort != nil || c.ReasoningMode != nil || c.ReasoningSummary != nil {
		e.member("reasoning", func() {
			e.w.BeginObject()
			e.w.OptText("effort", c.ReasoningEffort)
			e.w.OptText("mode", c.ReasoningMode)
			e.w.OptText("summary", c.ReasoningSummary)
			e.w.EndObject()
		})
	}
	if c.ResponseSchema != nil || c.Verbosity != nil {
		e.member("text", func() {
			e.w.BeginObject()
			e.format(c.GetResponseSchema())
			e.w.OptText("verbosity", c.Verbosity)
			e.w.EndObject()
		})
	}
	if e.Stream {
		e.member("stream", func() { e.w.Bool(true) })
	}
}

func (e *encoder) include() {
	var all []string
	if e.SealReasoning {
		all = append(all, includeSeal)
	}
	if e.config.GetLogprobs() {
		all = append(all, includeLogprobs)
	}
	if len(all) == 0 {
		return
	}
	e.member("include", func() {
		e.w.BeginList()
		for _, value := range all {
			e.w.Text(value)
		}
		e.w.EndList()
	})
}

func (e *encoder) format(schema *modelv1.ResponseSchema) {
	if schema == nil {
		return
	}
	e.w.Key("format")
	e.w.BeginObject()
	e.w.TextMember("type", "json_schema")
	e.w.TextMember("name", schema.GetName())
	e.w.TextMember("description", cmp.Or(schema.GetDescription(), schema.GetName()))
	e.w.RawUnlessEmpty("schema", schema.GetJsonSchema())
	e.w.OptBool("strict", schema.Strict)
	e.w.EndObject()
}
