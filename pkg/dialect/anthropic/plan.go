package anthropic

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/arrange"
	"github.com/evalfleet/evalfleet/pkg/dialect/cachemark"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// noContent replaces an empty message: the server refuses empty texts.
const noContent = dialect.NoContent

// Arrange orders messages as the format requires: system messages as [arrange.System] does, and results whose calls are
// no longer in the conversation as texts of the user. If one mark of the prompt cache has no place in the format, all
// are removed: their author meant them together.
func Arrange(messages []*modelv1.ChatMessage, inline bool) (arranged []*modelv1.ChatMessage, warnings []string) {
	if losesMark(messages) {
		messages = cachemark.Without(messages)
	}
	arranged, moved := arrange.System(arrange.WithoutOrphans(messages), inline)
	if moved > 0 {
		warnings = append(warnings, fmt.Sprintf("system messages within the conversation were moved before it, since they cannot stand where they are: %d", moved))
	}
	return arranged, warnings
}

// plan is a request as it is sent: instructions, turns, and cache marks.
type plan struct {
	system      []block
	turns       []turn
	toolsMarked bool
	automatic   bool
}

// turn is a message on the wire: blocks, of which one that is plain is written as a text.
type turn struct {
	role   string
	plain  bool
	blocks []block
	// paused are the blocks of a turn that goes back as it came.
	paused []json.RawMessage
	// attached are the pictures and documents of a model's message, which the server takes in the user's turns alone.
	attached []block
}

// plainTurn is a turn of one text.
func plainTurn(role, text string) turn {
	return turn{role: role, plain: true, blocks: []block{{text: cmp.Or(text, noContent)}}}
}

// block is a block of content. One of its members is set; none is the text.
type block struct {
	text   string
	part   *contentv1.Content
	call   *toolv1.ToolCall
	result *modelv1.ChatMessage
	// called and answered are a tool of the server: its call and its result are two blocks.
	called, answered *contentv1.ToolUse
	marked           bool
	// inResult means that a part is in a tool's result, where nothing is cited.
	inResult bool
}

// Roles on the wire.
const (
	roleUser      = "user"
	roleAssistant = "assistant"
	roleSystem    = "system"
)

// plan converts messages to turns: tool results belong to the user, and consecutive turns of the user are merged.
// Foreign JSON, which passes through unchanged, must be an object.
func (e *encoder) plan() *plan {
	for _, tool := range e.Tools {
		e.CheckTool(tool)
	}
	e.CheckSchema(e.Config.GetResponseSchema())
	e.RefuseAnyJSON(e.Config.GetResponseSchema())
	p := &plan{turns: make([]turn, 0, len(e.Messages))}
	messages := e.Messages
	if e.Cache.Off {
		messages = cachemark.Without(messages)
	}
	for _, m := range messages {
		if m.GetRole() == modelv1.Role_ROLE_SYSTEM && len(p.turns) == 0 {
			p.system = append(p.system, instructions(m)...)
			continue
		}
		p.turns = append(p.turns, e.newTurn(m))
	}
	p.turns = merged(withAttached(p.turns))
	if !e.Cache.Off && !p.mark(len(e.Tools) > 0, e.Cache.Automatic) {
		e.Refuse("messages", "more than 4 cache breakpoints")
	}
	return p
}

func (e *encoder) newTurn(m *modelv1.ChatMessage) turn {
	switch m.GetRole() {
	case modelv1.Role_ROLE_ASSISTANT:
		return e.assistantTurn(m)
	case modelv1.Role_ROLE_TOOL:
		e.check(m.GetContent(), false, "a tool's result")
		return turn{role: roleUser, blocks: []block{{result: m}}}
	case modelv1.Role_ROLE_SYSTEM:
		return systemTurn(m)
	default:
		e.check(m.GetContent(), false, "a user message")
		if m.GetContent().GetList() == nil {
			return plainTurn(roleUser, m.GetContent().GetText())
		}
		return turn{role: roleUser, blocks: orNoContent(partBlocks(m.GetContent()))}
	}
}

// instructions are the blocks of a leading system message: one up to each of its marks, and one for the rest. An empty
// message has none.
func instructions(m *modelv1.ChatMessage) []block {
	parts := m.GetContent().GetList().GetParts()
	if !slices.ContainsFunc(parts, cachemark.On) {
		return appendText(nil, chat.Text(m), false)
	}
	var blocks []block
	var texts []string
	for _, part := range parts {
		texts = append(texts, part.GetText().GetText())
		if cachemark.On(part) {
			blocks = appendText(blocks, strings.Join(texts, "\n"), true)
			texts = nil
		}
	}
	return appendText(blocks, strings.Join(texts, "\n"), false)
}

func appendText(blocks []block, text string, marked bool) []block {
	if text == "" {
		return blocks
	}
	return append(blocks, block{text: text, marked: marked})
}

// systemTurn makes a turn of a system message within the conversation. It has texts only, which are not empty.
func systemTurn(m *modelv1.ChatMessage) turn {
	if m.GetContent().GetList() == nil {
		return plainTurn(roleSystem, m.GetContent().GetText())
	}
	t := turn{role: roleSystem}
	for _, part := range m.GetContent().GetList().GetParts() {
		t.blocks = appendText(t.blocks, part.GetText().GetText(), false)
	}
	t.blocks = orNoContent(t.blocks)
	return t
}

// orNoContent are blocks, of which there is at least one.
func orNoContent(blocks []block) []block {
	if len(blocks) == 0 {
		return []block{{text: noContent}}
	}
	return blocks
}

// assistantTurn makes a turn of a model's message. It has a block for the text even if the model only calls tools.
func (e *encoder) assistantTurn(m *modelv1.ChatMessage) turn {
	t := turn{role: roleAssistant}
	if m.GetContent().GetList() == nil {
		t.blocks = append(t.blocks, block{text: cmp.Or(m.GetContent().GetText(), noContent)})
	} else {
		t.blocks = partBlocks(m.GetContent())
	}
	t.blocks, t.attached = apart(t.blocks)
	for _, call := range m.GetToolCalls() {
		e.CheckCall(call)
		t.blocks = append(t.blocks, block{call: call})
	}
	// A turn must have content, and must not end in thinking.
	if last := len(t.blocks) - 1; last < 0 || isThinking(t.blocks[last].part.GetReasoning()) {
		t.blocks = append(t.blocks, block{text: noContent})
	}
	e.check(m.GetContent(), true, "an assistant message")
	return t
}

func partBlocks(c *contentv1.MessageContent) []block {
	parts := c.GetList().GetParts()
	blocks := make([]block, 0, len(parts))
	for _, part := range parts {
		blocks = append(blocks, partBlock(part)...)
		blocks[len(blocks)-1].marked = cachemark.On(part)
	}
	return blocks
}

// partBlock returns the blocks of a part: a tool that the server ran is a call and its result.
func partBlock(part *contentv1.Content) []block {
	if use := part.GetToolUse(); use != nil {
		return []block{{called: use}, {answered: use}}
	}
	return []block{{part: part}}
}

// apart returns blocks without those of pictures and documents, and these.
func apart(blocks []block) (kept, attached []block) {
	isAttached := func(b block) bool { return b.part.GetImage() != nil || b.part.GetDocument() != nil }
	if !slices.ContainsFunc(blocks, isAttached) {
		return blocks, nil
	}
	for _, b := range blocks {
		if isAttached(b) {
			attached = append(attached, b)
		} else {
			kept = append(kept, b)
		}
	}
	return kept, attached
}

// attachments precedes what was attached to a message of the model.
const attachments = "Attached to the assistant's message above:"

// withAttached adds turns of the user with what is attached to messages of the model. Each follows its message, and the
// results of its calls, with which the next turn must begin.
func withAttached(turns []turn) []turn {
	all := make([]turn, 0, len(turns))
	var waiting []block
	place := func() {
		if len(waiting) > 0 {
			all = append(all, turn{role: roleUser, blocks: slices.Concat([]block{{text: attachments}}, waiting)})
			waiting = nil
		}
	}
	for _, t := range turns {
		if t.role != roleUser || t.blocks[0].result == nil {
			place()
		}
		waiting = append(waiting, t.attached...)
		all = append(all, t)
	}
	place()
	return all
}

// merged makes one turn of each run of turns of the user.
func merged(turns []turn) []turn {
	all := make([]turn, 0, len(turns))
	for len(turns) > 0 {
		end := 1
		for turns[0].role == roleUser && end < len(turns) && turns[end].role == roleUser {
			end++
		}
		all, turns = append(all, join(turns[:end])), turns[end:]
	}
	return all
}

// join makes one turn of a run: of the texts at its beginning a text, and of the rest blocks.
func join(run []turn) turn {
	if len(run) == 1 {
		return run[0]
	}
	var texts []string
	for len(run) > 0 && run[0].plain {
		texts, run = append(texts, run[0].blocks[0].text), run[1:]
	}
	joined := turn{role: roleUser}
	if len(texts) > 0 {
		joined = plainTurn(roleUser, strings.Join(texts, "\n"))
	}
	for _, t := range run {
		joined.plain, joined.blocks = false, append(joined.blocks, t.blocks...)
	}
	return joined
}

// imageTypes are the media types of images that the server reads.
var imageTypes = []string{"image/jpeg", "image/jpg", "image/png", "image/gif", "image/webp"}

// check refuses content that has no form in its place, which is a model's turn or not.
func (e *encoder) check(c *contentv1.MessageContent, model bool, where string) {
	for _, part := range c.GetList().GetParts() {
		what := ""
		switch p := part.GetPart().(type) {
		case *contentv1.Content_Text, *contentv1.Content_Document:
		case *contentv1.Content_Image:
			mediaType, _, inline := dialect.SplitDataURI(p.Image.GetMedia().GetUri())
			if inline && !slices.Contains(imageTypes, strings.ToLower(mediaType)) {
				what = "an image of type " + mediaType
			}
		case *contentv1.Content_Reasoning, *contentv1.Content_ToolUse:
			if !model {
				what = "reasoning or a provider's tool"
			}
		case *contentv1.Content_Data:
			if !model || Kept.JSON(part) == "" {
				what = "data of another provider"
			}
		case *contentv1.Content_Audio:
			what = "audio"
		case *contentv1.Content_Video:
			what = "video"
		default:
			what = "content of an unknown kind"
		}
		if what != "" {
			e.Refuse("messages", what+" in "+where)
		}
	}
}

// cites reports whether any document of a conversation is to be cited. A tool's output beside a failure is not sent.
func cites(messages []*modelv1.ChatMessage) bool {
	for _, m := range messages {
		if m.GetError() != nil {
			continue
		}
		for _, part := range m.GetContent().GetList().GetParts() {
			if part.GetDocument().GetCitations() {
				return true
			}
		}
	}
	return false
}
