package gemini

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/arrange"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
)

// Request is a request with the options that differ between models. System messages are the request's instructions,
// wherever they are in the conversation. The choice is sent if there are tools.
type Request struct {
	dialect.Request
	// Thinking configures the model's thinking; nil leaves it to the server.
	Thinking *Thinking
	// ThinkTags sends past reasoning as texts between think tags, for models that do not think themselves.
	ThinkTags bool
	// Search and Execution offer tools of the server: its search of the web, and its execution of code.
	Search, Execution bool
	// SearchOptions are the members of the search; nil is none.
	SearchOptions *orderedjson.Object
	// Computer is the name of the tool that is a computer, which is not among Tools: the server has functions of its
	// own for it, whose calls are in the messages. Results of the tool have the screenshot in them. Empty: there is
	// none.
	Computer string
	// Safety are the thresholds of the content filter; a category that is not there has the server's.
	Safety []SafetySetting
	// Files are the addresses at Google of media that were uploaded, by their data URIs in messages.
	Files map[string]string
	// PlainCount asks for the number of tokens in the form of Vertex AI, which takes the parts that have tokens alone.
	PlainCount bool
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
	e.Body.BeginObject()
	e.members()
	e.Body.EndObject()
	return e.Written()
}

func (r *Request) encoder(dst []byte) *encoder {
	return &encoder{Request: r, Encoder: dialect.NewEncoder(dst, &r.Request, "the Gemini API"), functions: map[string]string{}}
}

// encoder writes one request.
type encoder struct {
	*Request
	dialect.Encoder
	// functions are the functions that were called, by the ids of their calls, if there is a computer.
	functions map[string]string
}

// refuse refuses content of the conversation.
func (e *encoder) refuse(what string) { e.Refuse("messages", what) }

// conversation writes the messages.
func (e *encoder) conversation() {
	e.Member("contents", e.contents)
	if slices.ContainsFunc(e.Messages, arrange.IsSystem) {
		e.Member("systemInstruction", e.instruction)
	}
}

// offer writes the tools.
func (e *encoder) offer() {
	if len(e.Tools) > 0 || e.serverTools() || e.Computer != "" {
		e.Member("tools", e.tools)
	}
}

// members writes the members of the request, the conversation first.
func (e *encoder) members() {
	e.conversation()
	if len(e.Safety) > 0 {
		e.Member("safetySettings", e.safety)
	}
	e.offer()
	if len(e.Tools) > 0 && e.Choice != nil {
		e.Object("toolConfig", e.choice)
	}
	e.Object("generationConfig", e.options)
	e.Further(func(member string) bool { return !ofConfig(member) })
}

func (e *encoder) safety() {
	for _, s := range jsonwrite.List(e.Body, e.Safety) {
		e.Body.TextObject("category", s.Category, "threshold", s.Threshold)
	}
}

func (e *encoder) serverTools() bool { return e.Search || e.Execution }

func (e *encoder) tools() {
	e.Body.BeginList()
	if e.Search {
		e.Body.BeginObject()
		e.Body.RawMember("googleSearch", string(orderedjson.Append(nil, cmp.Or(e.SearchOptions, &orderedjson.Object{}))))
		e.Body.EndObject()
	}
	if e.Execution {
		e.Body.Raw(`{"codeExecution":{}}`)
	}
	if e.Computer != "" {
		e.Body.Raw(`{"computerUse":{"environment":"ENVIRONMENT_BROWSER"}}`)
	}
	if len(e.Tools) > 0 {
		e.declarations()
	}
	e.Body.EndList()
}

func (e *encoder) declarations() {
	e.Body.BeginObject()
	e.Body.Key(memberFunctions)
	for _, tool := range jsonwrite.Objects(e.Body, e.Tools) {
		e.CheckTool(tool)
		e.Body.TextMember("name", tool.GetName())
		e.Body.TextMember("description", tool.GetDescription())
		if !takesNothing(tool) {
			e.Body.RawUnlessEmpty("parameters_json_schema", tool.GetParametersJson())
		}
	}
	e.Body.EndObject()
}

// takesNothing reports whether a tool is declared to have no parameters. The API wants no schema then.
func takesNothing(tool *toolv1.ToolInfo) bool {
	var schema struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	return json.Unmarshal([]byte(tool.GetParametersJson()), &schema) == nil && schema.Properties != nil && len(schema.Properties) == 0
}

// modes are the modes of function calling; modeValidated is the automatic one beside tools of the server.
var modes = dialect.ChoiceWords{Auto: "AUTO", Any: "ANY", None: "NONE"}

const modeValidated = "VALIDATED"

// choice writes the choice among the functions.
func (e *encoder) choice() {
	name, mode := e.Choice.GetFunction(), modes.Word(e.Choice)
	switch {
	case name != "":
		mode = modes.Any
	case mode == modes.Auto && e.serverTools():
		mode = modeValidated
	}
	e.Body.BeginObjectMember("functionCallingConfig")
	e.Body.TextMember("mode", mode)
	if name != "" {
		e.Body.TextList("allowedFunctionNames", []string{name})
	}
	e.Body.EndObject()
	if e.serverTools() {
		e.Body.BoolMember("includeServerSideToolInvocations", true)
	}
}

// configMembers are the members of generationConfig: https://ai.google.dev/api/generate-content#generationconfig.
var configMembers = []string{
	"temperature", "topP", "topK", "maxOutputTokens", "stopSequences", "presencePenalty", "frequencyPenalty", "seed", "candidateCount", "responseLogprobs", "logprobs",
	"responseMimeType", "responseSchema", "responseJsonSchema", "responseModalities", "thinkingConfig", "imageConfig", "speechConfig", "mediaResolution",
	"enableEnhancedCivicAnswers",
}

func ofConfig(member string) bool { return slices.Contains(configMembers, member) }

// options writes the options of the configuration that are set.
func (e *encoder) options() {
	c := e.Config
	e.OptFloat("temperature", c.Temperature)
	e.OptFloat("topP", c.TopP)
	dialect.OptInt(&e.MemberWriter, "topK", c.TopK)
	dialect.OptInt(&e.MemberWriter, "maxOutputTokens", c.MaxTokens)
	e.OptTexts("stopSequences", c.GetStopSeqs())
	e.OptFloat("presencePenalty", c.PresencePenalty)
	e.OptFloat("frequencyPenalty", c.FrequencyPenalty)
	dialect.OptInt(&e.MemberWriter, "seed", c.Seed)
	dialect.OptInt(&e.MemberWriter, "candidateCount", c.NumChoices)
	e.OptBool("responseLogprobs", c.Logprobs)
	dialect.OptInt(&e.MemberWriter, "logprobs", c.TopLogprobs)
	if schema := c.GetResponseSchema(); schema != nil {
		e.CheckSchema(schema)
		e.Member("responseMimeType", func() { e.Body.Text(typeJSON) })
		if !dialect.IsAnyJSON(schema) {
			e.Member("responseJsonSchema", func() { e.Body.Raw(schema.GetJsonSchema()) })
		}
	}
	if _, images := chat.ImageOutput(c); images {
		e.Member("responseModalities", func() { e.Body.Texts([]string{modalityText, modalityImage}) })
	}
	if e.Thinking != nil {
		e.Object("thinkingConfig", e.thinking)
	}
	e.Further(ofConfig)
}

// Media types of answers, and kinds of their parts.
const (
	typeJSON = "application/json"
	typeText = "text/plain"

	modalityText  = "TEXT"
	modalityImage = "IMAGE"
)

func (e *encoder) thinking() {
	e.Body.BoolMember("include_thoughts", e.Thinking.Include)
	jsonwrite.OptInt(e.Body, "thinking_budget", e.Thinking.Budget)
	e.Body.TextUnlessEmpty("thinking_level", e.Thinking.Level)
}
