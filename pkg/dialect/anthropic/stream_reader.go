package anthropic

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/hosted"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// maxBlocks bounds the blocks of one answer: their places are numbers that a server sends.
const maxBlocks = 4096

// NewStreamReader implements dialect.Codec. The answer of the reader is a *Message.
func (Codec) NewStreamReader() dialect.StreamReader { return &streamReader{} }

// streamReader collects an answer that arrives in pieces:
//
//	message_start (content_block_start content_block_delta* content_block_stop)* message_delta message_stop
type streamReader struct {
	dialect.Progress
	message Message
	blocks  []*growing
	pieces  dialect.Pieces
}

// growing is a block that grows.
type growing struct {
	first wireBlock
	raw   json.RawMessage
	// members are the texts that grow, by the names of the members that they become.
	members   map[string]*strings.Builder
	citations []json.RawMessage
	call      int32
}

// add adds a piece of a member; an empty one adds no member.
func (b *growing) add(member, piece string) {
	if piece == "" {
		return
	}
	if b.members[member] == nil {
		b.members[member] = &strings.Builder{}
	}
	b.members[member].WriteString(piece)
}

// event is an event on the wire.
type event struct {
	Type    string          `json:"type"`
	Index   int             `json:"index"`
	Message *Message        `json:"message"`
	Block   json.RawMessage `json:"content_block"`
	Delta   *delta          `json:"delta"`
	Usage   *usage          `json:"usage"`
	Error   *failure        `json:"error"`
	Context json.RawMessage `json:"context_management"`
}

// delta is a piece of a block or of the message.
type delta struct {
	Type        string          `json:"type"`
	Text        string          `json:"text"`
	Thinking    string          `json:"thinking"`
	Signature   string          `json:"signature"`
	PartialJSON string          `json:"partial_json"`
	Citation    json.RawMessage `json:"citation"`
	Content     string          `json:"content"`
	Sealed      *string         `json:"encrypted_content"`
	StopReason  string          `json:"stop_reason"`
	StopDetails *stopDetails    `json:"stop_details"`
}

// Add implements dialect.StreamReader.
func (s *streamReader) Add(got dialect.Event) ([]*modelv1.GenerateDelta, error) {
	var e event
	if err := json.Unmarshal(got.Data, &e); err != nil {
		return nil, malformed(err)
	}
	if e.Error != nil {
		return nil, e.Error.toError(got.Data)
	}
	var err error
	switch e.Type {
	case "message_start":
		s.Begun = true
		if e.Message != nil {
			s.message = *e.Message
		}
	case "content_block_start":
		err = s.open(&e)
	case "content_block_delta", "content_block_stop":
		if e.Index < 0 || e.Index >= len(s.blocks) {
			err = fmt.Errorf("a piece of block %d, which has not begun", e.Index)
		} else if b := s.blocks[e.Index]; e.Type == "content_block_stop" {
			s.close(b)
		} else if e.Delta != nil {
			s.grow(b, e.Delta)
		}
	case "message_delta":
		s.end(&e)
	case "message_stop":
		s.Ended = true
	}
	if err != nil {
		return nil, malformed(err)
	}
	return s.pieces.Take(), nil
}

// Usage implements dialect.StreamReader.
func (s *streamReader) Usage() *modelv1.ModelUsage { return s.message.Usage.message() }

func (s *streamReader) open(e *event) error {
	if e.Index != len(s.blocks) || e.Index >= maxBlocks {
		return fmt.Errorf("block %d begins after %d others", e.Index, len(s.blocks))
	}
	b := &growing{raw: e.Block, members: map[string]*strings.Builder{}}
	if err := json.Unmarshal(e.Block, &b.first); err != nil {
		return err
	}
	s.blocks = append(s.blocks, b)
	b.add("text", b.first.Text)
	b.add("thinking", b.first.Thinking)
	b.add("signature", b.first.Signature)
	switch {
	case b.first.Type == "tool_use":
		b.call = s.pieces.Call(b.first.ID, cmp.Or(b.first.Toolset, b.first.Name), "")
	case b.first.Text != "":
		s.pieces.Text(b.first.Text)
	default:
		s.pieces.Reasoning(b.first.Thinking)
	}
	return nil
}

func (s *streamReader) grow(b *growing, d *delta) {
	switch d.Type {
	case "text_delta":
		b.add("text", d.Text)
		s.pieces.Add(dialect.TextDelta(d.Text))
	case "thinking_delta":
		b.add("thinking", d.Thinking)
		s.pieces.Add(dialect.ReasoningDelta(d.Thinking))
	case "signature_delta":
		b.add("signature", d.Signature)
	case "citations_delta":
		b.citations = append(b.citations, d.Citation)
	case "compaction_delta":
		b.add("content", d.Content)
		if d.Sealed != nil { // It comes whole.
			b.members["encrypted_content"] = &strings.Builder{}
			b.add("encrypted_content", *d.Sealed)
		}
	case "input_json_delta":
		b.add("input", d.PartialJSON)
		if b.first.Type == "tool_use" && b.first.Toolset == "" {
			s.pieces.Arguments(b.call, d.PartialJSON)
		}
	}
}

// close adds, at the end of a block, what its pieces do not fully contain: sealed reasoning, the sources of a text,
// what a tool of the server did, and the arguments of a call of a set of tools, which have the action first, which is
// the call's name here.
func (s *streamReader) close(b *growing) {
	whole := b.whole()
	if whole.Type == "tool_use" && whole.Toolset != "" {
		s.pieces.Arguments(b.call, whole.call(nil).GetArgumentsJson())
		return
	}
	if call := s.called(whole.ToolUseID); call != nil {
		s.pieces.Part(hosted.AnthropicUse(call.whole().raw, whole.raw))
		return
	}
	if part := whole.spokenPart(); part.GetReasoning().GetRedacted() || len(part.GetText().GetCitations()) > 0 {
		s.pieces.Part(part)
	}
}

// called is the call of a tool of the server with this id; nil if there is none.
func (s *streamReader) called(id string) *growing {
	for _, b := range s.blocks {
		if id != "" && b.first.ID == id && (b.first.Type == hosted.AnthropicCall || b.first.Type == hosted.AnthropicMCP) {
			return b
		}
	}
	return nil
}

func (s *streamReader) end(e *event) {
	if d := e.Delta; d != nil {
		if d.StopReason != "" {
			s.message.StopReason = d.StopReason
		}
		if d.StopDetails != nil {
			s.message.Details = d.StopDetails
		}
	}
	if len(e.Context) > 0 {
		s.message.ContextManagement = e.Context
	}
	s.message.Usage = s.message.Usage.with(e.Usage)
}

// with overlays u with a later usage, whose set fields replace those of u.
func (u *usage) with(later *usage) *usage {
	if u == nil || later == nil {
		return cmp.Or(later, u)
	}
	merged := *u
	merged.Input, merged.Output = cmp.Or(later.Input, u.Input), cmp.Or(later.Output, u.Output)
	merged.CacheWrite, merged.CacheRead = cmp.Or(later.CacheWrite, u.CacheWrite), cmp.Or(later.CacheRead, u.CacheRead)
	merged.Details.Thinking = cmp.Or(later.Details.Thinking, u.Details.Thinking)
	if len(later.Iterations) > 0 {
		merged.Iterations = later.Iterations
	}
	return &merged
}

// Response implements dialect.StreamReader.
func (s *streamReader) Response() dialect.Response {
	m := s.message
	m.Content = make([]json.RawMessage, len(s.blocks))
	for i, b := range s.blocks {
		whole := b.whole()
		m.Content[i] = whole.raw
	}
	return &m
}

// whole returns the block as it came, with all that was added to it.
func (b *growing) whole() (whole wireBlock) {
	members := map[string]json.RawMessage{}
	for name, text := range b.members {
		if name == "input" && json.Valid([]byte(text.String())) {
			members[name] = json.RawMessage(text.String())
		} else {
			members[name] = jsonwrite.AppendText(nil, text.String())
		}
	}
	if len(b.citations) > 0 {
		var list jsonwrite.Writer
		jsonwrite.RawList(&list, b.citations)
		members["citations"] = list.Bytes()
	}
	raw := jsonwrite.Overlay(b.raw, members)
	_ = json.Unmarshal(raw, &whole)
	whole.raw = raw
	return whole
}
