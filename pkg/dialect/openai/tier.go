package openai

import "slices"

// usualTiers are the tiers with a model's plain prices; `auto` leaves the tier to the server. A batch has a
// share of them. `on_demand` is Groq's word.
var usualTiers = []string{"auto", "default", "standard", "batch", "on_demand"}

// Mode returns the mode of a server with prices of its own that a `service_tier` means; empty for the usual one.
func Mode(tier string) string {
	if slices.Contains(usualTiers, tier) {
		return ""
	}
	return tier
}
