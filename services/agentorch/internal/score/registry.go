package score

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/param"
)

// Definition describes a scorer that task files may name.
type Definition struct {
	// Name is the scorer's name in task files.
	Name string
	// Description is one sentence for lists of scorers.
	Description string
	// Params are the parameters that New takes.
	Params param.List
	// Metrics name the metrics for tasks that name none.
	Metrics []string
	// NeedsTarget is set if the scorer compares with the sample's target: without a target its score would mean
	// nothing.
	NeedsTarget bool
	// NamesTarget reports whether parameters refer to the sample's target, for a scorer that compares with the target
	// only in that case; nil never does.
	NamesTarget func(params json.RawMessage) bool
	// Warn returns a warning about unsafe parameters that New accepts; empty if there is none. Nil never warns.
	Warn func(params json.RawMessage) string
	// New returns a scorer from the JSON object of its parameters, which may be nil. Its errors name the parameter.
	New func(params json.RawMessage) (Scorer, error)
}

// Compares reports whether the scorer with these parameters compares with the sample's target.
func (d Definition) Compares(params json.RawMessage) bool {
	return d.NeedsTarget || d.NamesTarget != nil && d.NamesTarget(params)
}

// Lacks reports whether a scorer that compares with targets cannot judge by these targets. No scorer can if there are
// none. A scorer that needs a target cannot if one is blank, since every answer or none would match it; a program that
// only names the target may expect an empty one.
func (d Definition) Lacks(targets []string) bool {
	if !d.NeedsTarget {
		return len(targets) == 0
	}
	blank := func(target string) bool { return strings.TrimSpace(target) == "" }
	return len(targets) == 0 || slices.ContainsFunc(targets, blank)
}

// Registry holds scorers by name. Fill it while the program starts; after that it may be read concurrently.
type Registry struct {
	definitions map[string]Definition
}

// NewRegistry returns a registry of the given scorers. It panics if two have one name, which is a programming error.
func NewRegistry(definitions ...Definition) *Registry {
	r := &Registry{definitions: make(map[string]Definition, len(definitions))}
	for _, d := range definitions {
		if _, taken := r.definitions[d.Name]; taken {
			panic("score: two scorers are named " + d.Name)
		}
		r.definitions[d.Name] = d
	}
	return r
}

// Definitions returns all scorers, sorted by name.
func (r *Registry) Definitions() []Definition {
	return slices.SortedFunc(maps.Values(r.definitions), func(a, b Definition) int { return strings.Compare(a.Name, b.Name) })
}

// Definition returns the scorer of a name. It fails with NOT_FOUND SCORER_NOT_FOUND, and lists the known names.
func (r *Registry) Definition(name string) (Definition, error) {
	d, ok := r.definitions[name]
	if !ok {
		return Definition{}, rpcerr.ScorerNotFound(name, slices.Sorted(maps.Keys(r.definitions)))
	}
	return d, nil
}

// New returns a configured scorer. It fails with NOT_FOUND SCORER_NOT_FOUND, or with INVALID_REQUEST, which names the
// scorer and the parameter at fault.
func (r *Registry) New(name string, params json.RawMessage) (Scorer, error) {
	d, err := r.Definition(name)
	if err != nil {
		return nil, err
	}
	s, err := d.New(params)
	if err != nil {
		return nil, fmt.Errorf("scorer %s: %w", name, err)
	}
	return s, nil
}
