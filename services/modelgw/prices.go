package modelgw

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/config"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/regularfile"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/generate"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/modeldata"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// Price is what a model costs.
type Price struct {
	// Rates are those of plain calls.
	Rates `yaml:",inline"`
	// Modes are the prices of further modes of the provider, by its own words, such as `flex`, `priority` or `fast`. A
	// mode that is left out has no known price.
	Modes map[string]Rates `yaml:"modes"`
}

// Rates are dollars per million tokens.
type Rates struct {
	// Input is the price of input at the full rate. Required.
	Input *float64 `yaml:"input"`
	// Output is the price of output, reasoning included. Required.
	Output *float64 `yaml:"output"`
	// InputCacheWrite is the price of input that is written to the provider's cache; left out, that of input.
	InputCacheWrite *float64 `yaml:"input_cache_write"`
	// InputCacheRead is the price of input that is read from the provider's cache; left out, that of input.
	InputCacheRead *float64 `yaml:"input_cache_read"`
}

// priceFaults are the errors in prices, which are below a key.
func priceFaults(key string, prices map[string]Price) (faults []error) {
	for _, model := range slices.Sorted(maps.Keys(prices)) {
		faults = append(faults, prices[model].faults(key+model)...)
	}
	return faults
}

// faults are the errors in the price of a model, whose key is name.
func (p Price) faults(name string) []error {
	faults := p.Rates.faults(name)
	for _, mode := range slices.Sorted(maps.Keys(p.Modes)) {
		faults = append(faults, p.Modes[mode].faults(name+".modes."+mode)...)
	}
	return faults
}

func (p Rates) faults(name string) (faults []error) {
	for _, part := range []struct {
		name     string
		dollars  *float64
		required bool
	}{
		{"input", p.Input, true},
		{"output", p.Output, true},
		{"input_cache_write", p.InputCacheWrite, false},
		{"input_cache_read", p.InputCacheRead, false},
	} {
		switch {
		case part.dollars == nil && part.required:
			faults = append(faults, fmt.Errorf("%s.%s: is missing; give 0 for what costs nothing", name, part.name))
		case part.dollars != nil && !(*part.dollars >= 0 && *part.dollars <= math.MaxFloat64):
			faults = append(faults, fmt.Errorf("%s.%s: must be a number that is not negative", name, part.name))
		}
	}
	return faults
}

// ReadPrices reads a file of prices, YAML or JSON: an object of models, `provider/name`, each with the members of
// [Price]. Its errors name the file.
func ReadPrices(ctx context.Context, path string) (map[string]Price, error) {
	document, err := regularfile.Read(ctx, path, bound.ConfigFileBytes)
	if err != nil {
		return nil, err
	}
	var prices map[string]Price
	if err := config.Decode(&prices, document); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	faults := priceFaults("", prices)
	for _, model := range slices.Sorted(maps.Keys(prices)) {
		if _, _, err := provider.SplitName(model); err != nil {
			faults = append(faults, err)
		}
	}
	if err := errors.Join(faults...); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return prices, nil
}

// pricesOf are the known prices, those in the configuration in place of built-in ones.
func pricesOf(known *modeldata.Data, configured map[string]Price) generate.Prices {
	all := generate.Prices(known.Prices())
	for model, p := range configured {
		all[model] = p.proto()
		for mode, rates := range p.Modes {
			if all[model].Modes == nil {
				all[model].Modes = map[string]*modelv1.Prices{}
			}
			all[model].Modes[mode] = rates.proto()
		}
	}
	return all
}

func (p Rates) proto() *modelv1.Prices {
	input := orElse(p.Input, 0)
	return &modelv1.Prices{
		Input: input, Output: orElse(p.Output, 0), InputCacheWrite: orElse(p.InputCacheWrite, input), InputCacheRead: orElse(p.InputCacheRead, input),
	}
}

func orElse(dollars *float64, absent float64) float64 {
	if dollars == nil {
		return absent
	}
	return *dollars
}
