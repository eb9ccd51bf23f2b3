package gemini_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/dialecttest"
	"github.com/evalfleet/evalfleet/pkg/dialect/gemini"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

func TestTheServerGetsNoEnvelopes(t *testing.T) {
	t.Parallel()
	turn := func(parts string) string {
		return `{"new" : 1.0,"contents":[{"parts":[{"text":"q"}]},{"role":"model", "parts":` + parts + `}]}`
	}
	count := func(parts string) string { return `{"generateContentRequest": ` + turn(parts) + `}` }
	const thought = `{"text":"t", "thought":true}`
	signed := func(member, signature string) string {
		return `{"text":"a","` + member + `":"` + signature + `"}`
	}
	call := func(signature string) string {
		return `{"functionCall":{"name":"f","args":{"a": 1.0}},"thoughtSignature":"` + signature + `"}`
	}
	cases := map[string]string{
		`[` + thought + `, ` + signed("thoughtSignature", dialecttest.OwnEnvelope) + `]`:       `[` + thought + `, ` + signed("thoughtSignature", dialecttest.OwnSeal) + `]`,
		`[` + signed("thought_signature", dialecttest.OtherEnvelope) + `]`:                     `[{"text":"a"}]`,
		`[` + signed("thought_signature", dialecttest.OwnEnvelope) + `]`:                       `[` + signed("thought_signature", dialecttest.OwnSeal) + `]`,
		`[` + thought + `,{"text":"","thoughtSignature":"` + dialecttest.LaterEnvelope + `"}]`: `[` + thought + `]`,
		`[{"text":"","thoughtSignature":"` + dialecttest.MuteEnvelope + `"}]`:                  `[{"text":""}]`,
		"[\n{\"text\":\"\",\"thoughtSignature\":\"" + dialecttest.MuteEnvelope + "\"}\n]":      `[{"text":""}]`,
		`[` + thought + `,{"thoughtSignature" : "` + dialecttest.MuteEnvelope + `" }]`:         `[` + thought + `]`, // Some clients leave an empty text out.
		`[]`: `[]`,
		`[` + call(dialecttest.OwnEnvelope) + `]`:   `[` + call(dialecttest.OwnSeal) + `]`,
		`[` + call(dialecttest.OtherEnvelope) + `]`: `[` + call("skip_thought_signature_validator") + `]`,
		`[` + call("c2ln") + ` ]`:                   `[` + call("c2ln") + ` ]`,
	}
	all := map[string]string{}
	for parts, want := range cases {
		all[turn(parts)], all[count(parts)] = turn(want), count(want)
	}
	dialecttest.Reopen(t, gemini.Codec{}, true, all)
}

// The server refuses a turn whose first call has no signature; one that skips the check is for calls of other models.
func TestCallsOfOtherModelsAreSigned(t *testing.T) {
	t.Parallel()
	written := func(m *modelv1.ChatMessage) string {
		body, err := gemini.Codec{}.AppendRequest(nil, &dialect.Request{Messages: []*modelv1.ChatMessage{chat.User("q"), m}})
		require.NoError(t, err)
		return string(body)
	}
	const skips = `"thoughtSignature":"skip_thought_signature_validator"`
	unsigned := chat.Assistant("", chat.Call("c1", "f", "{}"), chat.Call("c2", "f", "{}"))
	before := proto.CloneOf(unsigned)
	assert.Contains(t, written(gemini.SignCalls(unsigned)), `{"functionCall":{"id":"c1","name":"f","args":{}},`+skips+`},{"functionCall":{"id":"c2","name":"f","args":{}}}`)
	assert.True(t, proto.Equal(before, unsigned), "the message stays as it is")

	spoken := chat.Assistant("said", chat.Call("c1", "f", "{}"))
	assert.Contains(t, written(gemini.SignCalls(spoken)), `{"text":"said"},{"functionCall":{"id":"c1","name":"f","args":{}},`+skips+`}`)

	empty := chat.SealedPart("", nil)
	empty.InternalJson = `{"gemini_function_call_id":"c1"}`
	placed := chat.Assistant("", chat.Call("c1", "f", "{}"))
	placed.Content = chat.ListContent(empty, chat.TextPart("after"))
	assert.Contains(t, written(gemini.SignCalls(placed)), `{"functionCall":{"id":"c1","name":"f","args":{}},`+skips+`},{"text":"after"}`)

	own := chat.Assistant("", chat.Call("c1", "f", "{}"))
	own.Content = chat.ListContent(chat.SealedPart("c2ln", nil))
	for _, m := range []*modelv1.ChatMessage{own, chat.Assistant("said")} {
		assert.Same(t, m, gemini.SignCalls(m))
	}
}

func TestAWordOfEnvelopesChangesNothing(t *testing.T) {
	t.Parallel()
	request := []byte(`{"contents":[{"parts":[{"text":"what is evalfleet:?"}]}, {"role":"model", "parts":[]}]}`)
	got := gemini.Codec{}.Reopen(request, nil, true)
	assert.Same(t, &request[0], &got[0])
}
