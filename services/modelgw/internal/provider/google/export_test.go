package google

import "github.com/evalfleet/evalfleet/services/modelgw/internal/provider"

// KindAsking is Kind that asks at once whether a file can be used.
func KindAsking(c Config) (provider.Kind, func() error) { return kindWith(c, 0, maxInlineBytes) }

// KindFiling is Kind whose batches are all files.
func KindFiling(c Config) (provider.Kind, func() error) { return kindWith(c, 0, 0) }
