// Package modeldata is what is known of models without asking anyone: limits, dates, the default effort of reasoning,
// and prices. The facts are in models.yaml, with their sources and dates; [Default] reads them. Everything is constant
// and safe for concurrent use.
package modeldata

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

//go:embed models.yaml
var embedded []byte

// Default returns the data that is part of the program.
var Default = sync.OnceValue(func() *Data {
	d, err := Parse(embedded)
	if err != nil {
		panic(err) // A test reads the same bytes.
	}
	return d
})

// Source is where figures are from.
type Source struct {
	Source string `yaml:"source"`
	// AsOf is the day on which they were read, `2026-01-31`.
	AsOf string `yaml:"as_of"`
}

// String is the source for people.
func (s Source) String() string { return s.Source + ", as of " + s.AsOf }

// Model is what is known of a model. What is not known is zero, or nil.
type Model struct {
	// Name is the vendor's name.
	Name    string `yaml:"name"`
	Display string `yaml:"display"`
	// Released and Cutoff are days, `2026-01-31`.
	Released string `yaml:"released"`
	Cutoff   string `yaml:"cutoff"`
	// Retired is the day from which the vendor's own API refuses the model, `2026-01-31`; empty if none is known.
	Retired string `yaml:"retired"`
	// Context, Input and Output are tokens. Input is set where it is less than Context.
	Context   int64 `yaml:"context"`
	Input     int64 `yaml:"input"`
	Output    int64 `yaml:"output"`
	Reasoning *bool `yaml:"reasoning"`
	// Effort is the effort of reasoning of a call that sets none; `adaptive` is the model's own decision, `fixed` means
	// that there are no efforts.
	Effort string  `yaml:"effort"`
	Prices *Prices `yaml:"prices"`
	// PricedAs are full names, `provider/name`, that have the prices beside those at the vendor.
	PricedAs []string `yaml:"priced_as"`
	// Also are further names of the model.
	Also []string `yaml:"also"`

	// Key is the canonical name, such as `openai/gpt-4o`.
	Key string `yaml:"-"`
	// Organization is who makes it, for people.
	Organization string `yaml:"-"`
}

// Prices are dollars per million tokens. A price of a cache that is nil is that of input.
type Prices struct {
	Input           float64  `yaml:"input"`
	Output          float64  `yaml:"output"`
	InputCacheWrite *float64 `yaml:"input_cache_write"`
	InputCacheRead  *float64 `yaml:"input_cache_read"`
	// Long are the prices of calls with more than Above tokens of input; nil if there are none.
	Long *Prices `yaml:"long"`
	// Above is set in Long.
	Above int64 `yaml:"above"`
	// Modes are the prices of further modes of the vendor, by its own words. They have none themselves.
	Modes map[string]*Prices `yaml:"modes"`
}

// Proto returns the prices as messages have them.
func (p *Prices) Proto() *modelv1.Prices {
	if p == nil {
		return nil
	}
	sent := &modelv1.Prices{Input: p.Input, Output: p.Output, InputCacheWrite: p.Input, InputCacheRead: p.Input, LongInput: p.Long.Proto()}
	if p.InputCacheWrite != nil {
		sent.InputCacheWrite = *p.InputCacheWrite
	}
	if p.InputCacheRead != nil {
		sent.InputCacheRead = *p.InputCacheRead
	}
	if p.Long != nil {
		sent.LongInputTokens = p.Long.Above
	}
	for mode, prices := range p.Modes {
		if sent.Modes == nil {
			sent.Modes = map[string]*modelv1.Prices{}
		}
		sent.Modes[mode] = prices.Proto()
	}
	return sent
}

// Organization are the models of a vendor.
type Organization struct {
	// Key precedes the slash in canonical names.
	Key     string `yaml:"key"`
	Display string `yaml:"display"`
	// Host means that it serves models under names of its own, which mean nothing elsewhere.
	Host bool `yaml:"host"`
	// PricedAt is the provider whose prices are in the data: the vendor's own API. Empty: none.
	PricedAt string   `yaml:"priced_at"`
	Models   []*Model `yaml:"models"`
}

// Data are the known models.
type Data struct {
	// Facts, Charges and Retirements are the sources of the facts, of the prices and of the days of retirement.
	Facts       Source `yaml:"facts"`
	Charges     Source `yaml:"prices"`
	Retirements Source `yaml:"retirements"`

	Organizations []Organization `yaml:"organizations"`

	// byName has each canonical name in its normal form, aliases included.
	byName map[string]*Model
	// makers has the keys of the organizations that make a model of a name, in its normal form.
	makers map[string][]string
	keys   map[string]bool
	// own has what an operator sets, by full name.
	own map[string]Facts
}

// Parse reads data. It fails for a name that occurs twice.
func Parse(document []byte) (*Data, error) {
	d := &Data{byName: map[string]*Model{}, makers: map[string][]string{}, keys: map[string]bool{}}
	decoder := yaml.NewDecoder(bytes.NewReader(document))
	decoder.KnownFields(true)
	if err := decoder.Decode(d); err != nil {
		return nil, err
	}
	if err := decoder.Decode(&struct{}{}); !errors.Is(err, io.EOF) {
		return nil, errors.New("it is one document, and more follows")
	}
	for _, o := range d.Organizations {
		d.keys[o.Key] = true
		for _, m := range o.Models {
			m.Key, m.Organization = o.Key+"/"+m.Name, o.Display
			for _, name := range append([]string{m.Name}, m.Also...) {
				key := normal(o.Key + "/" + name)
				if taken := d.byName[key]; taken != nil {
					return nil, fmt.Errorf("%s: the name is that of %s too", key, taken.Key)
				}
				d.byName[key] = m
				if !o.Host {
					d.makers[normal(name)] = append(d.makers[normal(name)], o.Key)
				}
			}
		}
	}
	return d, nil
}

// Current returns the models of a provider, by their names there, that are not known to be retired at a time. Only a
// vendor's own API retires a model: a name that is not the vendor's letter for letter stays.
func (d *Data) Current(provider string, names []string, at time.Time) []string {
	if d == nil {
		return names
	}
	today := at.UTC().Format(time.DateOnly)
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		m := d.byName[normal(provider+"/"+name)]
		return m != nil && m.Retired != "" && m.Retired <= today
	})
}

// Prices returns the prices by full name, `provider/name`: of the vendors' own APIs, and of other hosts where the data
// says so. A name that the data does not contain letter for letter has no price, since a price that is guessed bounds
// nothing.
func (d *Data) Prices() map[string]*modelv1.Prices {
	all := map[string]*modelv1.Prices{}
	for _, o := range d.Organizations {
		for _, m := range o.Models {
			prices := m.Prices.Proto()
			if prices == nil {
				continue
			}
			for _, name := range m.PricedAs {
				all[name] = prices
			}
			if o.PricedAt == "" {
				continue
			}
			for _, name := range append([]string{m.Name}, m.Also...) {
				all[o.PricedAt+"/"+name] = prices
			}
		}
	}
	return all
}

// normal is the form in which names are compared.
func normal(name string) string { return strings.ReplaceAll(strings.ToLower(name), "_", "-") }
