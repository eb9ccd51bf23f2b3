package openaichat

import (
	"slices"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/openai"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// Request is a request with the options in which servers of the format differ.
type Request struct {
	dialect.Request
	// SystemRole is the role of system messages; empty is `system`.
	SystemRole string
	// MaxTokensMember is the name of the bound of output tokens; empty is `max_tokens`.
	MaxTokensMember string
	// StrictTools is sent with each tool, if it is set.
	StrictTools *bool
	// CacheMarks sends the marks that authors of messages set for the server's prompt cache, and one at the end of the
	// leading system messages. If a mark is in an answer or in a tool's result, none is sent.
	CacheMarks bool
}

// AppendRequest implements dialect.Codec.
func (Codec) AppendRequest(dst []byte, r *dialect.Request) ([]byte, error) {
	return (&Request{Request: *r}).Append(dst)
}

// Append appends the body of the request to dst. It fails with *dialect.UnsupportedError where content cannot be
// expressed in the format. Members of the configuration's extra_body come last and replace all others.
func (r *Request) Append(dst []byte) ([]byte, error) {
	e := &encoder{Request: r, w: jsonwrite.Append(dst, 1024+r.Size())}
	var ok bool
	if e.overrides, ok = dialect.NewOverrides(&r.Request); !ok {
		return nil, unsupported("config.extra_body_json", "extra_body that is no JSON object")
	}
	e.marks = openai.NewMarks(r.Messages, r.CacheMarks)
	e.w.BeginObject()
	e.member("model", func() { e.w.Text(r.Model) })
	if err := e.messages(); err != nil {
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
	return &dialect.UnsupportedError{API: "chat completions", What: what, Field: field}
}

func (e *encoder) tools() {
	if len(e.Tools) == 0 {
		return
	}
	e.member("tools", func() {
		e.w.BeginList()
		for _, tool := range e.Tools {
			e.tool(tool)
		}
		e.w.EndList()
	})
	e.member("tool_choice", e.choice)
	if e.Config != nil && e.Config.ParallelToolCalls != nil {
		e.member("parallel_tool_calls", func() { e.w.Bool(e.Config.GetParallelToolCalls()) })
	}
}

func (e *encoder) tool(tool *toolv1.ToolInfo) {
	e.w.BeginObject()
	e.w.TextMember("type", "function")
	e.w.Key("function")
	e.w.BeginObject()
	e.w.TextMember("name", tool.GetName())
	e.w.TextMember("description", tool.GetDescription())
	e.w.RawUnlessEmpty("parameters", tool.GetParametersJson())
	e.w.OptBool("strict", e.StrictTools)
	e.w.EndObject()
	e.w.EndObject()
}

func (e *encoder) choice() {
	if name := e.Choice.GetFunction(); name != "" {
		e.w.BeginObject()
		e.w.TextMember("type", "function")
		e.w.Key("function")
		e.w.BeginObject()
		e.w.TextMember("name", name)
		e.w.EndObject()
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

// options writes the options of the configuration that are set.
func (e *encoder) options() {
	c := e.Config
	if c == nil {
		c = &modelv1.GenerateConfig{}
	}
	if c.MaxTokens != nil {
		name := e.MaxTokensMember
		if name == "" {
			name = "max_tokens"
		}
		e.member(name, func() { e.w.Int(c.GetMaxTokens()) })
	}
	e.number("temperature", c.Temperature)
	e.number("top_p", c.TopP)
	e.number("frequency_penalty", c.FrequencyPenalty)
	e.number("presence_penalty", c.PresencePenalty)
	if c.StopSeqs != nil {
		e.member("stop", func() { e.textList(c.GetStopSeqs().GetValues()) })
	}
	integer(e, "seed", c.Seed)
	integer(e, "n", c.NumChoices)
	if c.LogitBias != nil {
		e.member("logit_bias", func() { e.logitBias(c.GetLogitBias().GetValues()) })
	}
	if c.Logprobs != nil {
		e.member("logprobs", func() { e.w.Bool(c.GetLogprobs()) })
	}
	integer(e, "top_logprobs", c.TopLogprobs)
	integer(e, "prompt_logprobs", c.PromptLogprobs)
	if c.ReasoningEffort != nil {
		e.member("reasoning_effort", func() { e.w.Text(c.GetReasoningEffort()) })
	}
	if c.ResponseSchema != nil {
		e.member("response_format", func() { e.responseFormat(c.GetResponseSchema()) })
	}
	if e.Stream {
		e.member("stream", func() { e.w.Bool(true) })
		e.member("stream_options", func() { e.w.Raw(`{"include_usage":true}`) })
	}
}

func (e *encoder) number(name string, f *float64) {
	if f != nil {
		e.member(name, func() { e.w.Float(*f) })
	}
}

func integer[T int32 | int64](e *encoder, name string, n *T) {
	if n != nil {
		e.member(name, func() { e.w.Int(int64(*n)) })
	}
}

func (e *encoder) textList(texts []string) {
	e.w.BeginList()
	for _, text := range texts {
		e.w.Text(text)
	}
	e.w.EndList()
}

func (e *encoder) logitBias(bias map[int64]float64) {
	tokens := make([]int64, 0, len(bias))
	for token := range bias {
		tokens = append(tokens, token)
	}
	slices.Sort(tokens)
	e.w.BeginObject()
	for _, token := range tokens {
		e.w.Key(itoa(token))
		e.w.Float(bias[token])
	}
	e.w.EndObject()
}

func (e *encoder) responseFormat(schema *modelv1.ResponseSchema) {
	e.w.BeginObject()
	e.w.TextMember("type", "json_schema")
	e.w.Key("json_schema")
	e.w.BeginObject()
	e.w.TextMember("name", schema.GetName())
	e.w.OptText("description", schema.Description)
	e.w.RawUnlessEmpty("schema", schema.GetJsonSchema())
	e.w.OptBool("strict", schema.Strict)
	e.w.EndObject()
	e.w.EndObject()
}
