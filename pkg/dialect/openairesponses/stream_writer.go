package openairesponses

import (
	"cmp"
	"io"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/openai"
	"github.com/evalfleet/evalfleet/pkg/dialect/toolname"
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
	*repeated
	meta     dialect.ResponseMeta
	sequence int64
	// items are the items that are done, by place.
	items []string
	// open is the item that grows, unless it is a call; nil if there is none.
	open *openItem
	// said is what was already written.
	said dialect.Said
	// calls are the calls by index, and order is their order.
	calls map[int32]*openCall
	order []*openCall
	// last is the status of the last item, once it is known to be the last.
	last string
	// logprobs are those of the answer until an item has them.
	logprobs *modelv1.Logprobs
}

// openItem is an item that grows by the pieces of its only part.
type openItem struct {
	*partEvents
	id    string
	place int
	// begun means that the part has begun.
	begun bool
	text  strings.Builder
}

// openCall is a call that grows.
type openCall struct {
	*writtenCall
	place int
	// pieces are the arguments so far.
	pieces strings.Builder
}

// partEvents are the events of a kind of part.
type partEvents struct {
	// prefix is that of the item's id, and item its type.
	prefix, item string
	// part is the type of the part, and member its text.
	part, member string
	// around and text begin the names of the events of the part and of its text; index is the member for its place.
	around, text, index string
}

var (
	textEvents    = &partEvents{"msg_", typeMessage, partText, "text", "response.content_part", eventText, "content_index"}
	refusalEvents = &partEvents{"msg_", typeMessage, partRefusal, "refusal", "response.content_part", eventRefusal, "content_index"}
	summaryEvents = &partEvents{reasoningID, typeReasoning, partSummary, "text", "response.reasoning_summary_part", eventSummary, "summary_index"}
)

// NewStreamWriter implements dialect.Codec.
func (Codec) NewStreamWriter(w io.Writer, meta dialect.ResponseMeta) dialect.StreamWriter {
	meta.ID = cmp.Or(meta.ID, newID(idPrefix))
	return &streamWriter{
		EventWriter: dialect.NewEventWriter(w), repeated: repeatedOf(meta.Request), meta: meta, calls: map[int32]*openCall{}, last: statusCompleted,
	}
}

// WriteBegin implements dialect.PieceWriter.
func (s *streamWriter) WriteBegin() {
	for _, kind := range []string{eventCreated, eventInProgress} {
		s.answer(kind, &answer{repeated: s.repeated, meta: s.meta, status: statusInProgress})
	}
}

// answer writes an event that contains the answer.
func (s *streamWriter) answer(kind string, a *answer) {
	s.event(kind, func(w *jsonwrite.Writer) {
		w.Key("response")
		a.write(w)
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
	a := newAnswer(output, s.meta, s.repeated)
	if len(output.GetChoices()) > 0 {
		s.logprobs = output.GetChoices()[0].GetLogprobs()
		s.rest(output.GetChoices()[0].GetMessage(), a)
	}
	s.end(nil, s.last)
	for i, call := range s.order {
		s.endCall(call, a.statusOf(i, len(s.order)))
	}
	a.items = s.items
	kind := eventCompleted
	if a.status == statusIncomplete {
		kind = eventIncomplete
	}
	s.answer(kind, a)
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
func (s *streamWriter) rest(m *modelv1.ChatMessage, a *answer) {
	parts := assistantParts(m)
	for part, rest := range s.said.Rest(parts, dialect.Readable) {
		s.last = a.statusOf(slices.Index(parts, part), len(parts)+len(m.GetToolCalls()))
		switch {
		case !rest.Begun:
			s.part(part)
		case part.GetReasoning() != nil:
			s.grow(summaryEvents, rest.Text)
		default:
			s.grow(textEvents, rest.Text)
			if s.open != nil && s.open.partEvents == textEvents && s.open.text.String() == part.GetText().GetText() {
				s.end(part, s.last) // It has what the pieces do not say, such as a phase.
			}
		}
	}
	for piece := range s.said.RestOfCalls(m.GetToolCalls()) {
		s.WriteCall(piece)
	}
	for i, call := range m.GetToolCalls() {
		if open := s.calls[int32(i)]; open.named.Custom {
			open.arguments = toolname.Text(call)
		}
	}
}

// WriteText implements dialect.PieceWriter.
func (s *streamWriter) WriteText(piece string) { s.grow(textEvents, piece) }

// WriteReasoning implements dialect.PieceWriter.
func (s *streamWriter) WriteReasoning(piece string) { s.grow(summaryEvents, piece) }

// WritePart implements dialect.PieceWriter.
func (s *streamWriter) WritePart(part *contentv1.Content) {
	if part.GetText() == nil {
		s.said.Sealed = s.said.Sealed || part.GetReasoning() != nil
		s.part(part)
	}
}

// grow writes a piece of a part, in the open item if that is of the kind.
func (s *streamWriter) grow(kind *partEvents, piece string) {
	if piece == "" {
		return
	}
	if s.open == nil || s.open.partEvents != kind {
		s.begin(kind, newID(kind.prefix))
	}
	s.beginPart()
	s.open.text.WriteString(piece)
	s.partEvent(s.open, kind.text+".delta", func(w *jsonwrite.Writer) {
		w.TextMember("delta", piece)
		if kind == textEvents {
			w.RawMember("logprobs", "[]")
		}
	})
}

// begin opens an item.
func (s *streamWriter) begin(kind *partEvents, id string) {
	s.end(nil, statusCompleted)
	s.open = &openItem{partEvents: kind, id: id, place: len(s.items)}
	s.items = append(s.items, "")
	s.event(eventAdded, func(w *jsonwrite.Writer) {
		w.IntMember("output_index", int64(s.open.place))
		w.Key("item")
		beginItem(w, kind.item, s.open.id)
		if kind == summaryEvents {
			w.RawMember("summary", "[]")
		} else {
			w.TextMember("status", statusInProgress)
			w.TextMember("role", "assistant")
			w.RawMember("content", "[]")
		}
		w.EndObject()
	})
}

// beginPart opens the part of the open item, once.
func (s *streamWriter) beginPart() {
	if !s.open.begun {
		s.open.begun = true
		s.partEvent(s.open, s.open.around+".added", func(w *jsonwrite.Writer) {
			w.Key("part")
			s.open.writePart(w, "")
		})
	}
}

// writePart writes the part with a text.
func (p *partEvents) writePart(w *jsonwrite.Writer, text string) {
	if p == textEvents {
		writeText(w, &contentv1.Text{Text: text})
	} else {
		w.TextObject("type", p.part, p.member, text)
	}
}

// part writes a part as a whole. Reasoning closes the item of its pieces.
func (s *streamWriter) part(part *contentv1.Content) {
	switch {
	case part.GetText() != nil:
		kind := textEvents
		if part.GetText().GetRefusal() {
			kind = refusalEvents
		}
		s.begin(kind, newID(kind.prefix))
		s.beginPart()
		s.grow(kind, part.GetText().GetText())
		s.end(part, s.last)
	case part.GetReasoning() != nil:
		if s.open == nil || s.open.partEvents != summaryEvents {
			s.begin(summaryEvents, cmp.Or(nativeID(part), newID(reasoningID)))
			s.grow(summaryEvents, dialect.Readable(part))
		}
		s.end(part, s.last)
	default:
		if it := partItem("", part, s.last, nil); it != "" {
			s.end(nil, statusCompleted)
			s.items = append(s.items, it)
			s.itemEvent(eventAdded, len(s.items)-1)
			s.itemEvent(eventItemDone, len(s.items)-1)
		}
	}
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
	if open.partEvents == textEvents {
		logprobs, s.logprobs = s.logprobs, nil
	}
	if open.begun {
		s.partEvent(open, open.partEvents.text+".done", func(w *jsonwrite.Writer) {
			w.TextMember(open.member, text)
			if open.partEvents == textEvents {
				w.Key("logprobs")
				openai.WriteLogprobs(w, logprobs.GetContent())
			}
		})
		s.partEvent(open, open.around+".done", func(w *jsonwrite.Writer) {
			w.Key("part")
			open.writePart(w, text)
		})
	}
	switch {
	case part.GetText().GetRefusal() && open.partEvents == textEvents: // Its pieces did not say so: to the client it is a text.
		part = proto.CloneOf(part)
		part.GetText().Refusal = nil
	case part != nil:
	case open.item == typeReasoning:
		part = chat.ReasoningPart(text)
	default:
		part = chat.TextPart(text)
	}
	s.items[open.place] = partItem(open.id, part, status, logprobs)
	s.itemEvent(eventItemDone, open.place)
}

// WriteCall implements dialect.PieceWriter: it writes a piece of a call, and opens the call if it is the first.
func (s *streamWriter) WriteCall(piece *modelv1.ToolCallDelta) {
	call := s.calls[piece.GetIndex()]
	if call == nil {
		s.end(nil, statusCompleted)
		call = &openCall{writtenCall: beginCall(piece.GetId(), piece.GetFunction(), s.names), place: len(s.items)}
		s.calls[piece.GetIndex()], s.order = call, append(s.order, call)
		s.items = append(s.items, call.item(statusInProgress))
		s.itemEvent(eventAdded, call.place)
	}
	if piece.GetArguments() == "" {
		return
	}
	call.pieces.WriteString(piece.GetArguments())
	if !call.named.Custom {
		s.callEvent(call, ".delta", "delta", piece.GetArguments())
	}
}

func (s *streamWriter) endCall(call *openCall, status string) {
	if call.named.Custom {
		s.callEvent(call, ".delta", "delta", call.arguments)
	} else {
		call.arguments = call.pieces.String()
	}
	s.callEvent(call, ".done", call.kind().member, call.arguments)
	s.items[call.place] = call.item(status)
	s.itemEvent(eventItemDone, call.place)
}

func (s *streamWriter) callEvent(call *openCall, stage, member, value string) {
	s.event(call.kind().events+stage, func(w *jsonwrite.Writer) {
		w.TextMember("item_id", call.id)
		w.IntMember("output_index", int64(call.place))
		w.TextMember(member, value)
	})
}

// itemEvent writes an event that contains an item.
func (s *streamWriter) itemEvent(kind string, place int) {
	s.event(kind, func(w *jsonwrite.Writer) {
		w.IntMember("output_index", int64(place))
		w.RawMember("item", s.items[place])
	})
}

// partEvent writes an event about the part of an item.
func (s *streamWriter) partEvent(o *openItem, kind string, members func(*jsonwrite.Writer)) {
	s.event(kind, func(w *jsonwrite.Writer) {
		w.TextMember("item_id", o.id)
		w.IntMember("output_index", int64(o.place))
		w.IntMember(o.index, 0)
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
