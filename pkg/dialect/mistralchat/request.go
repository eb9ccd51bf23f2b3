package mistralchat

import (
	"cmp"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/mistral"
	"github.com/evalfleet/evalfleet/pkg/dialect/openai"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// AppendRequest implements dialect.Codec. A user's message after a tool's result becomes a part of that result, since
// the API refuses it there, and [dialect.NoContent] replaces empty texts. extra_body has no meaning: the API refuses
// unknown members.
func (Codec) AppendRequest(dst []byte, r *dialect.Request) ([]byte, error) {
	e := &encoder{Request: r, Encoder: dialect.NewEncoder(dst, r, "Mistral's chat completions")}
	e.Body.BeginObject()
	e.Member("model", func() { e.Body.Text(r.Model) })
	e.Member("messages", e.messages)
	e.tools()
	e.options()
	e.Overrides.Write(e.Body)
	e.Body.EndObject()
	return e.Written()
}

// encoder writes one request.
type encoder struct {
	*dialect.Request
	dialect.Encoder
}

func (e *encoder) tools() {
	if len(e.Tools) == 0 {
		return
	}
	e.Member("tools", func() {
		for _, tool := range jsonwrite.List(e.Body, e.Tools) {
			e.CheckTool(tool)
			openai.WriteFunction(e.Body, tool, nil, nil)
		}
	})
	if e.Choice != nil {
		e.Member("tool_choice", func() { openai.WriteChoice(e.Body, e.Choice, mistral.AnyTool) })
	}
	e.OptBool("parallel_tool_calls", e.Encoder.Config.ParallelToolCalls)
}

// options writes the options of the configuration that are set and that the format has.
func (e *encoder) options() {
	c := e.Encoder.Config
	dialect.OptInt(&e.MemberWriter, "max_tokens", c.MaxTokens)
	e.OptFloat("temperature", c.Temperature)
	e.OptFloat("top_p", c.TopP)
	dialect.OptInt(&e.MemberWriter, "top_k", c.TopK)
	e.OptFloat("presence_penalty", c.PresencePenalty)
	e.OptFloat("frequency_penalty", c.FrequencyPenalty)
	e.OptTexts("stop", c.StopSeqs)
	dialect.OptInt(&e.MemberWriter, "random_seed", c.Seed)
	dialect.OptInt(&e.MemberWriter, "n", c.NumChoices)
	e.OptText("reasoning_effort", c.ReasoningEffort)
	if c.ResponseSchema != nil {
		e.CheckSchema(c.GetResponseSchema())
		e.Member("response_format", func() { openai.WriteResponseSchema(e.Body, c.GetResponseSchema()) })
	}
	e.Member("stream", func() { e.Body.Bool(e.Stream) })
}

func (e *encoder) messages() {
	e.Body.BeginList()
	for i := 0; i < len(e.Messages); {
		next := i + 1
		if e.Messages[i].GetRole() == modelv1.Role_ROLE_TOOL {
			for next < len(e.Messages) && e.Messages[next].GetRole() == modelv1.Role_ROLE_USER {
				next++
			}
		}
		e.message(e.Messages[i], e.Messages[i+1:next])
		i = next
	}
	e.Body.EndList()
}

// message writes a message. following are the user's messages that belong to a tool's result.
func (e *encoder) message(m *modelv1.ChatMessage, following []*modelv1.ChatMessage) {
	e.Body.BeginObject()
	switch m.GetRole() {
	case modelv1.Role_ROLE_USER:
		e.Body.TextMember("role", "user")
		e.content(m.GetContent())
	case modelv1.Role_ROLE_ASSISTANT:
		e.Body.TextMember("role", "assistant")
		e.content(m.GetContent())
		e.calls(m)
		e.Body.BoolMember("prefix", false)
	case modelv1.Role_ROLE_TOOL:
		e.result(m, following)
	default:
		e.Body.TextMember("role", "system")
		e.content(m.GetContent())
	}
	e.Body.EndObject()
}

// content writes the content of a message: a text, or chunks.
func (e *encoder) content(c *contentv1.MessageContent) {
	e.Body.Key("content")
	list := c.GetList()
	if len(list.GetParts()) == 0 {
		e.Body.Text(cmp.Or(c.GetText(), dialect.NoContent))
		return
	}
	e.Body.BeginList()
	e.chunks(list.GetParts())
	e.Body.EndList()
}

func (e *encoder) chunks(parts []*contentv1.Content) {
	for _, part := range parts {
		if !mistral.WritePart(e.Body, part) {
			e.Refuse("messages", "content that is neither text, reasoning nor image")
		}
	}
}

// result writes a tool's result: its text, or its error; and the user's messages that follow.
func (e *encoder) result(m *modelv1.ChatMessage, following []*modelv1.ChatMessage) {
	e.Body.TextMember("role", "tool")
	e.Body.TextUnlessEmpty("name", m.GetFunction())
	e.Body.Key("content")
	if text := chat.ResultText(m); len(following) == 0 {
		e.Body.Text(text)
	} else {
		e.Body.BeginList()
		mistral.WriteText(e.Body, text)
		for _, more := range following {
			e.chunks(chat.Parts(more.GetContent()))
		}
		e.Body.EndList()
	}
	if ids := m.GetToolCallIds(); len(ids) > 0 {
		e.Body.TextMember("tool_call_id", ids[0])
	}
}

func (e *encoder) calls(m *modelv1.ChatMessage) {
	if len(m.GetToolCalls()) == 0 {
		return
	}
	e.Body.Key("tool_calls")
	for _, call := range jsonwrite.List(e.Body, m.GetToolCalls()) {
		writeCall(e.Body, 0, call.GetId(), call.GetFunction(), dialect.ArgumentsOf(call))
	}
}

// writeCall writes a call, or a piece of one: without a name it is a further piece.
func writeCall(w *jsonwrite.Writer, index int, id, name, arguments string) {
	w.BeginObject()
	w.TextUnlessEmpty("id", id)
	w.TextMember("type", "function")
	w.TextObjectMember("function", "name", name, "arguments", arguments)
	w.IntMember("index", int64(index))
	w.EndObject()
}
