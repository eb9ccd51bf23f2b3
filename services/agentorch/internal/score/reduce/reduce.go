// Package reduce combines the scores of one sample's epochs into one score.
//
// Unscored epochs are left out; if all are unscored, the result is unscored too. Lists are reduced position by position
// and maps key by key, so all epochs must have the same shape. The rules are those of the reducers of the same names in
// Inspect. The package is pure.
package reduce

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
)

// Definition describes a reducer that task files may name.
type Definition struct {
	// Name is the reducer's name in task files. In names like `pass_at_k`, the final k represents a number from 1.
	Name string
	// Description is one sentence for lists of reducers.
	Description string

	// rule reduces the values of one scalar, list position or map key; nil for collect, which keeps them.
	rule rule
	// counted is set if the name ends in a count.
	counted bool
	// audited is set if the metadata keep the reduced values.
	audited bool
}

// Definitions returns all reducers in the order for people.
func Definitions() []Definition {
	return []Definition{
		{Name: "mean", Description: "The mean of the values as numbers.", rule: mean},
		{Name: "median", Description: "The median of the values as numbers.", rule: median},
		{Name: "mode", Description: "The most frequent value, the first one of several.", rule: mode},
		{Name: "majority", Description: "The value of more than half of all epochs; unscored when there is none.", rule: majority, audited: true},
		{Name: "max", Description: "The value that is greatest as a number.", rule: greatest},
		{Name: "collect", Description: "The list of all values."},
		{Name: "at_least_k", Description: "1 when at least k values count 1 or more, else 0.", rule: atLeast, counted: true},
		{Name: "pass_at_k", Description: "The probability that of k epochs drawn at random one succeeds.", rule: passAt, counted: true},
		{Name: "pass_k_k", Description: "The probability that k epochs drawn at random all succeed.", rule: passAll, counted: true},
	}
}

// Reducer reduces the epochs of a sample. Make one with New or Mean.
type Reducer struct {
	definition Definition
	name       string
	k          int
}

// Mean is the default reducer.
func Mean() Reducer { return Reducer{definition: Definition{rule: mean}, name: "mean"} }

var withCount = regexp.MustCompile(`^(.+)_(\d+)$`)

// New returns the reducer of a name: `mean`, `pass_at_3`. It fails with NOT_FOUND SCORER_NOT_FOUND if there is none,
// and with INVALID_REQUEST if the count is missing or not positive.
func New(name string) (Reducer, error) {
	base, count := name, ""
	if m := withCount.FindStringSubmatch(name); m != nil {
		base, count = m[1], m[2]
	}
	known := []string{}
	for _, d := range Definitions() {
		switch {
		case !d.counted && d.Name == name:
			return Reducer{definition: d, name: name}, nil
		case d.counted && d.Name == name+"_k":
			return Reducer{}, rpcerr.InvalidRequest("reducer %s needs a count, such as %s_2", name, name)
		case d.counted && d.Name == base+"_k" && count != "":
			k, err := strconv.Atoi(count)
			if err != nil || k < 1 {
				return Reducer{}, rpcerr.InvalidRequest("reducer %s: the count must be a number from 1", name)
			}
			return Reducer{definition: d, name: base + "_" + strconv.Itoa(k), k: k}, nil
		}
		known = append(known, d.Name)
	}
	slices.Sort(known)
	return Reducer{}, rpcerr.ReducerNotFound(name, known)
}

// Name returns the name with its count.
func (r Reducer) Name() string { return r.name }

// CheckEpochs fails with INVALID_REQUEST when the reducer needs more epochs than an evaluation has.
func (r Reducer) CheckEpochs(epochs int) error {
	if r.k > epochs {
		return rpcerr.InvalidRequest("reducer %s needs %d epochs, but the evaluation has %d: raise epochs or lower the count", r.name, r.k, epochs)
	}
	return nil
}

// Reduce combines the scores of all epochs. It keeps answer, explanation and reason if all epochs agree; the metadata
// is that of the first. It fails if the values have different shapes. Without scores the result is unscored.
func (r Reducer) Reduce(scores []score.Score) (score.Score, error) {
	if len(scores) == 0 {
		return score.Score{Value: score.Unscored()}, nil
	}
	values := make([]score.Value, len(scores))
	for i, s := range scores {
		values[i] = s.Value
	}
	value, err := r.reduce(values)
	if err != nil {
		return score.Score{}, fmt.Errorf("reducer %s: %w", r.name, err)
	}
	reduced := common(scores)
	reduced.Value = value
	if r.definition.audited {
		reduced.Metadata = withPanel(reduced.Metadata, scores)
	}
	return reduced, nil
}

// reduce reduces values by their shape, which is that of the first scored one.
func (r Reducer) reduce(values []score.Value) (score.Value, error) {
	scored := slices.DeleteFunc(slices.Clone(values), score.Value.IsUnscored)
	if len(scored) == 0 {
		return score.Unscored(), nil
	}
	if r.definition.rule == nil {
		return collect(scored)
	}
	if !sameShape(scored) {
		return score.Value{}, errShape
	}
	switch all := len(values); scored[0].Kind() {
	case score.KindMap:
		return r.reduceMaps(scored, all), nil
	case score.KindList:
		return r.reduceLists(scored, all), nil
	case score.KindNull, score.KindText, score.KindNumber, score.KindBool:
		return r.reduceScalars(scored, all), nil
	default:
		return score.Value{}, errShape
	}
}

var errShape = errors.New("the epochs of a sample have values of different shapes: give all the same list length or map keys, " +
	"and leave an epoch that cannot be scored unscored")

// sameShape reports whether all values are scalars, lists of one length or maps with the same keys.
func sameShape(values []score.Value) bool {
	first := values[0]
	return !slices.ContainsFunc(values[1:], func(v score.Value) bool {
		if first.IsScalar() {
			return !v.IsScalar()
		}
		return v.Kind() != first.Kind() || len(v.Items()) != len(first.Items()) || len(v.Entries()) != len(first.Entries()) ||
			slices.ContainsFunc(first.Entries(), func(entry score.Entry) bool {
				_, ok := v.Lookup(entry.Key)
				return !ok
			})
	})
}

func (r Reducer) reduceScalars(values []score.Value, all int) score.Value {
	scored := slices.DeleteFunc(slices.Clone(values), score.Value.IsUnscored)
	if len(scored) == 0 {
		return score.Unscored()
	}
	return r.definition.rule(scored, r.k, all)
}

func (r Reducer) reduceLists(lists []score.Value, all int) score.Value {
	items := make([]score.Value, len(lists[0].Items()))
	for i := range items {
		column := make([]score.Value, len(lists))
		for j, list := range lists {
			column[j] = list.Items()[i]
		}
		items[i] = r.reduceScalars(column, all)
	}
	return score.List(items...)
}

func (r Reducer) reduceMaps(maps []score.Value, all int) score.Value {
	entries := slices.Clone(maps[0].Entries())
	for i, entry := range entries {
		column := make([]score.Value, len(maps))
		for j, m := range maps {
			column[j], _ = m.Lookup(entry.Key)
		}
		entries[i].Value = r.reduceScalars(column, all)
	}
	return score.Map(entries...)
}

func collect(scored []score.Value) (score.Value, error) {
	for _, v := range scored {
		if !v.IsScalar() {
			return score.Value{}, errors.New("it collects scalar values only, and a list or map is given")
		}
	}
	return score.List(scored...), nil
}
