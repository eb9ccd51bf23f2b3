package gemini

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
)

// maxChoices bounds the choices of one answer, whose indices the server sends.
const maxChoices = 1024

// done is the data of a last event, which Google's own server does not send.
const done = "[DONE]"

// NewStreamReader implements dialect.Codec. The response of the reader is an *Answer.
func (Codec) NewStreamReader() dialect.StreamReader { return &streamReader{} }

// streamReader collects an answer whose events are answers too, each with the next parts of some candidates. A finish
// reason does not end a candidate: some servers send one with each event. Few send a last event, so that the stream is
// read to its end.
type streamReader struct {
	dialect.Progress
	whole  Answer
	turns  []*streamedTurn // by the index of the candidate
	pieces dialect.Pieces
}

// streamedTurn is the received part of a candidate's turn.
type streamedTurn struct {
	parts []part
	// text is that of the last part, while it grows.
	text  strings.Builder
	calls int32
}

// Add implements dialect.StreamReader.
func (s *streamReader) Add(event dialect.Event) ([]*modelv1.GenerateDelta, error) {
	if string(event.Data) == done {
		s.Ended = true
		return nil, nil
	}
	var piece Answer
	if err := jsonread.Unmarshal(event.Data, &piece); err != nil {
		return nil, malformed(err)
	}
	if piece.Error != nil {
		return nil, piece.Error.toError(event.Data)
	}
	for i := range piece.Candidates {
		if at := piece.Candidates[i].Index; at < 0 || at >= maxChoices {
			return nil, malformed(fmt.Errorf("a candidate has the index %d", at))
		}
	}
	s.Begun = true
	s.whole.ID, s.whole.Model = cmp.Or(piece.ID, s.whole.ID), cmp.Or(piece.Model, s.whole.Model)
	s.whole.Usage, s.whole.Feedback = cmp.Or(piece.Usage, s.whole.Usage), cmp.Or(piece.Feedback, s.whole.Feedback)
	for i := range piece.Candidates {
		s.add(&piece.Candidates[i])
	}
	return s.pieces.Take(), nil
}

// add adds a piece of a candidate.
func (s *streamReader) add(c *candidate) {
	for len(s.turns) <= c.Index {
		s.whole.Candidates = append(s.whole.Candidates, candidate{Index: len(s.turns)})
		s.turns = append(s.turns, &streamedTurn{})
	}
	whole, turn := &s.whole.Candidates[c.Index], s.turns[c.Index]
	if c.FinishReason != "" {
		whole.FinishReason, whole.FinishMessage = c.FinishReason, c.FinishMessage
	}
	if c.Ratings != nil {
		whole.Ratings = c.Ratings
	}
	whole.Grounding = cmp.Or(c.Grounding, whole.Grounding)
	if c.Logprobs != nil {
		whole.Logprobs = cmp.Or(whole.Logprobs, &logprobsResult{})
		whole.Logprobs.append(c.Logprobs)
	}
	s.pieces.Choice = int32(c.Index)
	for i := range c.Content.Parts {
		turn.add(&c.Content.Parts[i], &s.pieces)
	}
}

// append adds the tokens of a piece. Some pieces have no likely tokens.
func (l *logprobsResult) append(piece *logprobsResult) {
	if missing := len(l.Chosen) - len(l.Top); missing > 0 && piece.Top != nil {
		l.Top = append(l.Top, make([]topCandidates, missing)...)
	}
	l.Chosen, l.Top = append(l.Chosen, piece.Chosen...), append(l.Top, piece.Top...)
}

// add adds a part. A text continues the text before it. A call comes whole.
func (t *streamedTurn) add(p *part, pieces *dialect.Pieces) {
	if p.Text == nil {
		t.settle()
		t.addCall(p.Call, pieces)
		t.addCode(p, pieces)
		t.parts = append(t.parts, *p)
		return
	}
	if last := len(t.parts) - 1; last >= 0 && t.parts[last].continues(p) {
		if p.Signature != "" {
			t.parts[last].Signature = p.Signature
		}
	} else if *p.Text != "" || p.Signature != "" || len(t.parts) == 0 {
		t.settle()
		t.parts = append(t.parts, part{Text: new(""), Thought: p.Thought, Signature: p.Signature})
	}
	t.text.WriteString(*p.Text)
	if p.Thought {
		pieces.Reasoning(*p.Text)
	} else {
		pieces.Text(*p.Text)
	}
}

// continues reports whether a text is the next piece of this part. A second signature has a part of its own only if it
// comes without text, since a text must not be split: on texts the server wants a signature back, but does not need it.
func (p *part) continues(next *part) bool {
	return p.Text != nil && p.Thought == next.Thought && (p.Signature == "" || next.Signature == "" || *next.Text != "")
}

// addCall adds the piece that is a call, and gives the call an id if it has none.
func (t *streamedTurn) addCall(call *functionCall, pieces *dialect.Pieces) {
	if call == nil || call.Name == "" {
		return
	}
	if call.ID == "" {
		call.ID = randomID(call.Name)
	}
	whole := &modelv1.ToolCallDelta{Index: t.calls, Id: call.ID, Function: call.Name, Arguments: call.arguments()}
	pieces.Add(dialect.CallDelta(whole))
	t.calls++
}

// addCode adds code that the server ran as a piece, once its result is there.
func (t *streamedTurn) addCode(p *part, pieces *dialect.Pieces) {
	if p.Code != nil {
		p.Code.id = chat.NewID()
	}
	if last := len(t.parts) - 1; p.CodeResult != nil && last >= 0 && t.parts[last].Code != nil {
		var ran turnReader
		ran.executed(t.parts[last].Code)
		ran.result(p.CodeResult)
		pieces.Part(ran.parts[0])
	}
}

// settle puts the text that has grown into its part.
func (t *streamedTurn) settle() {
	if last := len(t.parts) - 1; last >= 0 && t.parts[last].Text != nil {
		t.parts[last].Text = new(t.text.String())
	}
	t.text.Reset()
}

// Complete implements dialect.StreamReader: each candidate that has come has a finish reason, or the prompt is blocked.
func (s *streamReader) Complete() bool {
	if len(s.whole.Candidates) == 0 {
		return s.whole.Feedback != nil && s.whole.Feedback.Reason != ""
	}
	return !slices.ContainsFunc(s.whole.Candidates, func(c candidate) bool { return c.FinishReason == "" })
}

// Usage implements dialect.StreamReader.
func (s *streamReader) Usage() *modelv1.ModelUsage { return s.whole.TokenUsage() }

// Response implements dialect.StreamReader.
func (s *streamReader) Response() dialect.Response {
	if len(s.turns) == 0 && !s.Complete() {
		s.whole.Candidates = []candidate{{}} // It was cut off before its first candidate.
	}
	for i, turn := range s.turns {
		turn.settle()
		s.whole.Candidates[i].Content.Parts = turn.parts
	}
	return &s.whole
}
