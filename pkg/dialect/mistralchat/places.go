package mistralchat

import "github.com/evalfleet/evalfleet/pkg/dialect/openai"

// places tell apart the calls of one choice by their ids too: the vendor sends several calls with one index.
type places struct {
	// named are the places of calls by index and id, last those of the last call of an index, and taken are all.
	named map[named]int
	last  map[int]int
	taken map[int]bool
	next  int
}

type named struct {
	index int
	id    string
}

// put replaces the index of a piece by the place of its call: the index, unless another call has it.
func (p *places) put(piece *openai.Call) {
	if piece.Index == nil {
		return
	}
	index := *piece.Index
	at, known := p.last[index]
	if piece.ID != "" {
		at, known = p.named[named{index, piece.ID}]
		if unnamed, begun := p.last[index]; !known && begun && !p.hasName(index, unnamed) {
			at, known = unnamed, true // The id comes after the first piece.
		}
	}
	if !known {
		at = index
		if p.taken[at] {
			at = p.next
		}
	}
	if p.taken == nil {
		p.named, p.last, p.taken = map[named]int{}, map[int]int{}, map[int]bool{}
	}
	if piece.ID != "" {
		p.named[named{index, piece.ID}] = at
	}
	p.last[index], p.taken[at], p.next = at, true, max(p.next, at+1)
	piece.Index = &at
}

// hasName reports whether a call at a place has an id.
func (p *places) hasName(index, at int) bool {
	for call, place := range p.named {
		if call.index == index && place == at {
			return true
		}
	}
	return false
}
