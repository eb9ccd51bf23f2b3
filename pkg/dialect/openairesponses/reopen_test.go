package openairesponses_test

import (
	"testing"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect/dialecttest"
	"github.com/evalfleet/evalfleet/pkg/dialect/openairesponses"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
	"github.com/evalfleet/evalfleet/pkg/summary"
)

func TestTheServerGetsNoEnvelopes(t *testing.T) {
	t.Parallel()
	input := func(items string) string { return `{"new" : 1.0,"input":` + items + `,"store":false}` }
	standing := string(jsonwrite.Marshal(chat.Text(summary.Message("half of it is done"))))
	const said = `{"type":"message", "role":"assistant","content":"a"}`
	reasoning := func(seal string) string {
		return `{"type":"reasoning","id":"rs_9","summary":[{"type":"summary_text","text":"t"}],"encrypted_content":"` + seal + `"}`
	}
	dialecttest.Reopen(t, openairesponses.Codec{}, false, map[string]string{
		input(`[` + reasoning(dialecttest.OwnEnvelope) + `, ` + said + `]`):   input(`[{"type":"reasoning","id":"rs_1","summary":[],"content":[],"encrypted_content":"` + dialecttest.OwnSeal + `"}, ` + said + `]`),
		input(`[` + reasoning(dialecttest.OtherEnvelope) + `, ` + said + `]`): input(`[` + said + `]`),
		input(`[` + said + `,` + reasoning(dialecttest.MuteEnvelope) + `]`):   input(`[` + said + `]`),
		input(`[` + said + `,` + reasoning(dialecttest.LaterEnvelope) + `]`):  input(`[` + said + `]`),
		input(`[` + said + ` , ` + reasoning("Z0FBQQ==") + `]`):               input(`[` + said + ` , ` + reasoning("Z0FBQQ==") + `]`),
		input(`"q"`): input(`"q"`),
		input(`[` + said + ` , {"type":"compaction","id":"cmp_1","encrypted_content":"` + summarised + `"}]`):       input(`[` + said + ` , {"type":"message","role":"user","content":[{"type":"input_text","text":` + standing + `}]}]`),
		input(`[{"type":"compaction","encrypted_content":"Z0FBQQ=="},` + reasoning(dialecttest.MuteEnvelope) + `]`): input(`[{"type":"compaction","encrypted_content":"Z0FBQQ=="}]`),
	})
}
