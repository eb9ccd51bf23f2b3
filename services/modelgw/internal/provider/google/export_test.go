package google

import "github.com/evalfleet/evalfleet/services/modelgw/internal/provider"

// KindAsking is Kind that asks at once whether a file can be used.
func KindAsking(c Config) (provider.Kind, func() error) { return kindAsking(c, 0) }
