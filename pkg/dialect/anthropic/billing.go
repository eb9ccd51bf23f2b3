package anthropic

import (
	"encoding/json"

	"github.com/evalfleet/evalfleet/pkg/dialect"
)

// standardSpeed is the speed whose prices are the model's.
const standardSpeed = "standard"

// billing is what usage says of its price: https://platform.claude.com/docs/en/about-claude/pricing.
func (u *usage) billing() (b dialect.Billing) {
	if u == nil {
		return b
	}
	if u.Creation != nil {
		b.LongCacheWrite = u.Creation.Long
	}
	if u.Speed != standardSpeed {
		b.Mode = u.Speed
	}
	return b
}

// Billing returns what the answer says of its price, except for the model that answered, which its output names.
func (m *Message) Billing() dialect.Billing { return m.Usage.billing() }

// typeFallback is the type of a block that says which model goes on.
const typeFallback = "fallback"

// fallbackOf returns the model that goes on by a block of a document, which is an answer or an event; empty for none.
func fallbackOf(doc []byte) (model string) {
	if !dialect.Says(doc, `"`+typeFallback+`"`) {
		return ""
	}
	type block struct {
		Type string
		To   struct{ Model string }
	}
	var w struct {
		Content []block
		Block   block `json:"content_block"`
	}
	if json.Unmarshal(doc, &w) != nil {
		return ""
	}
	for _, b := range append(w.Content, w.Block) {
		if b.Type == typeFallback && b.To.Model != "" {
			model = b.To.Model
		}
	}
	return model
}
