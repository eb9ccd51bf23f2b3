package openai

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// maxCalls bounds the calls of one choice: a server sends their indices.
const maxCalls = 4096

// Call is a call of a function on the wire, or in a stream a piece of one, as chat completions have it.
type Call struct {
	Index    *int   `json:"index"`
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function Called `json:"function"`
}

// Called is the function that a call is of, and its arguments.
type Called struct {
	Name      string            `json:"name"`
	Arguments dialect.Arguments `json:"arguments"`
}

// ReadCalls reads calls. tools are the offered tools; nil if they do not matter. A call without a name is none.
func ReadCalls(calls []Call, tools []*toolv1.ToolInfo) []*toolv1.ToolCall {
	var all []*toolv1.ToolCall
	for _, call := range calls {
		if call.Function.Name != "" {
			all = append(all, dialect.ToolCall(call.ID, call.Function.Name, string(call.Function.Arguments), tools))
		}
	}
	return all
}

// AnsweredCalls reads the calls of an answer. One without an id, as some servers make them, gets one: its result is sent
// by that.
func AnsweredCalls(calls []Call, tools []*toolv1.ToolInfo) []*toolv1.ToolCall {
	all := ReadCalls(calls, tools)
	for _, call := range all {
		call.Id = cmp.Or(call.GetId(), newCallID())
	}
	return all
}

func newCallID() string { return "call_" + chat.NewID() }

// Calls collects the calls of a choice that arrive in pieces. The zero value has none.
type Calls struct {
	all []*growingCall
	// moved are the places of calls whose index another call had before them.
	moved map[int]int
}

type growingCall struct {
	id, name  string
	arguments strings.Builder
}

// Add adds a piece of a call. Without an index it belongs to the last call, or to a new one if it has an id. Another id
// with a name begins another call also under the same index. A call whose name comes without an id gets one.
func (c *Calls) Add(piece *Call) (*modelv1.ToolCallDelta, error) {
	at := len(c.all) - 1
	switch {
	case piece.Index != nil:
		at = c.place(*piece.Index, piece)
	case piece.ID != "" || at < 0:
		at++
	}
	if at < 0 || at >= maxCalls {
		return nil, fmt.Errorf("a tool call has the index %d", at)
	}
	for len(c.all) <= at {
		c.all = append(c.all, &growingCall{})
	}
	call := c.all[at]
	delta := &modelv1.ToolCallDelta{Index: int32(at), Arguments: string(piece.Function.Arguments)}
	if call.id == "" && piece.ID != "" {
		call.id, delta.Id = piece.ID, piece.ID
	}
	if call.name == "" && piece.Function.Name != "" {
		call.name, delta.Function = piece.Function.Name, piece.Function.Name
		if call.id == "" {
			call.id = newCallID()
			delta.Id = call.id
		}
	}
	call.arguments.WriteString(string(piece.Function.Arguments))
	return delta, nil
}

// place is the place of the call with an index.
func (c *Calls) place(index int, piece *Call) int {
	at := index
	if moved, ok := c.moved[index]; ok {
		at = moved
	}
	if at < 0 || at >= len(c.all) || c.all[at].name == "" || piece.Function.Name == "" || piece.ID == "" || piece.ID == c.all[at].id {
		return at
	}
	if c.moved == nil {
		c.moved = map[int]int{}
	}
	c.moved[index] = len(c.all)
	return len(c.all)
}

// All returns the calls as far as they came.
func (c *Calls) All() []Call {
	var all []Call
	for _, g := range c.all {
		call := Call{ID: g.id}
		call.Function.Name, call.Function.Arguments = g.name, dialect.Arguments(g.arguments.String())
		all = append(all, call)
	}
	return all
}
