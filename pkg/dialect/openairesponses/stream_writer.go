package openairesponses

import (
	"cmp"
	"io"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/citation"
	"github.com/evalfleet/evalfleet/pkg/dialect/hosted"
	"github.com/evalfleet/evalfleet/pkg/dialect/openai"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// streamWriter writes an answer for a client as it arrives:
//
//	created in_progress (item added, part added, delta*, text done, part done, item done)* (completed | incomplete)
//
// A call has no parts. It stays open until the end, since pieces of several calls may alternate. The text of a custom
// tool is written at the end: its pieces are JSON, which the text is not.
type streamWriter struct {
	*dialect.EventWriter
	// answer is the answer so far, with each of its items in its present form.
	answer
	sequence int64
	// open is the item that grows, unless it is a call; nil if there is none.
	open *openItem
	// said is what was already written.
	said dialect.Said
	// calls are the calls by index, and order is their order.
	calls map[int32]*openItem
	order []*openItem
	// last is the status of the last item, once it is known to be the last.
	last string
	// logprobs are those of the answer until an item has them.
	logprobs *modelv1.Logprobs
}

// openItem is an item that grows: by the pieces of its only part, or of a call's arguments.
type openItem struct {
	itemHead
	place int
	// begun means that the part has begun.
	begun bool
	text  strings.Builder
	// sources are those of the text.
	sources []citation.Annotation
}

// NewStreamWriter implements dialect.Codec.
func (Codec) NewStreamWriter(w io.Writer, meta dialect.ResponseMeta) dialect.StreamWriter {
	return &streamWriter{EventWriter: dialect.NewEventWriter(w), answer: newAnswer(meta), calls: map[int32]*openItem{}, last: statusCompleted}
}

// WriteBegin implements dialect.PieceWriter.
func (s *streamWriter) WriteBegin() {
	s.stateEvent(eventCreated)
	s.stateEvent(eventInProgress)
}

// stateEvent writes an event that contains the answer in its present state.
func (s *streamWriter) stateEvent(kind string) {
	s.event(kind, func(w *jsonwrite.Writer) {
		w.Key("response")
		s.answer.write(w)
	})
}

// Write implements dialect.StreamWriter. The format knows but one choice.
func (s *streamWriter) Write(d *modelv1.GenerateDelta) error {
	s.said.Add(d, s)
	return s.Flush()
}

// Close implements dialect.StreamWriter. An output without choices is an empty answer.
func (s *streamWriter) Close(output *modelv1.ModelOutput) error {
	s.meta.Model = cmp.Or(s.meta.Model, output.GetModel())
	s.said.Begin(s)
	s.complete(output)
	if len(output.GetChoices()) > 0 {
		s.logprobs = output.GetChoices()[0].GetLogprobs()
		s.rest(output.GetChoices()[0].GetMessage())
	}
	s.end(nil, s.last)
	for i, call := range s.order {
		s.endCall(call, s.statusOf(i, len(s.order)))
	}
	s.stateEvent(eventPrefix + s.status)
	return s.Flush()
}

// Fail implements dialect.StreamWriter.
func (s *streamWriter) Fail(f dialect.Failure) error {
	said := openai.Errors{}.DecodeError(openai.Errors{}.AppendError(nil, f))
	s.event(eventError, func(w *jsonwrite.Writer) {
		w.TextMember("code", cmp.Or(said.Code, codeFailed))
		w.TextMember("message", f.Message)
		w.TextOrNull("param", f.Param)
	})
	return s.Flush()
}

// rest writes what the pieces did not contain: everything if there were none.
func (s *streamWriter) rest(m *modelv1.ChatMessage) {
	parts := dialect.AnswerParts(m)
	at := 0
	for part, rest := range s.said.Rest(parts, dialect.Readable) {
		for parts[at] != part {
			at++ // It came whole.
		}
		s.last = s.statusOf(at, len(parts)+len(m.GetToolCalls()))
		switch {
		case !rest.Begun:
			s.part(part)
		case part.GetReasoning() != nil:
			s.grow(summaryItem, rest.Text)
		default:
			if s.grow(textItem, rest.Text); !rest.Ended {
				s.cite(part.GetText())
			}
			if s.open != nil && s.open.itemKind == textItem && s.open.text.String() == part.GetText().GetText() {
				s.end(part, s.last) // It has what the pieces do not say, such as a phase.
			}
		}
	}
	for piece := range s.said.RestOfCalls(m.GetToolCalls()) {
		s.WriteCall(piece)
	}
	for i, call := range m.GetToolCalls() {
		if open := s.calls[int32(i)]; open.named.Custom {
			open.text.WriteString(open.argumentsOf(call))
		}
	}
}

// WriteText implements dialect.PieceWriter.
func (s *streamWriter) WriteText(piece string) { s.grow(textItem, piece) }

// WriteReasoning implements dialect.PieceWriter.
func (s *streamWriter) WriteReasoning(piece string) { s.grow(summaryItem, piece) }

// WritePart implements dialect.PieceWriter.
func (s *streamWriter) WritePart(part *contentv1.Content) {
	if part.GetText() != nil {
		s.cite(part.GetText())
		return
	}
	s.said.Sealed = s.said.Sealed || part.GetReasoning() != nil
	s.part(part)
}

// cite writes the sources of a text with which the open item ends.
func (s *streamWriter) cite(text *contentv1.Text) {
	open := s.open
	if open == nil || open.itemKind != textItem || !strings.HasSuffix(open.text.String(), text.GetText()) {
		return
	}
	before := strings.TrimSuffix(open.text.String(), text.GetText())
	for _, a := range citation.OpenAIOf(text, int64(utf8.RuneCountInString(before))) {
		s.growthEvent(open, "response.output_text.annotation.added", func(w *jsonwrite.Writer) {
			w.IntMember("annotation_index", int64(len(open.sources)))
			w.Key("annotation")
			a.Write(w)
		})
		open.sources = append(open.sources, a)
	}
}

// grow writes a piece of a part, in the open item if that is of the kind.
func (s *streamWriter) grow(kind *itemKind, piece string) {
	if piece == "" {
		return
	}
	if s.open == nil || s.open.itemKind != kind {
		s.begin(kind, newID(kind.prefix))
	}
	s.beginPart()
	s.open.text.WriteString(piece)
	s.textEvent(s.open, ".delta", "delta", piece, nil)
}

// begin opens an item with a part.
func (s *streamWriter) begin(kind *itemKind, id string) {
	s.end(nil, statusCompleted)
	s.open = s.add(itemHead{itemKind: kind, id: id}, kind.empty(id))
}

// add adds an item in its first form.
func (s *streamWriter) add(head itemHead, item string) *openItem {
	open := &openItem{itemHead: head, place: len(s.items)}
	s.items = append(s.items, item)
	s.itemEvent(eventAdded, open.place)
	return open
}

// finish replaces an item by its last form.
func (s *streamWriter) finish(open *openItem, item string) {
	s.items[open.place] = item
	s.itemEvent(eventItemDone, open.place)
}

// beginPart opens the part of the open item, once.
func (s *streamWriter) beginPart() {
	if !s.open.begun {
		s.open.begun = true
		s.partEvent(s.open, ".added", "")
	}
}

// part writes a part as a whole. Reasoning closes the item of its pieces.
func (s *streamWriter) part(part *contentv1.Content) {
	switch {
	case part.GetText() != nil:
		kind := textItem
		if part.GetText().GetRefusal() {
			kind = refusalItem
		}
		s.begin(kind, newID(kind.prefix))
		s.beginPart()
		s.grow(kind, part.GetText().GetText())
		s.end(part, s.last)
	case part.GetReasoning() != nil:
		if s.open == nil || s.open.itemKind != summaryItem {
			s.begin(summaryItem, cmp.Or(nativeID(part), newID(reasoningID)))
			s.grow(summaryItem, dialect.Readable(part))
		}
		s.end(part, s.last)
	default:
		if it := partItem("", part, s.last, nil); it != "" {
			s.end(nil, statusCompleted)
			s.whole(part, it)
		}
	}
}

// whole writes an item that has no pieces, and what a tool of a server did with the events that tell it.
func (s *streamWriter) whole(part *contentv1.Content, it string) {
	use := part.GetToolUse()
	if use == nil {
		s.finish(s.add(itemHead{}, it), it)
		return
	}
	for _, sealed := range sealOf(part) {
		s.finish(s.add(itemHead{}, sealed), sealed)
	}
	open := s.add(itemHead{}, hosted.OpenAIBegun(use))
	for _, told := range hosted.OpenAIEvents(use) {
		s.event(told.Name, func(w *jsonwrite.Writer) {
			w.TextMember("item_id", hosted.OpenAIID(use))
			w.IntMember("output_index", int64(open.place))
			w.TextUnlessEmpty(told.Member, told.Text)
		})
	}
	s.finish(open, it)
}

// end closes the open item, if there is one, as the part that it has become; nil is what its pieces say.
func (s *streamWriter) end(part *contentv1.Content, status string) {
	open := s.open
	if open == nil {
		return
	}
	s.open = nil
	text := open.text.String()
	var logprobs *modelv1.Logprobs
	if open.itemKind == textItem {
		logprobs, s.logprobs = s.logprobs, nil
	}
	if open.begun {
		s.textEvent(open, ".done", open.member, text, logprobs.GetContent())
		s.partEvent(open, ".done", text, open.sources...)
	}
	switch {
	case part.GetText().GetRefusal() && open.itemKind == textItem: // Its pieces did not say so: to the client it is a text.
		part = proto.CloneOf(part)
		part.GetText().Refusal = nil
	case part != nil:
	case open.itemType == typeReasoning:
		part = chat.ReasoningPart(text)
	default:
		part = chat.TextPart(text)
	}
	s.finish(open, partItem(open.id, part, status, logprobs, open.sources...))
}

// WriteCall implements dialect.PieceWriter: it writes a piece of a call, and opens the call if it is the first.
func (s *streamWriter) WriteCall(piece *modelv1.ToolCallDelta) {
	open := s.calls[piece.GetIndex()]
	if open == nil {
		s.end(nil, statusCompleted)
		head := newCall(piece.GetId(), piece.GetFunction(), s.names)
		open = s.add(head, head.call(statusInProgress, ""))
		s.calls[piece.GetIndex()], s.order = open, append(s.order, open)
	}
	if piece.GetArguments() != "" && !open.named.Custom {
		open.text.WriteString(piece.GetArguments())
		s.textEvent(open, ".delta", "delta", piece.GetArguments(), nil)
	}
}

func (s *streamWriter) endCall(open *openItem, status string) {
	text := open.text.String()
	if open.named.Custom {
		s.textEvent(open, ".delta", "delta", text, nil)
	}
	s.textEvent(open, ".done", open.member, text, nil)
	s.finish(open, open.call(status, text))
}

// itemEvent writes an event that contains an item.
func (s *streamWriter) itemEvent(kind string, place int) {
	s.event(kind, func(w *jsonwrite.Writer) {
		w.IntMember("output_index", int64(place))
		w.RawMember("item", s.items[place])
	})
}

// textEvent writes an event about the text of an item that grows.
func (s *streamWriter) textEvent(o *openItem, stage, member, text string, logprobs []*modelv1.Logprob) {
	s.growthEvent(o, o.pieces+stage, func(w *jsonwrite.Writer) {
		w.TextMember(member, text)
		if o.itemKind == textItem {
			w.Key("logprobs")
			openai.WriteLogprobs(w, logprobs)
		}
	})
}

// partEvent writes an event about the part of an item, with its text.
func (s *streamWriter) partEvent(o *openItem, stage, text string, sources ...citation.Annotation) {
	s.growthEvent(o, o.around+stage, func(w *jsonwrite.Writer) {
		w.Key("part")
		if o.itemKind == textItem {
			writeText(w, &contentv1.Text{Text: text}, sources)
		} else {
			w.TextObject("type", o.part, o.member, text)
		}
	})
}

// growthEvent writes an event about an item that grows.
func (s *streamWriter) growthEvent(o *openItem, kind string, members func(*jsonwrite.Writer)) {
	s.event(kind, func(w *jsonwrite.Writer) {
		w.TextMember("item_id", o.id)
		w.IntMember("output_index", int64(o.place))
		if o.part != "" {
			w.IntMember(o.index, 0)
		}
		members(w)
	})
}

// event adds an event with these members.
func (s *streamWriter) event(kind string, members func(*jsonwrite.Writer)) {
	s.Event(kind, func(w *jsonwrite.Writer) {
		w.TextMember("type", kind)
		w.IntMember("sequence_number", s.sequence)
		members(w)
	})
	s.sequence++
}
