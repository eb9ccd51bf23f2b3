// Package modelgwtest has vendors' servers for tests of programs that contain a model gateway. Its own tests have them
// in internal/provider/providertest, which other services cannot import.
package modelgwtest

import (
	"testing"

	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/providertest"
)

// Sealing is a vendor that seals what its model thinks, and refuses a request with a seal that it did not make.
type Sealing = providertest.Sealing

// SealingAnthropic starts such a vendor that speaks Anthropic's Messages API.
func SealingAnthropic(t testing.TB) *Sealing {
	t.Helper()
	return providertest.SealingAnthropic(t)
}

// SealingOpenAI starts such a vendor that speaks OpenAI's Responses API.
func SealingOpenAI(t testing.TB) *Sealing {
	t.Helper()
	return providertest.SealingOpenAI(t)
}

// SealingGoogle starts such a vendor that speaks Google's Gemini API.
func SealingGoogle(t testing.TB) *Sealing {
	t.Helper()
	return providertest.SealingGoogle(t)
}
