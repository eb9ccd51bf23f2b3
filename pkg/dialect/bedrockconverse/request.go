package bedrockconverse

import (
	"cmp"
	"slices"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// Request is a request with the options that differ between models. System messages are the request's instructions,
// wherever they are in the conversation. The choice is sent if there are tools; since the format cannot forbid calls, a
// choice of none leaves the tools out.
type Request struct {
	dialect.Request
	// Fields are what the model alone takes.
	Fields Fields
	// Thoughts selects how past reasoning is sent.
	Thoughts Thoughts
	// Cache selects what the server should cache.
	Cache Cache
}

// Thoughts selects how past reasoning is sent.
type Thoughts int

const (
	// AsReasoning sends it as such, and what is sealed as it came.
	AsReasoning Thoughts = iota
	// AsText sends it as text between think tags, and leaves out what is sealed.
	AsText
)

// Cache selects what the server should cache: the instructions, and the conversation up to its last two turns.
type Cache int

const (
	// NoCache caches nothing.
	NoCache Cache = iota
	// CacheText caches the instructions and the conversation.
	CacheText
	// CacheTools caches the tools too, where there are no instructions, which come after the tools in a prompt.
	CacheTools
)

// AppendRequest implements dialect.Codec.
func (Codec) AppendRequest(dst []byte, r *dialect.Request) ([]byte, error) {
	return (&Request{Request: *r}).Append(dst)
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
	return &encoder{Request: r, Encoder: dialect.NewEncoder(dst, &r.Request, "the Converse API")}
}

// encoder writes one request.
type encoder struct {
	*Request
	dialect.Encoder
}

// refuse refuses content of the conversation.
func (e *encoder) refuse(what string) { e.Refuse("messages", what) }

// inferenceMembers are the members of inferenceConfig:
// https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_InferenceConfiguration.html.
var inferenceMembers = []string{"maxTokens", "temperature", "topP", "stopSequences"}

func ofInference(member string) bool { return slices.Contains(inferenceMembers, member) }

// members writes the members of the request, the conversation first.
func (e *encoder) members() {
	e.conversation()
	e.Object("inferenceConfig", e.inference)
	e.tools()
	if schema := e.Config.GetResponseSchema(); schema != nil {
		e.Object("outputConfig", func() { e.output(schema) })
	}
	e.fields()
	e.Further(func(member string) bool { return !ofInference(member) })
}

// conversation writes the messages, those of the system apart.
func (e *encoder) conversation() {
	e.Member("messages", e.turns)
	if system := e.instructions(); len(system) > 0 {
		e.Member("system", func() { e.system(system) })
	}
}

func (e *encoder) tools() {
	if len(e.Tools) > 0 && e.Choice.GetMode() != toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_NONE {
		e.Object("toolConfig", e.toolConfig)
	}
}

// fields writes what the model alone takes.
func (e *encoder) fields() {
	if !e.Fields.isZero() {
		e.Member("additionalModelRequestFields", func() { e.Fields.write(e.Body) })
	}
}

// inference writes the options of the configuration that are set.
func (e *encoder) inference() {
	dialect.OptInt(&e.MemberWriter, "maxTokens", e.Config.MaxTokens)
	e.OptFloat("temperature", e.Config.Temperature)
	e.OptFloat("topP", e.Config.TopP)
	e.OptTexts("stopSequences", e.Config.GetStopSeqs())
	e.Further(ofInference)
}

// cachePoint is the mark after content that the server should cache.
const cachePoint = `{"cachePoint":{"type":"default"}}`

func (e *encoder) toolConfig() {
	e.Body.BeginListMember("tools")
	for _, tool := range e.Tools {
		e.tool(tool)
	}
	if e.Cache == CacheTools && len(e.instructions()) == 0 {
		e.Body.Raw(cachePoint)
	}
	e.Body.EndList()
	if e.Choice != nil {
		e.Body.Key("toolChoice")
		e.choice()
	}
}

func (e *encoder) tool(tool *toolv1.ToolInfo) {
	e.CheckTool(tool)
	e.Body.BeginObject()
	e.Body.BeginObjectMember("toolSpec")
	e.Body.TextMember("name", tool.GetName())
	e.Body.TextUnlessEmpty("description", tool.GetDescription())
	e.Body.BeginObjectMember("inputSchema")
	e.Body.RawMember("json", cmp.Or(tool.GetParametersJson(), dialect.NoParameters))
	e.Body.EndObject()
	e.Body.EndObject()
	e.Body.EndObject()
}

// Choices among the tools.
const (
	choiceAuto = "auto"
	choiceAny  = "any"
	choiceTool = "tool"
)

func (e *encoder) choice() {
	e.Body.BeginObject()
	switch name := e.Choice.GetFunction(); {
	case name != "":
		e.Body.TextObjectMember(choiceTool, "name", name)
	case e.Choice.GetMode() == toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_ANY:
		e.Body.RawMember(choiceAny, "{}")
	default:
		e.Body.RawMember(choiceAuto, "{}")
	}
	e.Body.EndObject()
}

// schemaFormat is the form of an answer that has a schema.
const schemaFormat = "json_schema"

// output writes the form of the answer. The schema is a text.
func (e *encoder) output(schema *modelv1.ResponseSchema) {
	e.CheckSchema(schema)
	e.RefuseAnyJSON(schema)
	e.Body.BeginObjectMember("textFormat")
	e.Body.TextMember("type", schemaFormat)
	e.Body.BeginObjectMember("structure")
	e.Body.BeginObjectMember("jsonSchema")
	e.Body.TextMember("schema", schema.GetJsonSchema())
	e.Body.TextUnlessEmpty("name", schema.GetName())
	e.Body.TextUnlessEmpty("description", schema.GetDescription())
	e.Body.EndObject()
	e.Body.EndObject()
	e.Body.EndObject()
}
