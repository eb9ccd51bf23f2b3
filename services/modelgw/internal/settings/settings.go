// Package settings holds the part of the configuration that is replaced while the gateway runs. Readers get the current
// settings at the beginning of a call and keep them until its end. Settings are never modified.
package settings

import (
	"sync/atomic"

	"github.com/evalfleet/evalfleet/services/modelgw/internal/generate"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/modeldata"
)

// Settings are one state of the configuration. The zero value has none of all.
type Settings struct {
	// Prices are those of the configuration, and built-in ones for other models.
	Prices generate.Prices
	// Priced are the models whose prices are those of the configuration.
	Priced map[string]bool
	// Data is what is known of models; nil is nothing.
	Data *modeldata.Data
	// Accounts are the names of the accounts that calls may use, such as `accounts/openai/default`.
	Accounts []string
	// Aliases are further names of models at the endpoints.
	Aliases map[string]string
	// Fallbacks are the models that may answer in place of one, in their order. EvaluationFallbacks allows them for
	// calls on behalf of evaluations.
	Fallbacks           map[string][]string
	EvaluationFallbacks bool
}

// Current holds the current settings. The zero value holds the zero settings. It is safe for concurrent use.
type Current struct{ now atomic.Pointer[Settings] }

// New returns a holder of settings.
func New(s Settings) *Current {
	c := &Current{}
	c.Set(s)
	return c
}

// Get returns the current settings.
func (c *Current) Get() *Settings {
	if s := c.now.Load(); s != nil {
		return s
	}
	return &Settings{}
}

// Set replaces the settings.
func (c *Current) Set(s Settings) { c.now.Store(&s) }

// Prices returns the current prices.
func (c *Current) Prices() generate.Prices { return c.Get().Prices }
