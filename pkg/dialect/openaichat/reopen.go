package openaichat

import (
	"bytes"
	"encoding/json"

	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonedit"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
)

// Reopen implements dialect.Reopener. Details that AppendResponse wrote are left out: their seals are those of other
// formats' servers, and their readable text is in another member.
func (Codec) Reopen(request []byte, _ func(*contentv1.Content) *contentv1.Content, _ bool) []byte {
	own := []byte(ownFormat[1:]) // A search that begins with a rare letter is several times faster.
	if !bytes.Contains(request, own) {
		return request
	}
	message := func(raw []byte) []byte {
		var m struct {
			Details []json.RawMessage `json:"reasoning_details"`
		}
		if !bytes.Contains(raw, own) || jsonread.Unmarshal(raw, &m) != nil || len(ownDetails(m.Details)) == 0 {
			return raw
		}
		return jsonedit.Without(raw, "reasoning_details")
	}
	return jsonedit.Member(request, "messages", func(list []byte) []byte { return jsonedit.List(list, message) })
}
