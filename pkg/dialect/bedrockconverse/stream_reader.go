package bedrockconverse

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
)

// maxBlocks bounds the blocks of one answer: their places are numbers that a server sends.
const maxBlocks = 4096

// Types of events.
const (
	eventStart      = "messageStart"
	eventBlockStart = "contentBlockStart"
	eventBlockDelta = "contentBlockDelta"
	eventBlockStop  = "contentBlockStop"
	eventStop       = "messageStop"
	eventMetadata   = "metadata"
)

// NewStreamReader implements dialect.Codec. The response of the reader is an *Answer.
func (Codec) NewStreamReader() dialect.StreamReader {
	return &streamReader{blocks: map[int]*growing{}}
}

// streamReader collects an answer that arrives in pieces:
//
//	messageStart (contentBlockStart? contentBlockDelta* contentBlockStop)* messageStop metadata
//
// Only blocks of calls and images have a start.
type streamReader struct {
	dialect.Progress
	answer Answer
	blocks map[int]*growing
	pieces dialect.Pieces
	// stopped is set by messageStop, and Ended by metadata after it.
	stopped bool
}

// growing is a block that grows.
type growing struct {
	text, reasoning, signature, input strings.Builder
	// data are the bytes of redacted content, or of an image.
	data []byte
	call *toolUse
	// place is that of the call among the calls.
	place int32
	// format is that of an image.
	format string
	kind   blockKind
}

// blockKind is what a block is, as its first piece shows.
type blockKind int

const (
	emptyBlock blockKind = iota
	textBlock
	reasoningBlock
	redactedBlock
	callBlock
	imageBlock
)

// event is an event on the wire. One of its members is set.
type event struct {
	Start      *struct{}   `json:"messageStart"`
	BlockStart *blockStart `json:"contentBlockStart"`
	BlockDelta *blockDelta `json:"contentBlockDelta"`
	BlockStop  *blockStop  `json:"contentBlockStop"`
	Stop       *struct {
		Reason string `json:"stopReason"`
	} `json:"messageStop"`
	Metadata *struct {
		Usage *usage `json:"usage"`
		Trace trace  `json:"trace"`
	} `json:"metadata"`
	Error *failure `json:"error"`
}

type blockStart struct {
	Index int `json:"contentBlockIndex"`
	Start struct {
		ToolUse *toolUse `json:"toolUse"`
		Image   *image   `json:"image"`
	} `json:"start"`
}

type blockDelta struct {
	Index int `json:"contentBlockIndex"`
	Delta struct {
		Text    *string `json:"text"`
		ToolUse *struct {
			Input string `json:"input"`
		} `json:"toolUse"`
		Reasoning *struct {
			Text      string `json:"text"`
			Signature string `json:"signature"`
			Redacted  string `json:"redactedContent"`
		} `json:"reasoningContent"`
		Image *image `json:"image"`
	} `json:"delta"`
}

type blockStop struct {
	Index int `json:"contentBlockIndex"`
}

// Add implements dialect.StreamReader.
func (s *streamReader) Add(got dialect.Event) ([]*modelv1.GenerateDelta, error) {
	var e event
	err := jsonread.Unmarshal(got.Data, &e)
	switch {
	case err != nil:
	case e.Error != nil:
		return nil, e.Error.withinStream(got.Data)
	case e.Start != nil:
		s.Begun = true
	case e.BlockStart != nil:
		err = s.start(e.BlockStart)
	case e.BlockDelta != nil:
		err = s.grow(e.BlockDelta)
	case e.BlockStop != nil:
		err = s.end(e.BlockStop)
	case e.Stop != nil:
		s.Begun, s.stopped = true, true
		s.answer.StopReason = e.Stop.Reason
	case e.Metadata != nil:
		s.Begun, s.Ended = true, s.stopped
		s.answer.Usage, s.answer.Trace = e.Metadata.Usage, e.Metadata.Trace
	}
	if err != nil {
		return nil, malformed(err)
	}
	return s.pieces.Take(), nil
}

// block returns the block at a place, which it begins if there is none.
func (s *streamReader) block(index int) (*growing, error) {
	if index < 0 || index >= maxBlocks {
		return nil, fmt.Errorf("a block has the index %d", index)
	}
	s.Begun = true
	b := s.blocks[index]
	if b == nil {
		b = &growing{}
		s.blocks[index] = b
	}
	return b, nil
}

// is reports whether the block is of a kind, which its first piece decides.
func (b *growing) is(kind blockKind) bool {
	if b.kind == emptyBlock {
		b.kind = kind
	}
	return b.kind == kind
}

func (s *streamReader) start(e *blockStart) error {
	b, err := s.block(e.Index)
	switch {
	case err != nil:
		return err
	case e.Start.Image != nil:
		b.is(imageBlock)
		b.format = e.Start.Image.Format
	case e.Start.ToolUse != nil && b.call == nil:
		b.is(callBlock)
		b.call = e.Start.ToolUse
		b.place = s.pieces.Call(b.call.ID, b.call.Name, "")
	}
	return nil
}

func (s *streamReader) grow(e *blockDelta) error {
	b, err := s.block(e.Index)
	if err != nil {
		return err
	}
	switch d := &e.Delta; {
	case d.Text != nil:
		if b.is(textBlock) {
			b.text.WriteString(*d.Text)
			s.pieces.Text(*d.Text)
		}
	case d.ToolUse != nil && b.call != nil:
		if b.is(callBlock) {
			b.input.WriteString(d.ToolUse.Input)
			s.pieces.Arguments(b.place, d.ToolUse.Input)
		}
	case d.Reasoning != nil && d.Reasoning.Redacted != "":
		b.is(redactedBlock)
		return b.addData(redactedBlock, d.Reasoning.Redacted)
	case d.Reasoning != nil:
		b.signature.WriteString(d.Reasoning.Signature)
		if b.is(reasoningBlock) {
			b.reasoning.WriteString(d.Reasoning.Text)
			s.pieces.Reasoning(d.Reasoning.Text)
		}
	case d.Image != nil:
		return b.addData(imageBlock, d.Image.Source.Bytes)
	}
	return nil
}

// addData adds a piece of data, in base64, to a block of a kind.
func (b *growing) addData(kind blockKind, piece string) error {
	data, err := base64.StdEncoding.DecodeString(piece)
	if err == nil && b.kind == kind {
		b.data = append(b.data, data...)
	}
	return err
}

// end adds, at the end of a block, the part that its pieces do not contain: redacted content, or an image.
func (s *streamReader) end(e *blockStop) error {
	b, err := s.block(e.Index)
	if err == nil && len(b.data) > 0 {
		whole := b.whole()
		s.pieces.Part(whole.spoken())
	}
	return err
}

// whole is the block with all that was added to it.
func (b *growing) whole() (whole wireBlock) {
	switch b.kind {
	case emptyBlock:
	case textBlock:
		whole.Text = new(b.text.String())
	case reasoningBlock:
		whole.Reasoning = &reasoningContent{Text: &reasoningText{Text: b.reasoning.String(), Signature: b.signature.String()}}
	case redactedBlock:
		whole.Reasoning = &reasoningContent{Redacted: base64.StdEncoding.EncodeToString(b.data)}
	case callBlock:
		whole.ToolUse = &toolUse{ID: b.call.ID, Name: b.call.Name, Input: dialect.Arguments(b.input.String())}
	case imageBlock:
		if len(b.data) > 0 { // The bytes may be stored at the vendor instead.
			whole.Image = &image{Format: b.format}
			whole.Image.Source.Bytes = base64.StdEncoding.EncodeToString(b.data)
		}
	}
	return whole
}

// Complete implements dialect.StreamReader.
func (s *streamReader) Complete() bool { return s.stopped }

// Usage implements dialect.StreamReader.
func (s *streamReader) Usage() *modelv1.ModelUsage { return s.answer.Usage.message() }

// Response implements dialect.StreamReader.
func (s *streamReader) Response() dialect.Response {
	m := &wireMessage{Role: roleAssistant}
	for _, index := range slices.Sorted(maps.Keys(s.blocks)) {
		m.Content = append(m.Content, s.blocks[index].whole())
	}
	s.answer.Result = &result{Message: m}
	return &s.answer
}
