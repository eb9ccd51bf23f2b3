// Package metric computes numbers over the scores of all samples: accuracy, standard errors, intervals, frequencies.
//
// A metric is a pure function from scored samples to a value: a number, or a map or list of numbers that becomes
// several entries of the results. Unscored samples are left out before a metric sees them. Metrics that resample draw
// from a generator with a fixed seed, so that the same scores always give the same numbers.
package metric

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/suggest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/param"
)

// Sample is the score of one sample, or of one of its epochs, as a metric sees it.
type Sample struct {
	// ID is the sample's id as text, for messages.
	ID string
	// Value is the scored value.
	Value score.Value
	// Metadata is the sample's metadata, by which metrics group; nil if there is none.
	Metadata *orderedjson.Object
}

// Func computes a metric. It must not change samples. Without samples it returns the metric's value for no samples, or
// an error. If its time is more than proportional to the samples, it stops when ctx ends.
type Func func(ctx context.Context, samples []Sample) (score.Value, error)

// Check returns an error if a sample lacks metadata without which the metric fails. It is called before there are
// scores: the sample has no value.
type Check func(Sample) error

// View defines which scores a metric needs.
type View uint8

// The views. Reduced scores are one a sample, unreduced ones one an epoch.
const (
	Auto      View = iota // reduced ones, or unreduced if an evaluation reduces none
	Reduced               // reduced ones only
	Unreduced             // unreduced ones always
)

// Metric is a configured metric.
type Metric struct {
	Name    string
	Params  json.RawMessage // as given; nil if there are none
	View    View
	Compute Func
	// Check is nil if the metric needs no metadata.
	Check Check
}

// Spec names a metric and its parameters. In JSON it is the name alone, or an object with `name` and `params`.
type Spec struct {
	Name   string          `json:"name"`
	Params json.RawMessage `json:"params,omitempty"`
}

// UnmarshalJSON reads a name or an object.
func (s *Spec) UnmarshalJSON(raw []byte) error {
	var name string
	if json.Unmarshal(raw, &name) == nil {
		*s = Spec{Name: name}
		return nil
	}
	type plain Spec
	dec := json.NewDecoder(strings.NewReader(string(raw)))
	dec.DisallowUnknownFields()
	var p plain
	if err := dec.Decode(&p); err != nil {
		return fmt.Errorf("want a metric's name or an object with name and params: %w", err)
	}
	*s = Spec(p)
	return nil
}

// Definition describes a metric that task files may name.
type Definition struct {
	// Name is the metric's name in task files.
	Name string
	// Description is one sentence for lists of metrics.
	Description string
	// Params are the parameters that New takes.
	Params param.List
	// View defines which scores the metric needs.
	View View
	// New returns the function from the JSON object of its parameters, which may be nil. Its errors name the parameter.
	New func(params json.RawMessage) (Func, error)
	// Check returns the check of each sample from parameters that New has accepted. Nil, here and as a check, is none.
	Check func(params json.RawMessage) (Check, error)
}

// Registry holds metrics by name. Make it with NewRegistry; it may be read concurrently.
type Registry struct {
	definitions map[string]Definition
}

// NewRegistry returns a registry of all metrics of this package.
func NewRegistry() *Registry {
	r := &Registry{definitions: map[string]Definition{}}
	for _, d := range slices.Concat(meanDefinitions(), spreadDefinitions(), intervalDefinitions(), agreementDefinitions(), groupDefinitions(r)) {
		r.definitions[d.Name] = d
	}
	// The name under which scorers of categories know frequency.
	categorical := r.definitions["frequency"]
	categorical.Name = "categorical"
	r.definitions["categorical"] = categorical
	return r
}

// Definitions returns all metrics, sorted by name.
func (r *Registry) Definitions() []Definition {
	return slices.SortedFunc(maps.Values(r.definitions), func(a, b Definition) int { return strings.Compare(a.Name, b.Name) })
}

// New returns a configured metric. It fails with NOT_FOUND SCORER_NOT_FOUND, or with INVALID_REQUEST, which names the
// metric and the parameter at fault.
func (r *Registry) New(spec Spec) (Metric, error) {
	m, err := r.unchecked(spec)
	if err != nil {
		return Metric{}, err
	}
	m.Check, err = r.check(spec)
	return m, err
}

// unchecked is New for a metric within another, whose Check is not asked: it has none.
func (r *Registry) unchecked(spec Spec) (Metric, error) {
	d, ok := r.definitions[spec.Name]
	if !ok {
		return Metric{}, rpcerr.MetricNotFound(spec.Name, slices.Sorted(maps.Keys(r.definitions)))
	}
	compute, err := d.New(spec.Params)
	if err != nil {
		return Metric{}, fmt.Errorf("metric %s: %w", spec.Name, err)
	}
	name := d.Name
	if name == "categorical" {
		name = "frequency"
	}
	return Metric{Name: name, Params: spec.Params, View: d.View, Compute: compute}, nil
}

// check returns the check of a metric that can be made; nil if it has none.
func (r *Registry) check(spec Spec) (Check, error) {
	d := r.definitions[spec.Name]
	if d.Check == nil {
		return nil, nil
	}
	check, err := d.Check(spec.Params)
	if err != nil {
		return nil, fmt.Errorf("metric %s: %w", spec.Name, err)
	}
	return check, nil
}

// metadata returns a value of the sample's metadata, and whether there is one.
func (s Sample) metadata(key string) (any, bool) {
	if s.Metadata == nil {
		return nil, false
	}
	return s.Metadata.Get(key)
}

// floats returns the values as numbers; other values count 0.
func floats(samples []Sample) []float64 {
	numbers := make([]float64, len(samples))
	for i, s := range samples {
		numbers[i], _ = s.Value.Float()
	}
	return numbers
}

// ofFloats returns a metric without parameters from a function over numbers.
func ofFloats(name, description string, compute func([]float64) float64) Definition {
	return Definition{
		Name:        name,
		Description: description,
		New: func(given json.RawMessage) (Func, error) {
			var none param.List
			if err := none.Decode(given, nil); err != nil {
				return nil, err
			}
			return func(_ context.Context, samples []Sample) (score.Value, error) {
				return score.Number(compute(floats(samples))), nil
			}, nil
		},
	}
}

// namedKeys bounds the keys that a message names.
const namedKeys = 20

// known explains which metadata the sample has in place of what is missing under a key.
func (s Sample) known(key string) string {
	var keys []string
	if s.Metadata != nil {
		for name := range s.Metadata.All() {
			keys = append(keys, name)
		}
	}
	if len(keys) == 0 {
		return fmt.Sprintf("sample %s has none: name the columns that hold it, `dataset: {fields: {metadata: [%s]}}`", s.ID, key)
	}
	more := ""
	if len(keys) > namedKeys {
		more = fmt.Sprintf(" and %d more", len(keys)-namedKeys)
	}
	return fmt.Sprintf("%ssample %s has %s%s", suggest.Question(key, keys), s.ID, strings.Join(keys[:min(namedKeys, len(keys))], ", "), more)
}

// unmarshal reads parameters that were checked before; none leave the value as it is.
func unmarshal(params json.RawMessage, into any) error {
	if len(params) == 0 {
		return nil
	}
	return json.Unmarshal(params, into)
}
