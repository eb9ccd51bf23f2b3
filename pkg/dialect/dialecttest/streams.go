package dialecttest

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// However much of an answer came piece by piece before it was complete, a client has all of it in the end.
func streams(t *testing.T, h Harness) {
	for name, output := range outputs(h) {
		want := saidBy(decode(t, h, encode(t, h, output)))
		pieces, texts := deltas(output)
		for _, written := range [][]*modelv1.GenerateDelta{nil, pieces[:1], pieces[:texts], pieces, begun(pieces)} {
			got, read := whole(t, h, strings.NewReader(stream(t, h, output, written)))
			assert.Equal(t, want, saidBy(got), "%s after %d pieces", name, len(written))
			assert.Equal(t, h.id(), got.GetResponseId(), name)
			text, arguments := joined(read)
			assert.Equal(t, want.Text[0], text, "%s after %d pieces", name, len(written))
			for i, call := range want.Calls {
				assert.Equal(t, call[2], arguments[int32(i)], "%s after %d pieces", name, len(written))
			}
		}
	}
}

// Parts that have no pieces come whole, before the answer is complete. A client has each once, and all else too.
func wholeParts(t *testing.T, h Harness) {
	use := chat.ToolUsePart(&contentv1.ToolUse{ToolType: contentv1.ToolUseType_TOOL_USE_TYPE_WEB_SEARCH, Id: "u1", Name: "search", Arguments: "{}", Result: "[]"})
	code := chat.ToolUsePart(&contentv1.ToolUse{ToolType: contentv1.ToolUseType_TOOL_USE_TYPE_CODE_EXECUTION, Id: "u2", Name: "python", Arguments: "f()", Result: "1"})
	called := chat.ToolUsePart(&contentv1.ToolUse{ToolType: contentv1.ToolUseType_TOOL_USE_TYPE_MCP_CALL, Id: "u3", Name: "f", Context: new("s"), Arguments: "{}", Result: "2", Error: new("no")})
	parts := []*contentv1.Content{picture, use, code, called}
	if !h.NoReasoning {
		parts = append(parts, chat.ReasoningPart("Hm."))
	}
	m := chat.Assistant("")
	m.Content = chat.ListContent(append(parts, chat.TextPart("So."))...)
	output := chat.MessageOutput("served", m, modelv1.StopReason_STOP_REASON_STOP)
	kinds := func(output *modelv1.ModelOutput) (all []string) {
		for _, part := range chat.FirstMessage(output).GetContent().GetList().GetParts() {
			all = append(all, fmt.Sprintf("%T", part.GetPart()))
		}
		return all
	}
	want, _ := whole(t, h, strings.NewReader(stream(t, h, output, nil)))
	for _, came := range [][]*contentv1.Content{{picture}, {use}, {code}, {called}, {picture, use}, {use, code, called}} {
		pieces := make([]*modelv1.GenerateDelta, len(came))
		for i, part := range came {
			pieces[i] = dialect.PartDelta(part)
		}
		got, _ := whole(t, h, strings.NewReader(stream(t, h, output, pieces)))
		assert.ElementsMatch(t, kinds(want), kinds(got), "%d parts came whole", len(came))
		assert.Equal(t, saidBy(want), saidBy(got))
	}
}

// begun are the pieces without the arguments of calls, of which some APIs send no piece if there are none.
func begun(pieces []*modelv1.GenerateDelta) (all []*modelv1.GenerateDelta) {
	for _, piece := range pieces {
		if call := piece.GetToolCall(); call == nil || call.GetArguments() == "" {
			all = append(all, piece)
		}
	}
	return all
}

// joined is the content of the first choice's pieces.
func joined(pieces []*modelv1.GenerateDelta) (text string, arguments map[int32]string) {
	arguments = map[int32]string{}
	for _, piece := range pieces {
		if piece.GetChoice() == 0 {
			text += piece.GetText()
			if call := piece.GetToolCall(); call != nil {
				arguments[call.GetIndex()] += call.GetArguments()
			}
		}
	}
	return text, arguments
}

func splits(t *testing.T, h Harness) {
	all := map[string]string{}
	for name, s := range h.Streams {
		all[name] = s.Events
	}
	for _, name := range []string{"hard", "calls"} {
		output := outputs(h)[name]
		all[name] = stream(t, h, output, nil)
	}
	for name, events := range all {
		want, _ := whole(t, h, strings.NewReader(events))
		for where, r := range cut(events) {
			got, _ := whole(t, h, r)
			require.Equal(t, saidBy(want), saidBy(got), "%s, cut %s", name, where)
		}
	}
}

func vendorStreams(t *testing.T, h Harness) {
	require.NotEmpty(t, h.Streams)
	for name, s := range h.Streams {
		want := decode(t, h, []byte(s.Body))
		got, pieces := whole(t, h, strings.NewReader(s.Events))
		assert.Equal(t, saidBy(want), saidBy(got), name)
		assert.NotEmpty(t, pieces, name)
		assert.True(t, scanned(t, h, s.Events).Ended, name)
	}
}

// A stream may break off anywhere: between events, within one, within a character.
func truncated(t *testing.T, h Harness) {
	all := map[string]string{}
	for name, s := range h.Streams {
		all[name] = s.Events
	}
	for name, output := range outputs(h) {
		pieces, _ := deltas(output)
		all["our "+name] = stream(t, h, output, pieces[:min(len(pieces), 5)])
	}
	for name, events := range all {
		complete, all := whole(t, h, strings.NewReader(events))
		want, _ := joined(all)
		for at := range len(events) {
			s, pieces, err := read(h, strings.NewReader(events[:at]))
			text, _ := joined(pieces)
			require.True(t, strings.HasPrefix(want, text), "%s, cut at byte %d: %q", name, at, text)
			if err != nil {
				require.True(t, isAnswerError(err), "%s, cut at byte %d: %v", name, at, err)
				continue
			}
			if !s.Started() {
				require.False(t, s.Complete(), "%s, cut at byte %d", name, at)
				continue
			}
			got, err := s.Response().Output(nil)
			if err != nil {
				requireMalformed(t, err, events[:at])
				continue
			}
			switch stop := chat.StopReason(got); {
			case len(complete.GetChoices()) > 1: // One choice may end before another.
			case s.Complete():
				require.Equal(t, saidBy(complete).Text, saidBy(got).Text, "%s, cut at byte %d", name, at)
			case stop != chat.StopReason(complete): // It may be known before the end.
				require.Equal(t, modelv1.StopReason_STOP_REASON_UNKNOWN, stop, "%s, cut at byte %d", name, at)
			}
		}
	}
}

func malformedEvents(t *testing.T, h Harness) {
	for _, data := range append(h.MalformedEvents, "", "not json", "[]", "7", `"x"`, "{") {
		s := h.Codec.NewStreamReader()
		_, err := s.Add(dialect.Event{Data: []byte(data)})
		requireMalformed(t, err, data)
		assert.False(t, s.Complete(), data)
	}
}

func pings(t *testing.T, h Harness) {
	output := outputs(h)["text"]
	pieces, _ := deltas(output)
	var wire bytes.Buffer
	w := h.Codec.NewStreamWriter(&wire, meta(h))
	for _, piece := range pieces {
		require.NoError(t, w.Write(piece))
		before := wire.Len()
		require.NoError(t, w.Ping())
		assert.Greater(t, wire.Len(), before)
	}
	require.NoError(t, w.Close(output))
	got, _ := whole(t, h, &wire)
	assert.Equal(t, saidBy(output).Text, saidBy(got).Text)
}

func failures(t *testing.T, h Harness) {
	pieces, _ := deltas(outputs(h)["text"])
	for _, written := range []int{0, 2} {
		var wire bytes.Buffer
		w := h.Codec.NewStreamWriter(&wire, meta(h))
		for _, piece := range pieces[:written] {
			require.NoError(t, w.Write(piece))
		}
		require.NoError(t, w.Fail(dialect.Failure{Status: 529, Message: hard}))
		facts := scanned(t, h, wire.String())
		assert.True(t, facts.Failed && !facts.Ended)
		s, read, err := read(h, &wire)
		said, ok := errors.AsType[*dialect.Error](err)
		require.True(t, ok, "%v", err)
		assert.Equal(t, hard, said.Message)
		assert.Equal(t, written > 0, s.Started())
		assert.False(t, s.Complete())
		text, _ := joined(read)
		assert.Equal(t, "Yes."[:written], text)
	}
}

// gone is a client that reads no longer, after so many writes.
type gone struct{ writes int }

var errGone = errors.New("gone")

func (g *gone) Write(p []byte) (int, error) {
	if g.writes--; g.writes < 0 {
		return 0, errGone
	}
	return len(p), nil
}

func brokenWriters(t *testing.T, h Harness) {
	output := outputs(h)["calls"]
	pieces, _ := deltas(output)
	for writes := range 8 {
		g := &gone{writes: writes}
		w := h.Codec.NewStreamWriter(g, meta(h))
		var err error
		for i := 0; err == nil; i++ {
			err = w.Write(pieces[i%len(pieces)])
		}
		require.ErrorIs(t, err, errGone)
		g.writes = 100
		require.ErrorIs(t, w.Write(pieces[0]), errGone)
		require.ErrorIs(t, w.Ping(), errGone)
		require.ErrorIs(t, w.Close(output), errGone)
		require.ErrorIs(t, w.Fail(dialect.Failure{Status: 500}), errGone)
		assert.Equal(t, 100, g.writes, "nothing is written any more")
	}
}
