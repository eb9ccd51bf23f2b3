package compaction

import (
	"encoding/json"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/enum"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/history"
)

const (
	// resultRemoved replaces the result of a tool.
	resultRemoved = "(Tool result removed)"
	// callRemoved replaces a call with its result.
	callRemoved = "(A call was removed with its result, to save space) Tool: %s"
	// Tools whose results describe other tools, and are never removed: the model must know what it can call.
	toolSearch   = "tool_search"
	mcpListTools = "mcp_list_tools"
	// anchorMember marks a part of reasoning that holds nothing but the seal of a call, which Gemini wants back.
	anchorMember = "gemini_function_call_id"
)

// edit removes the reasoning of past answers and the results of past uses of tools. A changed message is a copy without
// an id. Answers at the very end are left out, since some servers take no conversation that ends with one.
func (p *Params) edit(messages []*modelv1.ChatMessage) []*modelv1.ChatMessage {
	e := editor{params: p, messages: slices.Clone(messages), removed: map[int]bool{}}
	e.clearReasoning()
	uses := e.uses()
	for _, use := range slices.Backward(uses[:max(0, len(uses)-*p.KeepToolUses)]) {
		e.clear(use)
	}
	var edited []*modelv1.ChatMessage
	for i, m := range e.messages {
		if !e.removed[i] {
			edited = append(edited, history.WithoutCitations(m))
		}
	}
	if *p.Memory {
		edited = withoutNotes(edited)
	}
	for len(edited) > 0 && edited[len(edited)-1].GetRole() == modelv1.Role_ROLE_ASSISTANT {
		edited = edited[:len(edited)-1]
	}
	return edited
}

// editor changes copies of messages.
type editor struct {
	params   *Params
	messages []*modelv1.ChatMessage
	removed  map[int]bool // by index
}

// use is one use of a tool: a call with its result, or the part of an answer that reports what a provider's tool did.
type use struct {
	message int // index of the answer
	call    *toolv1.ToolCall
	result  int // index of the result of call
	part    int // index of the part, without a call
}

// copied makes a message a copy, which can be changed.
func (e *editor) copied(i int) *modelv1.ChatMessage {
	if e.messages[i].GetId() != "" {
		e.messages[i] = proto.CloneOf(e.messages[i])
		e.messages[i].Id = ""
	}
	return e.messages[i]
}

// clearReasoning removes the reasoning of all answers but the last ones.
func (e *editor) clearReasoning() {
	if e.params.KeepThinkingTurns.All {
		return
	}
	answers := 0
	for i, m := range slices.Backward(e.messages) {
		if m.GetRole() != modelv1.Role_ROLE_ASSISTANT {
			continue
		}
		if answers++; answers <= e.params.KeepThinkingTurns.N || m.GetContent().GetList() == nil {
			continue
		}
		list := e.copied(i).GetContent().GetList()
		list.Parts = slices.DeleteFunc(list.GetParts(), func(part *contentv1.Content) bool {
			return part.GetReasoning() != nil && !isAnchor(part)
		})
		if len(list.GetParts()) == 0 {
			e.messages[i].Content = chat.TextContent("")
		}
	}
}

func isAnchor(part *contentv1.Content) bool {
	var internal map[string]json.RawMessage
	if json.Unmarshal([]byte(part.GetInternalJson()), &internal) != nil {
		return false
	}
	_, anchor := internal[anchorMember]
	return anchor
}

// uses returns the uses of tools whose results may be removed, oldest first.
func (e *editor) uses() []use {
	var all []use
	for i, m := range e.messages {
		if m.GetRole() != modelv1.Role_ROLE_ASSISTANT {
			continue
		}
		for _, call := range m.GetToolCalls() {
			if call.GetFunction() == toolSearch || e.excluded(call.GetFunction()) {
				continue
			}
			if result := e.resultOf(call.GetId(), i); result > 0 {
				all = append(all, use{message: i, call: call, result: result})
			}
		}
		for at, part := range m.GetContent().GetList().GetParts() {
			if u := part.GetToolUse(); u != nil && u.GetName() != mcpListTools && !e.excluded(enum.Word(u.GetToolType()), u.GetName()) {
				all = append(all, use{message: i, part: at})
			}
		}
	}
	return all
}

func (e *editor) excluded(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return slices.Contains(e.params.ExcludeTools, name) })
}

// resultOf returns the index of a call's result; 0 if there is none.
func (e *editor) resultOf(id string, after int) int {
	for i := after + 1; i < len(e.messages); i++ {
		if ids := e.messages[i].GetToolCallIds(); len(ids) > 0 && ids[0] == id {
			return i
		}
	}
	return 0
}

// clear removes the result of a use and, if calls are not kept, the call.
func (e *editor) clear(u use) {
	if u.call == nil {
		e.copied(u.message).GetContent().GetList().GetParts()[u.part].GetToolUse().Result = resultRemoved
		return
	}
	if *e.params.KeepToolInputs {
		e.copied(u.result).Content = chat.TextContent(resultRemoved)
		return
	}
	e.removed[u.result] = true
	m := e.copied(u.message)
	m.ToolCalls = slices.DeleteFunc(m.GetToolCalls(), func(c *toolv1.ToolCall) bool { return c.GetId() == u.call.GetId() })
	parts := chat.Parts(m.GetContent())
	if m.GetContent().GetList() == nil && m.GetContent().GetText() == "" {
		parts = nil
	}
	m.Content = chat.ListContent(append(parts, chat.TextPart(fmt.Sprintf(callRemoved, u.call.GetFunction())))...)
}
