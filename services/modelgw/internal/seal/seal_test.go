package seal_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/seal"
)

const (
	claude = "anthropic/claude"
	ours   = "openai-responses/api.openai.com/default"
	theirs = "openai-responses/api.openai.com/other"
)

// sealedBy is reasoning with the seal `s` and the summary `thought`.
func sealedBy(sealer string) *contentv1.Content {
	part := chat.SealedPart("s", new("thought"))
	part.GetReasoning().SealedBy = sealer
	return part
}

func messageOf(parts ...*contentv1.Content) *modelv1.ChatMessage {
	m := chat.Assistant("")
	m.Content = chat.ListContent(parts...)
	return m
}

func equal(t *testing.T, want, got *contentv1.Content, about string) {
	t.Helper()
	assert.True(t, proto.Equal(want, got), "%s: %v is not %v", about, got, want)
}

func TestASealGoesToWhoReadsItAlone(t *testing.T) {
	t.Parallel()
	open := chat.ReasoningPart("thought")
	for _, tt := range []struct {
		sealer, reader string
		read           bool
	}{
		{claude, claude, true},
		{ours, ours, true},
		{ours, theirs, false},
		{ours, claude, false},
		{claude, ours, false},
		{"openai-responses", ours, true}, // a bare one, of which the format alone is known
		{"openai-responses", theirs, true},
		{"openai-responses", claude, false},
		{"", claude, true},
		{dialect.AnySealer, ours, true},
		{dialect.NoSealer, ours, false},
	} {
		part := sealedBy(tt.sealer)
		if tt.read {
			assert.Same(t, part, seal.For(tt.reader, part), "%v", tt)
		} else {
			equal(t, open, seal.For(tt.reader, part), tt.sealer+" for "+tt.reader)
		}
	}
}

func TestWhatIsReadableIsLeft(t *testing.T) {
	t.Parallel()
	bare := sealedBy(claude)
	bare.GetReasoning().Summary = nil
	assert.Nil(t, seal.For(ours, bare), "nothing of it is readable")
	signed := &contentv1.Content{InternalJson: `"reasoning"`, Part: &contentv1.Content_Reasoning{Reasoning: &contentv1.Reasoning{
		Reasoning: "all", Summary: new("short"), Signature: new("sig"), SealedBy: claude,
	}}}
	want := chat.ReasoningPart("all")
	want.GetReasoning().Summary = new("short")
	equal(t, want, seal.For(ours, signed), "a text with a signature")
	named := &contentv1.Content{Part: &contentv1.Content_Reasoning{Reasoning: &contentv1.Reasoning{
		Summary: new("short"), Signature: new("rs_1"), SealedBy: theirs,
	}}}
	equal(t, chat.ReasoningPart("short"), seal.For(ours, named), "a summary alone, of reasoning that is stored at the vendor")
	for _, part := range []*contentv1.Content{chat.TextPart("x"), chat.ReasoningPart("open")} {
		assert.Same(t, part, seal.For(ours, part), "it has no seal")
	}
	m := messageOf(chat.TextPart("x"), bare)
	parts, changed := seal.Parts(ours, m)
	assert.True(t, changed)
	assert.Len(t, parts, 1)
	assert.Len(t, m.GetContent().GetList().GetParts(), 2, "the message stays as it is")
}

func TestAnAnswerSaysWhoReadsIt(t *testing.T) {
	t.Parallel()
	open, other := chat.ReasoningPart("open"), sealedBy(theirs)
	m := messageOf(sealedBy(""), open, other)
	seal.Mark(m, ours)
	parts := m.GetContent().GetList().GetParts()
	assert.Equal(t, ours, parts[0].GetReasoning().GetSealedBy())
	assert.Empty(t, parts[1].GetReasoning().GetSealedBy())
	assert.Equal(t, theirs, parts[2].GetReasoning().GetSealedBy())

	piece := dialect.PartDelta(sealedBy(""))
	assert.Equal(t, ours, seal.MarkDelta(piece, ours).GetPart().GetReasoning().GetSealedBy())
	assert.Empty(t, piece.GetPart().GetReasoning().GetSealedBy(), "others hold the piece too")
}

// answered is the part of an answer as a client of a format gets it.
func answered(part *contentv1.Content, format string) *contentv1.Content {
	output := chat.MessageOutput("m", messageOf(part), modelv1.StopReason_STOP_REASON_STOP)
	return chat.FirstMessage((&seal.Stream{Format: format}).End(output)).GetContent().GetList().GetParts()[0]
}

func TestAClientReturnsASealInItsEnvelope(t *testing.T) {
	t.Parallel()
	part := sealedBy(ours)
	got := answered(part, "anthropic")
	assert.Equal(t, "thought", got.GetReasoning().GetSummary())
	assert.NotEqual(t, "s", got.GetReasoning().GetReasoning())
	assert.Equal(t, "s", part.GetReasoning().GetReasoning(), "the output stays as it is")

	m := messageOf(got)
	seal.Receive([]*modelv1.ChatMessage{m}, "anthropic")
	equal(t, part, m.GetContent().GetList().GetParts()[0], "it is as the vendor sealed it")

	stream := seal.Stream{Format: "anthropic"}
	assert.True(t, proto.Equal(got, stream.Delta(dialect.PartDelta(part)).GetPart()), "a stream has the same envelope")
}

func TestASealOfTheClientsFormatIsBare(t *testing.T) {
	t.Parallel()
	for _, part := range []*contentv1.Content{sealedBy(claude), sealedBy("anthropic/proxy.example/default"), sealedBy(""), chat.ReasoningPart("open"), chat.TextPart("x")} {
		equal(t, part, answered(part, "anthropic"), "as it is")
	}
	m := messageOf(sealedBy(""))
	seal.Receive([]*modelv1.ChatMessage{m}, "anthropic")
	assert.Equal(t, "anthropic", m.GetContent().GetList().GetParts()[0].GetReasoning().GetSealedBy())
}

// A client may hold what earlier versions, and later ones, have given it.
func TestOtherEnvelopesDoNotReachAVendor(t *testing.T) {
	t.Parallel()
	const first = "evalfleet:GgwKAXMSB3Rob3VnaHQ=" // the reasoning `s` with the summary `thought`, without a sealer
	for text, want := range map[string]string{first: dialect.AnySealer, "evalfleet:9:abc": dialect.NoSealer, "evalfleet:%": dialect.NoSealer} {
		m := messageOf(chat.SealedPart(text, new("thought")))
		seal.Receive([]*modelv1.ChatMessage{m}, "anthropic")
		part := m.GetContent().GetList().GetParts()[0]
		require.Equal(t, want, part.GetReasoning().GetSealedBy(), text)
		assert.Equal(t, "thought", part.GetReasoning().GetSummary())
		if want == dialect.NoSealer {
			equal(t, chat.ReasoningPart("thought"), seal.For(claude, part), text)
		} else {
			assert.Equal(t, "s", part.GetReasoning().GetReasoning())
		}
	}
}

// What chat completions of this gateway have without an envelope was made before there were any: whose it is, it does
// not say. Details of a server are of one that speaks the format.
func TestDetailsOfChatCompletions(t *testing.T) {
	t.Parallel()
	detailed := chat.ReasoningPart("thought")
	detailed.GetReasoning().Signature = new("reasoning-details://[]")
	m := messageOf(sealedBy(""), detailed)
	seal.Receive([]*modelv1.ChatMessage{m}, "openai-chat")
	parts := m.GetContent().GetList().GetParts()
	assert.Empty(t, parts[0].GetReasoning().GetSealedBy())
	assert.Equal(t, "openai-chat", parts[1].GetReasoning().GetSealedBy())
}

// A seal that follows its thought in a stream is apart from it, since the client has the thought.
func TestASealThatComesAfterItsThought(t *testing.T) {
	t.Parallel()
	stream := seal.Stream{Format: "anthropic"}
	stream.Delta(dialect.ReasoningDelta("thought"))
	output := chat.MessageOutput("m", messageOf(sealedBy("gemini/host/default"), chat.TextPart("x")), modelv1.StopReason_STOP_REASON_STOP)
	parts := chat.FirstMessage(stream.End(output)).GetContent().GetList().GetParts()
	require.Len(t, parts, 3)
	equal(t, chat.ReasoningPart("thought"), parts[0], "the thought")
	assert.Nil(t, parts[1].GetReasoning().Summary)
	assert.True(t, strings.HasPrefix(parts[1].GetReasoning().GetReasoning(), "evalfleet:"))
	assert.Len(t, chat.FirstMessage(output).GetContent().GetList().GetParts(), 2, "the output stays as it is")
}
