package anthropic

import (
	"cmp"
	"slices"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// noContent stands where a message says nothing: the server refuses empty texts.
const noContent = "(no content)"

// maxMarks is how many marks of the prompt cache a request may hold.
const maxMarks = 4

// plan is a request as it goes over the wire: instructions, turns, and what is marked for the cache.
type plan struct {
	system      []block
	turns       []turn
	toolsMarked bool
	automatic   bool
}

// turn is a message on the wire: a plain text, or blocks.
type turn struct {
	role   string
	text   string
	blocks []block // nil: a plain text
}

// block is a block of content. One of its members is set; none is the text.
type block struct {
	text   string
	part   *contentv1.Content
	call   *toolv1.ToolCall
	result *modelv1.ChatMessage
	marked bool
}

// Roles on the wire.
const (
	roleUser      = "user"
	roleAssistant = "assistant"
	roleSystem    = "system"
)

// plan makes turns of the messages: results of tools are the user's, and neighbouring turns of the user are one. JSON of others, which goes through as it is,
// must be an object.
func (r *Request) plan() (*plan, error) {
	for _, tool := range r.Tools {
		if schema := tool.GetParametersJson(); schema != "" && !isObject(schema) {
			return nil, &UnsupportedError{What: "the tool " + tool.GetName() + ", whose schema is no JSON object"}
		}
	}
	if r.Config.GetResponseSchema() != nil && !isObject(r.Config.GetResponseSchema().GetJsonSchema()) {
		return nil, &UnsupportedError{What: "a schema of answers that is no JSON object"}
	}
	p := &plan{turns: make([]turn, 0, len(r.Messages))}
	for _, m := range r.Messages {
		if m.GetRole() == modelv1.Role_ROLE_SYSTEM && len(p.turns) == 0 {
			p.system = append(p.system, block{text: cmp.Or(chat.Text(m), noContent)})
			continue
		}
		t, err := newTurn(m)
		if err != nil {
			return nil, err
		}
		if last := len(p.turns) - 1; last >= 0 && t.role == roleUser && p.turns[last].role == roleUser {
			p.turns[last] = join(p.turns[last], t)
		} else {
			p.turns = append(p.turns, t)
		}
	}
	if !r.Cache.Off {
		return p, p.mark(len(r.Tools) > 0, r.Cache.Automatic)
	}
	p.unmark()
	return p, nil
}

func newTurn(m *modelv1.ChatMessage) (turn, error) {
	switch m.GetRole() {
	case modelv1.Role_ROLE_ASSISTANT:
		return assistantTurn(m)
	case modelv1.Role_ROLE_TOOL:
		return turn{role: roleUser, blocks: []block{{result: m}}}, check(m.GetContent(), resultTakes)
	case modelv1.Role_ROLE_SYSTEM:
		return turn{role: roleSystem, text: cmp.Or(chat.Text(m), noContent)}, nil
	default:
		if m.GetContent().GetList() == nil {
			return turn{role: roleUser, text: cmp.Or(m.GetContent().GetText(), noContent)}, nil
		}
		blocks := partBlocks(m.GetContent())
		if len(blocks) == 0 {
			blocks = append(blocks, block{text: noContent})
		}
		return turn{role: roleUser, blocks: blocks}, check(m.GetContent(), userTakes)
	}
}

// assistantTurn makes a turn of what the model said. Its text is never without a block, also where it only calls tools.
func assistantTurn(m *modelv1.ChatMessage) (turn, error) {
	t := turn{role: roleAssistant}
	if m.GetContent().GetList() == nil {
		t.blocks = append(t.blocks, block{text: cmp.Or(m.GetContent().GetText(), noContent)})
	} else {
		t.blocks = partBlocks(m.GetContent())
	}
	for _, call := range m.GetToolCalls() {
		if arguments := call.GetArgumentsJson(); arguments != "" && !isObject(arguments) {
			return turn{}, &UnsupportedError{What: "a call whose arguments are no JSON object"}
		}
		t.blocks = append(t.blocks, block{call: call})
	}
	// A turn must say something, and thinking is not the last of it.
	if last := len(t.blocks) - 1; last < 0 || t.blocks[last].part.GetReasoning().GetRedacted() {
		t.blocks = append(t.blocks, block{text: noContent})
	}
	return t, check(m.GetContent(), assistantTakes)
}

func partBlocks(c *contentv1.MessageContent) []block {
	parts := c.GetList().GetParts()
	blocks := make([]block, 0, len(parts))
	for _, part := range parts {
		blocks = append(blocks, block{part: part, marked: part.GetText().GetCacheBreakpoint()})
	}
	return blocks
}

// join makes one turn of two: of two texts a text, else blocks.
func join(a, b turn) turn {
	if a.blocks == nil && b.blocks == nil {
		return turn{role: a.role, text: a.text + "\n" + b.text}
	}
	return turn{role: a.role, blocks: slices.Concat(a.asBlocks(), b.asBlocks())}
}

func (t turn) asBlocks() []block {
	if t.blocks == nil {
		return []block{{text: t.text}}
	}
	return t.blocks
}

// mark says what the server should cache: the instructions, the tools, and the conversation up to the block before its last, which the next request
// shares. Marks of the messages themselves stand in the place of the last, and come first where there are not enough for all.
func (p *plan) mark(tools, automatic bool) error {
	explicit := 0
	for i := range p.turns {
		for j := range p.turns[i].blocks {
			if p.turns[i].blocks[j].marked {
				explicit++
			}
		}
	}
	if explicit > maxMarks {
		return &UnsupportedError{What: "more than 4 cache breakpoints"}
	}
	left := maxMarks - explicit
	if len(p.system) > 0 && left > 0 {
		p.system[len(p.system)-1].marked = true
		left--
	}
	p.toolsMarked = tools && left > 0
	if explicit > 0 {
		return nil
	}
	p.automatic = automatic
	if b := p.beforeLast(); b != nil {
		b.marked = true
	}
	return nil
}

// unmark takes the marks of the messages out.
func (p *plan) unmark() {
	for i := range p.turns {
		for j := range p.turns[i].blocks {
			p.turns[i].blocks[j].marked = false
		}
	}
}

// beforeLast returns the block before the last one that can be marked; nil where it is a plain text, or there is none.
func (p *plan) beforeLast() *block {
	seen := 0
	for i := range slices.Backward(p.turns) {
		t := &p.turns[i]
		if t.blocks == nil {
			if seen++; seen == 2 {
				return nil
			}
			continue
		}
		for j := range slices.Backward(t.blocks) {
			if part := t.blocks[j].part; part.GetReasoning().GetRedacted() || part.GetToolUse() != nil || part.GetData() != nil {
				continue // these cannot be marked
			}
			if seen++; seen == 2 {
				return &t.blocks[j]
			}
		}
	}
	return nil
}

// size guesses how many bytes a request takes, so that its buffer need not grow.
func (r *Request) size() int {
	n := 0
	for _, m := range r.Messages {
		n += 128 + dialect.ContentSize(m.GetContent())
		for _, call := range m.GetToolCalls() {
			n += 128 + len(call.GetArgumentsJson())
		}
	}
	for _, tool := range r.Tools {
		n += 128 + len(tool.GetDescription()) + len(tool.GetParametersJson())
	}
	return n + n/8
}
