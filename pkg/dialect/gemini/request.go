package gemini

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// Request is a request with the options that differ between models. System messages are the request's instructions,
// wherever they are in the conversation. The choice is sent if there are tools.
type Request struct {
	dialect.Request
	// Thinking configures the model's thinking; nil leaves it to the server.
	Thinking *Thinking
	// Search and Execution offer tools of the server: its search of the web, and its execution of code.
	Search, Execution bool
	// Safety are the thresholds of the content filter; a category that is not there has the server's.
	Safety []SafetySetting
}

// Thinking configures the model's thoughts.
type Thinking struct {
	// Include requests the thoughts in the answer.
	Include bool
	// Budget bounds the tokens for thoughts: 0 disables them, nil is unset.
	Budget *int64
	// Level is how much the model thinks, such as `HIGH`; empty is unset.
	Level string
}

// SafetySetting is a threshold of the content filter.
type SafetySetting struct {
	// Category is such as `HARM_CATEGORY_HARASSMENT`, Threshold such as `BLOCK_NONE`.
	Category, Threshold string
}

// AppendRequest implements dialect.Codec.
func (Codec) AppendRequest(dst []byte, r *dialect.Request) ([]byte, error) {
	return plain(r).Append(dst)
}

// plain is a request of which nothing is known but the configuration. The API refuses a budget beside a level; more
// models take a budget.
func plain(r *dialect.Request) *Request {
	own := &Request{Request: *r}
	switch c, effort := r.Config, r.Config.GetReasoningEffort(); {
	case effort == "none":
		own.Thinking = &Thinking{Budget: new(int64(0))}
	case c != nil && c.ReasoningTokens != nil:
		own.Thinking = &Thinking{Include: c.GetReasoningTokens() != 0, Budget: c.ReasoningTokens}
	case effort != "":
		own.Thinking = &Thinking{Include: true, Level: strings.ToUpper(effort)}
	}
	return own
}

// Append appends the body of the request to dst. It fails with *dialect.UnsupportedError where content cannot be
// expressed in the format.
func (r *Request) Append(dst []byte) ([]byte, error) {
	e := r.encoder(dst)
	e.w.BeginObject()
	e.members()
	e.w.EndObject()
	return e.w.Bytes(), e.err
}

func (r *Request) encoder(dst []byte) *encoder {
	return &encoder{Request: r, w: jsonwrite.Append(dst, 1024+r.size()), c: cmp.Or(r.Config, &modelv1.GenerateConfig{})}
}

// encoder writes one request.
type encoder struct {
	*Request
	w *jsonwrite.Writer
	// c is the configuration; never nil.
	c *modelv1.GenerateConfig
	// err is the first content that cannot be expressed.
	err error
}

// refuse keeps the error for content that the format cannot express.
func (e *encoder) refuse(what string) { e.unsupported("messages", what) }

func (e *encoder) unsupported(field, what string) {
	if e.err == nil {
		e.err = &dialect.UnsupportedError{API: "the Gemini API", What: what, Field: field}
	}
}

// isObject reports whether a document is a JSON object, or empty.
func isObject(document string) bool {
	return document == "" || strings.HasPrefix(strings.TrimLeft(document, " \t\r\n"), "{") && json.Valid([]byte(document))
}

// members writes the members of the request, the conversation first.
func (e *encoder) members() {
	e.member("contents", e.contents)
	if slices.ContainsFunc(e.Messages, isSystem) {
		e.member("systemInstruction", e.instruction)
	}
	if len(e.Safety) > 0 {
		e.member("safetySettings", e.safety)
	}
	if len(e.Tools) > 0 || e.serverTools() {
		e.member("tools", e.tools)
	}
	if len(e.Tools) > 0 && e.Choice != nil {
		e.member("toolConfig", e.choice)
	}
	e.member("generationConfig", e.options)
	for _, m := range e.Members {
		if !configMembers[m.Name] {
			e.w.RawMember(m.Name, m.JSON)
		}
	}
}

// member writes a member, unless Members gives it.
func (e *encoder) member(name string, value func()) {
	if slices.ContainsFunc(e.Members, func(m dialect.Member) bool { return m.Name == name }) {
		return
	}
	e.w.Key(name)
	value()
}

func (e *encoder) safety() {
	e.w.BeginList()
	for _, s := range e.Safety {
		e.w.BeginObject()
		e.w.TextMember("category", s.Category)
		e.w.TextMember("threshold", s.Threshold)
		e.w.EndObject()
	}
	e.w.EndList()
}

func (e *encoder) serverTools() bool { return e.Search || e.Execution }

func (e *encoder) tools() {
	e.w.BeginList()
	if e.Search {
		e.w.Raw(`{"googleSearch":{}}`)
	}
	if e.Execution {
		e.w.Raw(`{"codeExecution":{}}`)
	}
	if len(e.Tools) > 0 {
		e.functions()
	}
	e.w.EndList()
}

func (e *encoder) functions() {
	e.w.BeginObject()
	e.w.Key("functionDeclarations")
	e.w.BeginList()
	for _, tool := range e.Tools {
		if !isObject(tool.GetParametersJson()) {
			e.unsupported("tools", "the tool "+tool.GetName()+", whose schema is no JSON object")
		}
		e.w.BeginObject()
		e.w.TextMember("name", tool.GetName())
		e.w.TextMember("description", tool.GetDescription())
		if !takesNothing(tool) {
			e.w.RawUnlessEmpty("parameters_json_schema", tool.GetParametersJson())
		}
		e.w.EndObject()
	}
	e.w.EndList()
	e.w.EndObject()
}

// takesNothing reports whether a tool is declared to have no parameters. The API wants no schema then.
func takesNothing(tool *toolv1.ToolInfo) bool {
	var schema struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	return json.Unmarshal([]byte(tool.GetParametersJson()), &schema) == nil && schema.Properties != nil && len(schema.Properties) == 0
}

// Modes of function calling.
const (
	modeAuto      = "AUTO"
	modeAny       = "ANY"
	modeNone      = "NONE"
	modeValidated = "VALIDATED"
)

// choice writes the choice among the functions. Beside tools of the server the API has no automatic one.
func (e *encoder) choice() {
	name, mode := e.Choice.GetFunction(), modeAuto
	switch {
	case name != "", e.Choice.GetMode() == toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_ANY:
		mode = modeAny
	case e.Choice.GetMode() == toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_NONE:
		mode = modeNone
	case e.serverTools():
		mode = modeValidated
	}
	e.w.BeginObject()
	e.w.Key("functionCallingConfig")
	e.w.BeginObject()
	e.w.TextMember("mode", mode)
	if name != "" {
		e.w.TextList("allowedFunctionNames", []string{name})
	}
	e.w.EndObject()
	if e.serverTools() {
		e.w.BoolMember("includeServerSideToolInvocations", true)
	}
	e.w.EndObject()
}

// configMembers are the members of generationConfig: https://ai.google.dev/api/generate-content#generationconfig.
var configMembers = func() map[string]bool {
	all := map[string]bool{}
	for _, name := range []string{
		"temperature", "topP", "topK", "maxOutputTokens", "stopSequences", "presencePenalty", "frequencyPenalty", "seed", "candidateCount", "responseLogprobs", "logprobs",
		"responseMimeType", "responseSchema", "responseJsonSchema", "responseModalities", "thinkingConfig", "imageConfig", "speechConfig", "mediaResolution",
		"enableEnhancedCivicAnswers",
	} {
		all[name] = true
	}
	return all
}()

// options writes the options of the configuration that are set.
func (e *encoder) options() {
	c := e.c
	e.w.BeginObject()
	e.number("temperature", c.Temperature)
	e.number("topP", c.TopP)
	integer(e, "topK", c.TopK)
	integer(e, "maxOutputTokens", c.MaxTokens)
	if c.StopSeqs != nil {
		e.member("stopSequences", func() { e.list(c.GetStopSeqs().GetValues()) })
	}
	e.number("presencePenalty", c.PresencePenalty)
	e.number("frequencyPenalty", c.FrequencyPenalty)
	integer(e, "seed", c.Seed)
	integer(e, "candidateCount", c.NumChoices)
	if c.Logprobs != nil {
		e.member("responseLogprobs", func() { e.w.Bool(c.GetLogprobs()) })
	}
	integer(e, "logprobs", c.TopLogprobs)
	if schema := c.GetResponseSchema(); schema != nil {
		if !isObject(schema.GetJsonSchema()) {
			e.unsupported("config.response_schema.json_schema", "a schema of answers that is no JSON object")
		}
		e.member("responseMimeType", func() { e.w.Text(typeJSON) })
		e.member("responseJsonSchema", func() { e.w.Raw(cmp.Or(schema.GetJsonSchema(), "{}")) })
	}
	if _, images := chat.ImageOutput(c); images {
		e.member("responseModalities", func() { e.list([]string{modalityText, modalityImage}) })
	}
	if e.Thinking != nil {
		e.member("thinkingConfig", e.thinking)
	}
	for _, m := range e.Members {
		if configMembers[m.Name] {
			e.w.RawMember(m.Name, m.JSON)
		}
	}
	e.w.EndObject()
}

// Media types of answers, and kinds of their parts.
const (
	typeJSON = "application/json"
	typeText = "text/plain"

	modalityText  = "TEXT"
	modalityImage = "IMAGE"
)

func (e *encoder) thinking() {
	e.w.BeginObject()
	e.w.BoolMember("include_thoughts", e.Thinking.Include)
	jsonwrite.OptInt(e.w, "thinking_budget", e.Thinking.Budget)
	e.w.TextUnlessEmpty("thinking_level", e.Thinking.Level)
	e.w.EndObject()
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

func (e *encoder) list(texts []string) {
	e.w.BeginList()
	for _, text := range texts {
		e.w.Text(text)
	}
	e.w.EndList()
}

// size guesses how many bytes a request takes, so that its buffer need not grow.
func (r *Request) size() int {
	n := 0
	for _, m := range r.Messages {
		n += 96 + dialect.ContentSize(m.GetContent())
		for _, call := range m.GetToolCalls() {
			n += 96 + len(call.GetArgumentsJson())
		}
	}
	for _, tool := range r.Tools {
		n += 128 + len(tool.GetDescription()) + len(tool.GetParametersJson())
	}
	return n + n/8
}
