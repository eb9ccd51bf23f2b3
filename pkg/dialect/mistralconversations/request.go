package mistralconversations

import (
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/mistral"
	"github.com/evalfleet/evalfleet/pkg/dialect/openai"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// Request is a request with the options in which calls differ.
type Request struct {
	dialect.Request
	// Native are tools that the server runs itself in the place of an offered one: ToolSearch or ToolCode by the name
	// of the offered tool.
	Native map[string]string
}

// Tools that the server runs itself.
const (
	ToolSearch = "web_search"
	ToolCode   = "code_interpreter"
)

// AppendRequest implements dialect.Codec.
func (Codec) AppendRequest(dst []byte, r *dialect.Request) ([]byte, error) {
	return (&Request{Request: *r}).Append(dst)
}

// Append appends the body of the request to dst. All system messages are its instructions. It asks the server to store
// nothing. If the choice among the tools names one, it alone is offered. extra_body has no meaning: the API refuses
// unknown members.
func (r *Request) Append(dst []byte) ([]byte, error) {
	e := &encoder{Request: r, Encoder: dialect.NewEncoder(dst, &r.Request, "Mistral's Conversations API")}
	e.Body.BeginObject()
	e.Member("model", func() { e.Body.Text(r.Model) })
	if text := instructions(r.Messages); text != "" {
		e.Member("instructions", func() { e.Body.Text(text) })
	}
	e.Member("inputs", e.inputs)
	offered := e.offered()
	if len(offered) > 0 {
		e.Member("tools", func() { e.tools(offered) })
	}
	e.Member("completion_args", func() { e.arguments(len(offered) > 0) })
	e.Member("stream", func() { e.Body.Bool(e.Stream) })
	e.Member("store", func() { e.Body.Bool(false) })
	e.Overrides.Write(e.Body)
	e.Body.EndObject()
	return e.Written()
}

// encoder writes one request.
type encoder struct {
	*Request
	dialect.Encoder
}

// instructions are the texts of the system messages.
func instructions(messages []*modelv1.ChatMessage) string {
	var texts []string
	for _, m := range messages {
		if isSystem(m) {
			texts = append(texts, chat.Text(m))
		}
	}
	return strings.Join(texts, "\n\n")
}

func isSystem(m *modelv1.ChatMessage) bool {
	switch m.GetRole() {
	case modelv1.Role_ROLE_USER, modelv1.Role_ROLE_ASSISTANT, modelv1.Role_ROLE_TOOL:
		return false
	default:
		return true
	}
}

// offered are the tools that the model may call.
func (e *encoder) offered() []*toolv1.ToolInfo {
	name := e.Choice.GetFunction()
	if name == "" {
		return e.Tools
	}
	for _, tool := range e.Tools {
		if tool.GetName() == name {
			return []*toolv1.ToolInfo{tool}
		}
	}
	return e.Tools
}

func (e *encoder) tools(offered []*toolv1.ToolInfo) {
	for _, tool := range jsonwrite.List(e.Body, offered) {
		e.CheckTool(tool)
		if native := e.Native[tool.GetName()]; native != "" {
			e.Body.TextObject("type", native)
		} else {
			openai.WriteFunction(e.Body, tool, nil, nil)
		}
	}
}

// arguments writes the options of the configuration that are set and that the format has.
func (e *encoder) arguments(tools bool) {
	c := e.Config
	e.Body.BeginObject()
	e.OptTexts("stop", c.StopSeqs)
	e.OptFloat("presence_penalty", c.PresencePenalty)
	e.OptFloat("frequency_penalty", c.FrequencyPenalty)
	e.OptFloat("temperature", c.Temperature)
	e.OptFloat("top_p", c.TopP)
	dialect.OptInt(&e.MemberWriter, "max_tokens", c.MaxTokens)
	dialect.OptInt(&e.MemberWriter, "random_seed", c.Seed)
	if c.ResponseSchema != nil {
		e.CheckSchema(c.GetResponseSchema())
		e.Member("response_format", func() { openai.WriteResponseSchema(e.Body, c.GetResponseSchema()) })
	}
	if tools && e.Choice != nil {
		word := openai.Choices.Word(e.Choice)
		if e.Choice.GetFunction() != "" {
			word = openai.ChoiceRequired
		}
		e.Member("tool_choice", func() { e.Body.Text(word) })
	}
	e.OptText("reasoning_effort", c.ReasoningEffort)
	e.Body.EndObject()
}

// inputs writes the conversation, without its system messages, as entries.
func (e *encoder) inputs() {
	for _, m := range jsonwrite.List(e.Body, e.Messages) {
		switch m.GetRole() { //nolint:exhaustive // All others are the instructions.
		case modelv1.Role_ROLE_USER:
			e.prompt(m)
		case modelv1.Role_ROLE_ASSISTANT:
			e.assistant(m)
		case modelv1.Role_ROLE_TOOL:
			e.result(m)
		}
	}
}

// prompt writes a user's message.
func (e *encoder) prompt(m *modelv1.ChatMessage) {
	begin(e.Body, typeInput)
	e.Body.TextMember("role", "user")
	e.Body.BeginListMember("content")
	if list := m.GetContent().GetList(); list == nil {
		mistral.WriteText(e.Body, m.GetContent().GetText())
	} else {
		for _, part := range list.GetParts() {
			if document := part.GetDocument(); document != nil {
				mistral.WriteDocument(e.Body, document)
			} else if !mistral.WritePart(e.Body, part) {
				e.Refuse("messages", "content in a user message that is neither text, image nor document")
			}
		}
	}
	e.Body.EndList()
	e.Body.BoolMember("prefix", false)
	e.Body.EndObject()
}

// result writes a tool's result.
func (e *encoder) result(m *modelv1.ChatMessage) {
	id := m.GetFunction()
	if ids := m.GetToolCallIds(); len(ids) > 0 {
		id = ids[0]
	}
	begin(e.Body, typeResult)
	e.Body.TextMember("tool_call_id", id)
	e.Body.TextMember("result", chat.ResultText(m))
	e.Body.EndObject()
}

// assistant writes a model's turn: a message for neighbouring parts, and an entry for each call. What a tool of a
// server did goes as a text, since the API refuses its own entries for it.
func (e *encoder) assistant(m *modelv1.ChatMessage) {
	list := m.GetContent().GetList()
	if list == nil {
		e.output(func() { e.Body.Text(m.GetContent().GetText()) })
	}
	open := false
	end := func() {
		if open {
			e.Body.EndList()
			endOutput(e.Body)
			open = false
		}
	}
	for _, part := range list.GetParts() {
		if use := part.GetToolUse(); use != nil {
			end()
			name := ToolCode
			if use.GetToolType() == mcpCall {
				name = use.GetName()
			}
			e.output(func() { e.Body.Text(name + ": \n\n" + use.GetArguments() + "\n\n" + use.GetResult()) })
			continue
		}
		if !open {
			beginOutput(e.Body)
			e.Body.BeginList()
			open = true
		}
		if !mistral.WritePart(e.Body, part) {
			e.Refuse("messages", "content in a message of the assistant that is neither text, reasoning, image nor the use of a tool")
		}
	}
	end()
	for _, call := range m.GetToolCalls() {
		begin(e.Body, typeCall)
		e.Body.TextMember("tool_call_id", call.GetId())
		e.Body.TextMember("name", call.GetFunction())
		writeArguments(e.Body, dialect.ArgumentsOf(call))
		e.Body.EndObject()
	}
}

// output writes a message of the assistant with this content.
func (e *encoder) output(content func()) {
	beginOutput(e.Body)
	content()
	endOutput(e.Body)
}

func beginOutput(w *jsonwrite.Writer) {
	begin(w, typeOutput)
	w.TextMember("role", "assistant")
	w.Key("content")
}

func endOutput(w *jsonwrite.Writer) { w.EndObject() }
