package anthropic

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/dialect"
)

// usualModes are the speeds, regions and tiers whose prices are the model's, or a share of them in a batch.
var usualModes = []string{"", "standard", "global", "not_available", "batch"}

// billing is what usage says of its price: https://platform.claude.com/docs/en/about-claude/pricing.
func (u *usage) billing() (b dialect.Billing) {
	if u == nil {
		return b
	}
	if u.Creation != nil {
		b.LongCacheWrite = u.Creation.Long
	}
	modes := slices.DeleteFunc([]string{u.Speed, u.Geo, u.Tier}, func(mode string) bool { return slices.Contains(usualModes, mode) })
	b.Mode = strings.Join(modes, " ")
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
