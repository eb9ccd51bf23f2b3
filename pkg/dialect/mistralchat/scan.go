package mistralchat

import (
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/mistral"
	"github.com/evalfleet/evalfleet/pkg/dialect/openai"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
)

// ScanUsage implements dialect.Codec.
func (Codec) ScanUsage(doc []byte, facts *dialect.Facts) {
	if string(doc) == done {
		facts.Ended = true
		return
	}
	openai.ScanCompletion(doc, facts, func(raw []byte) *modelv1.ModelUsage {
		var u *mistral.Usage
		if jsonread.Unmarshal(raw, &u) != nil {
			return nil
		}
		return u.Message()
	})
}
