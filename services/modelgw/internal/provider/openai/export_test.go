package openai

import "github.com/evalfleet/evalfleet/services/modelgw/internal/provider"

// KindAt is Kind with the vendor at another address, which a test can serve.
func KindAt(c Config, vendor string) (provider.Kind, func() error) { return kindAt(c, vendor, false) }

// KindByName is Kind with the names of models deciding about their API at any address, as in recorded cases.
func KindByName(c Config) (provider.Kind, func() error) { return kindAt(c, vendor, true) }

// KindPolling is Kind that asks for answers in the background at once.
func KindPolling(c Config) (provider.Kind, func() error) { return kindPolling(c, vendor, false, 0) }
