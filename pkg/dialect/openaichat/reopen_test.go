package openaichat_test

import (
	"testing"

	"github.com/evalfleet/evalfleet/pkg/dialect/dialecttest"
	"github.com/evalfleet/evalfleet/pkg/dialect/openaichat"
)

func TestTheServerGetsNoEnvelopes(t *testing.T) {
	t.Parallel()
	turn := func(members string) string {
		return `{"new" : 1.0,"messages":[{"role":"user","content":"evalfleet"},{"role":"assistant", "content":"a"` + members + `}]}`
	}
	detail := func(envelope string) string {
		return `{"type":"reasoning.encrypted","data":"` + envelope + `","format":"evalfleet"}`
	}
	const others = `{"type":"reasoning.text","text":"t","signature":"c2ln","format":"anthropic-claude-v1"}`
	dialecttest.Reopen(t, openaichat.Codec{}, false, map[string]string{
		turn(`, "reasoning_details":[` + detail(dialecttest.OtherEnvelope) + `],"reasoning_content":"t"`): turn(`,"reasoning_content":"t"`),
		turn(`,"reasoning_details" : [` + detail(dialecttest.MuteEnvelope) + `] `):                        turn(``),
		turn(`,"reasoning_details":[` + others + `]`):                                                     turn(`,"reasoning_details":[` + others + `]`),
		turn(``): turn(``),
	})
}
