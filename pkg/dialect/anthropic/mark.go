package anthropic

import (
	"slices"

	"github.com/evalfleet/evalfleet/pkg/dialect/cachemark"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// maxMarks is how many marks of the prompt cache a request may hold.
const maxMarks = 4

// losesMark reports whether a mark cannot be sent in a request: on an empty text, in a system message within the
// conversation, or in a tool's result, or if only an empty text follows, which would lose the boundary between the two.
func losesMark(messages []*modelv1.ChatMessage) bool {
	begun := false
	for _, m := range messages {
		begun = begun || m.GetRole() != modelv1.Role_ROLE_SYSTEM
		if !cachemark.In(m) {
			continue
		}
		if begun && (m.GetRole() == modelv1.Role_ROLE_SYSTEM || m.GetRole() == modelv1.Role_ROLE_TOOL) {
			return true
		}
		parts := m.GetContent().GetList().GetParts()
		for i, part := range parts {
			lone := m.GetRole() == modelv1.Role_ROLE_SYSTEM && i == len(parts)-1 && i > 0 && cachemark.On(parts[i-1])
			if (cachemark.On(part) || lone) && part.GetText().GetText() == "" {
				return true
			}
		}
	}
	return false
}

// mark sets what the server should cache: the instructions, the tools, and the conversation up to the block before its
// last, which the next request shares. Marks of the messages themselves replace the last, and have precedence if there
// are not enough for all. It reports whether these are not too many.
func (p *plan) mark(tools, automatic bool) bool {
	inSystem, inTurns := countMarks(p.system), 0
	for i := range p.turns {
		inTurns += countMarks(p.turns[i].blocks)
	}
	left := maxMarks - inSystem - inTurns
	if left < 0 {
		return false
	}
	if len(p.system) > 0 && inSystem == 0 && left > 0 {
		p.system[len(p.system)-1].marked = true
		left--
	}
	p.toolsMarked = tools && left > 0
	if inSystem+inTurns > 0 {
		return true
	}
	p.automatic = automatic
	if b := p.beforeLast(); b != nil {
		b.marked = true
	}
	return true
}

func countMarks(blocks []block) int {
	n := 0
	for i := range blocks {
		if blocks[i].marked {
			n++
		}
	}
	return n
}

// beforeLast returns the block before the last markable one; nil if it is a plain text, or there is none.
func (p *plan) beforeLast() *block {
	seen := 0
	for i := range slices.Backward(p.turns) {
		t := &p.turns[i]
		for j := range slices.Backward(t.blocks) {
			if !t.blocks[j].markable() {
				continue
			}
			if seen++; seen == 2 && t.plain {
				return nil
			} else if seen == 2 {
				return &t.blocks[j]
			}
		}
	}
	return nil
}

// markable reports whether the server accepts a mark on the block.
func (b *block) markable() bool {
	kind, _ := Kept.Block(b.part)
	return !isThinking(b.part.GetReasoning()) && kind != FallbackBlock
}
