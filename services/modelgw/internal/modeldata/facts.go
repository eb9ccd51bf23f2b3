package modeldata

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Configuration is the source of what an operator sets.
const Configuration = "configuration"

// Facts are facts of a model that an operator sets. What is left out is as the built-in data has it.
type Facts struct {
	// Display is its name for people.
	Display string `yaml:"display"`
	// Organization is who makes it, for people.
	Organization string `yaml:"organization"`
	// Family is the canonical name of the model that it is a kind of, such as `meta-llama/Llama-3.3-70B-Instruct`: the
	// built-in data of that model holds for it.
	Family string `yaml:"family"`
	// Context is its context window in tokens.
	Context int64 `yaml:"context"`
	// Input bounds the tokens of input, if they are fewer than those of the context window.
	Input int64 `yaml:"input"`
	// Output bounds the tokens of output.
	Output int64 `yaml:"output"`
	// Released is the day of its release, such as `2026-01-31`.
	Released string `yaml:"released"`
	// Cutoff is the day up to which it was trained.
	Cutoff string `yaml:"cutoff"`
	// Reasoning is whether it reasons.
	Reasoning *bool `yaml:"reasoning"`
	// Effort is the effort of reasoning of a call that sets none.
	Effort string `yaml:"effort"`
}

// maxTokens bounds numbers of tokens.
const maxTokens = 1_000_000_000

// Check returns the faults of facts. A family is to be known.
func (f Facts) Check() error {
	var faults []error
	for _, of := range []struct {
		name   string
		tokens int64
	}{{"context", f.Context}, {"input", f.Input}, {"output", f.Output}} {
		if of.tokens < 0 || of.tokens > maxTokens {
			faults = append(faults, fmt.Errorf("%s: must be a number of tokens", of.name))
		}
	}
	for _, of := range []struct{ name, day string }{{"released", f.Released}, {"cutoff", f.Cutoff}} {
		if _, err := time.Parse(time.DateOnly, of.day); err != nil && of.day != "" {
			faults = append(faults, fmt.Errorf("%s: %q is no day such as 2026-01-31", of.name, of.day))
		}
	}
	if _, known := Default().Find(f.Family); f.Family != "" && !known {
		faults = append(faults, fmt.Errorf("family: %q is no model that is known; evalfleet models shows names", f.Family))
	}
	return errors.Join(faults...)
}

// With returns the data with facts of models, by their full names, letter for letter.
func (d *Data) With(own map[string]Facts) *Data {
	with := *d
	with.own = maps.Clone(own)
	return &with
}

// Describe returns what is known of a model by its full name: what an operator has set, and for the rest the built-in
// data. Configured are the keys that are set.
func (d *Data) Describe(model string) (m Model, configured map[string]bool, known bool) {
	if d == nil {
		return Model{}, nil, false
	}
	own, isOwn := d.own[model]
	builtIn, isBuiltIn := d.Find(cmp.Or(own.Family, model))
	if isBuiltIn {
		m = *builtIn
	}
	if !isOwn {
		return m, nil, isBuiltIn
	}
	if !isBuiltIn {
		m.Key = model
	}
	configured = map[string]bool{}
	put(configured, "display", &m.Display, own.Display)
	put(configured, "organization", &m.Organization, own.Organization)
	put(configured, "context", &m.Context, own.Context)
	put(configured, "input", &m.Input, own.Input)
	put(configured, "output", &m.Output, own.Output)
	put(configured, "released", &m.Released, own.Released)
	put(configured, "cutoff", &m.Cutoff, own.Cutoff)
	put(configured, "reasoning", &m.Reasoning, own.Reasoning)
	put(configured, "effort", &m.Effort, own.Effort)
	if own.Family != "" {
		configured["family"] = true
	}
	return m, configured, true
}

// InputWindow is how many tokens of input a model takes as an operator has set it, for itself or by its family; 0 if
// none has.
func (d *Data) InputWindow(model string) int64 {
	if d == nil || d.own[model].Context == 0 && d.own[model].Input == 0 && d.own[model].Family == "" {
		return 0
	}
	m, _, _ := d.Describe(model)
	if m.Input > 0 && (m.Context == 0 || m.Input < m.Context) {
		return m.Input
	}
	return m.Context
}

// put sets a fact that is given.
func put[T comparable](configured map[string]bool, key string, fact *T, given T) {
	var none T
	if given != none {
		*fact, configured[key] = given, true
	}
}

// SourceOf returns the sources of what is known of a model, for people.
func (d *Data) SourceOf(model string) string {
	_, configured, known := d.Describe(model)
	switch {
	case !known:
		return ""
	case len(configured) == 0:
		return d.Facts.String()
	}
	text := Configuration + " (" + strings.Join(slices.Sorted(maps.Keys(configured)), ", ") + ")"
	if _, builtIn := d.Find(cmp.Or(d.own[model].Family, model)); builtIn {
		text += "; the rest: " + d.Facts.String()
	}
	return text
}
