package anthropic_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/pkg/dialect/anthropic"
	"github.com/evalfleet/evalfleet/pkg/dialect/dialecttest"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
)

func TestTheServerGetsNoEnvelopes(t *testing.T) {
	t.Parallel()
	turn := func(blocks string) string {
		return `{ "new":1.0,"messages":[{"role":"user","content":"q"}, {"role":"assistant", "content":` + blocks + `}]}`
	}
	const said = `{"type": "text","text":"a"}`
	dialecttest.Reopen(t, anthropic.Codec{}, false, map[string]string{
		turn(`[{"type":"thinking","thinking":"own thought","signature":"` + dialecttest.OwnEnvelope + `"}, ` + said + `]`):      turn(`[{"type":"thinking","thinking":"own thought","signature":"` + dialecttest.OwnSeal + `"}, ` + said + `]`),
		turn(`[{"type":"thinking","thinking":"x","signature":"` + dialecttest.OtherEnvelope + `"},` + said + `]`):               turn(`[{"type":"text","text":"<think>other thought</think>"},` + said + `]`),
		turn(`[{"type":"thinking","thinking":"left","signature":"` + dialecttest.LaterEnvelope + `"},` + said + `]`):            turn(`[{"type":"text","text":"<think>left</think>"},` + said + `]`),
		turn(`[{"type":"redacted_thinking","data":"` + dialecttest.MuteEnvelope + `"},` + said + `]`):                           turn(`[` + said + `]`),
		turn(`[{"type":"redacted_thinking","data":"` + dialecttest.MuteEnvelope + `"}]`):                                        turn(`[{"type":"text","text":"(no content)"}]`),
		turn("[\n{\"type\":\"redacted_thinking\",\"data\":\"" + dialecttest.MuteEnvelope + "\"}\n]"):                            turn(`[{"type":"text","text":"(no content)"}]`),
		turn(`[{"type":"thinking","thinking":"open","signature" : ""},` + said + `]`):                                           turn(`[{"type":"text","text":"<think>open</think>"},` + said + `]`),
		turn(`[{"type":"thinking","thinking":"","signature":""},` + said + `]`):                                                 turn(`[` + said + `]`),
		turn(`[{"type":"thinking","thinking":"t","signature":"c2ln"} , ` + said + `]`):                                          turn(`[{"type":"thinking","thinking":"t","signature":"c2ln"} , ` + said + `]`),
		turn(`[{"type":"redacted_thinking","data":"` + dialecttest.LaterEnvelope + `"},{"type":"tool_use","input":{"a":1.0}}]`): turn(`[{"type":"tool_use","input":{"a":1.0}}]`),
	})
}

func TestAThoughtWithoutATextIsLeftOut(t *testing.T) {
	t.Parallel()
	given := `{"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"","signature":""},{"type":"text","text":"a"}]}]}`
	all := func(part *contentv1.Content) *contentv1.Content { return part }
	got := anthropic.Codec{}.Reopen([]byte(given), all, false)
	assert.Equal(t, `{"messages":[{"role":"assistant","content":[{"type":"text","text":"a"}]}]}`, string(got))
}
