package openaichat

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/openai"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// The older form of tools: a request offers functions, and an answer calls one of them at most. Calls have no ids: a
// result is that of the call before it.

// Members of the older form.
const (
	memberFunctions    = "functions"
	memberFunctionCall = "function_call"
)

// older reports whether a request offers its tools in the older form.
func (w *wireRequest) older() bool { return w.Functions != nil || jsonread.IsSet(w.FunctionCall) }

// offerFunctions reads functions, and the choice among them.
func (w *wireRequest) offerFunctions(r *dialect.Request) error {
	if w.Tools != nil || jsonread.IsSet(w.ToolChoice) {
		member := memberFunctionCall
		if w.Functions != nil {
			member = memberFunctions
		}
		return dialect.Invalid(member, "must not be beside `tools` and `tool_choice`, of which it is the older form")
	}
	r.OneCall = true
	for i := range w.Functions {
		tool, err := w.Functions[i].Tool(fmt.Sprintf("%s[%d]", memberFunctions, i))
		if err != nil {
			return err
		}
		r.Tools = append(r.Tools, tool)
	}
	if !jsonread.IsSet(w.FunctionCall) {
		return nil
	}
	var word string
	if json.Unmarshal(w.FunctionCall, &word) == nil {
		choice, ok := openai.Choices.Choice(word)
		if !ok || word == openai.ChoiceRequired {
			return dialect.Invalid(memberFunctionCall, "%q is none of auto, none", word)
		}
		r.Choice = choice
		return nil
	}
	var named openai.Called
	if json.Unmarshal(w.FunctionCall, &named) != nil || named.Name == "" {
		return dialect.Invalid(memberFunctionCall, "is neither auto nor none, nor the name of a function")
	}
	if !slices.ContainsFunc(r.Tools, func(tool *toolv1.ToolInfo) bool { return tool.GetName() == named.Name }) {
		return dialect.Invalid(memberFunctionCall+".name", "%q is none of `functions`", named.Name)
	}
	r.Choice = chat.FunctionChoice(named.Name)
	return nil
}

// olderCalls puts the calls and results of a conversation into the newer form.
type olderCalls struct {
	made int
	// open is the last call, as long as it has no result.
	open *openai.Call
}

// renew puts a message into the newer form. The ids of calls are their numbers in the conversation, so that a longer
// one begins as the shorter did, as vendors' caches require.
func (o *olderCalls) renew(m *wireMessage, param string) error {
	switch call := m.FunctionCall; {
	case m.Role == "assistant" && call != nil:
		if call.Name == "" {
			return dialect.Required(param + "." + memberFunctionCall + ".name")
		}
		o.made++
		o.open = &openai.Call{ID: fmt.Sprintf("function_call_%d", o.made), Function: *call}
		m.ToolCalls = append(m.ToolCalls, *o.open)
	case m.Role != "function":
	case m.Name == "":
		return dialect.Required(param + ".name")
	case o.open == nil:
		return dialect.Invalid(param, "is a result of %q, but no `%s` before it has none yet", m.Name, memberFunctionCall)
	case o.open.Function.Name != m.Name:
		return dialect.Invalid(param+".name", "is %q, but the call before it is one of %q", m.Name, o.open.Function.Name)
	default:
		m.Role, m.ToolCallID, o.open = "tool", o.open.ID, nil
		if m.Content.Absent() {
			m.Content.TakeText("")
		}
	}
	return nil
}

// callForm is the form of the calls of an answer: the older one if it is set.
type callForm bool

func formOf(meta *dialect.ResponseMeta) callForm {
	return callForm(cmp.Or(meta.Request, &dialect.Request{}).OneCall)
}

// calls are the calls that an answer has in this form: of more than one, the older form has the first.
func (older callForm) calls(all []*toolv1.ToolCall) []*toolv1.ToolCall {
	if older {
		return all[:min(len(all), 1)]
	}
	return all
}

// takes reports whether an answer in this form has the call of a piece.
func (older callForm) takes(piece *modelv1.ToolCallDelta) bool {
	return !bool(older) || piece.GetIndex() == 0
}

// finish is the word for the end of an answer that calls tools.
func (older callForm) finish() string {
	if older {
		return memberFunctionCall
	}
	return chat.StopReasonName(modelv1.StopReason_STOP_REASON_TOOL_CALLS)
}

// write writes the calls of an answer, of which there is one at least.
func (older callForm) write(w *jsonwrite.Writer, calls []*toolv1.ToolCall) {
	if older {
		w.TextObjectMember(memberFunctionCall, "name", calls[0].GetFunction(), "arguments", dialect.ArgumentsOf(calls[0]))
		return
	}
	writeCalls(w, calls)
}

// writePiece writes a piece of a call.
func (older callForm) writePiece(w *jsonwrite.Writer, call *modelv1.ToolCallDelta) {
	if older {
		w.BeginObjectMember(memberFunctionCall)
		w.TextUnlessEmpty("name", call.GetFunction())
		w.TextMember("arguments", call.GetArguments())
		w.EndObject()
		return
	}
	writeCallDelta(w, call)
}
