package metric

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/evalfleet/evalfleet/services/agentorch/internal/pycompat/pytext"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/param"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/task/template"
)

// groupDefinitions are the metrics that sort scores and leave the computing to another metric of the registry.
func groupDefinitions(r *Registry) []Definition {
	return []Definition{groupedDefinition(r), aggregateDefinition(r), frequencyDefinition()}
}

// grouped holds the parameters of the metric of that name.
type grouped struct {
	Metric       Spec            `json:"metric"`
	GroupKey     string          `json:"group_key"`
	All          json.RawMessage `json:"all"`
	AllLabel     string          `json:"all_label"`
	NameTemplate string          `json:"name_template"`

	inner Metric
}

func groupedDefinition(r *Registry) Definition {
	params := param.List{
		{Name: "metric", Required: true, Description: "The metric to compute for each group: its name, or an object with name and params."},
		{Name: "group_key", Type: param.String, Required: true, Description: "Key of the samples' metadata that names their group."},
		{
			Name: "all", Default: json.RawMessage(`"samples"`), Enum: []string{`"samples"`, `"groups"`, "false"},
			Description: "The value over everything: the metric over all samples, the mean of the groups' values, or none.",
		},
		{Name: "all_label", Type: param.String, Default: json.RawMessage(`"all"`), Description: "Name of the value over everything."},
		{
			Name: "name_template", Type: param.String, Default: json.RawMessage(`"{group_name}"`),
			Description: "Name of a group's value, where {group_name} stands for the group.",
		},
	}
	return Definition{
		Name:        "grouped",
		Description: "Computes another metric for each group of samples.",
		Params:      params,
		New: func(given json.RawMessage) (Func, error) {
			g := grouped{All: json.RawMessage(`"samples"`), AllLabel: "all", NameTemplate: "{group_name}"}
			if err := params.Decode(given, &g); err != nil {
				return nil, err
			}
			inner, err := r.unchecked(g.Metric)
			if err != nil {
				return nil, err
			}
			g.inner = inner
			return g.compute, nil
		},
		Check: func(given json.RawMessage) (Check, error) {
			var g grouped
			if err := unmarshal(given, &g); err != nil {
				return nil, err
			}
			inner, err := r.check(g.Metric)
			return func(sample Sample) error {
				if _, err := g.group(sample); err != nil || inner == nil {
					return err
				}
				return inner(sample)
			}, err
		},
	}
}

func (g grouped) compute(ctx context.Context, samples []Sample) (score.Value, error) {
	withAll := string(g.All) != "false"
	if len(samples) == 0 {
		if withAll {
			return score.Map(score.Entry{Key: g.AllLabel, Value: score.Unscored()}), nil
		}
		return score.Map(), nil
	}
	names, groups, err := g.split(samples)
	if err != nil {
		return score.Value{}, err
	}
	var entries []score.Entry
	room, labels := template.NewRoom(), map[string]bool{}
	for _, name := range names {
		value, err := g.inner.Compute(ctx, groups[name])
		if err != nil {
			return score.Value{}, err
		}
		label, err := room.Prompt(g.NameTemplate, template.Map(map[string]string{"group_name": name}))
		if err != nil {
			return score.Value{}, fmt.Errorf("metric grouped: the names of the groups: %w", err)
		}
		if withAll && label == g.AllLabel {
			return score.Value{}, fmt.Errorf("metric grouped: group %q has the name of the value over everything: choose another all_label, or all: false", label)
		}
		if labels[label] {
			return score.Value{}, fmt.Errorf("metric grouped: two groups are named %q: put {group_name} into name_template", label)
		}
		labels[label] = true
		entries = append(entries, score.Entry{Key: label, Value: value})
	}
	if !withAll {
		return score.Map(entries...), nil
	}
	all, err := g.overall(ctx, samples, entries)
	return score.Map(append(entries, score.Entry{Key: g.AllLabel, Value: all})...), err
}

// split sorts samples into groups by the text of their metadata; names are in the order of appearance.
func (g grouped) split(samples []Sample) (names []string, groups map[string][]Sample, err error) {
	groups = map[string][]Sample{}
	for _, s := range samples {
		name, err := g.group(s)
		if err != nil {
			return nil, nil, err
		}
		if _, known := groups[name]; !known {
			names = append(names, name)
		}
		groups[name] = append(groups[name], s)
	}
	return names, groups, nil
}

// group returns the name of a sample's group.
func (g grouped) group(sample Sample) (string, error) {
	value, ok := sample.metadata(g.GroupKey)
	if !ok {
		return "", fmt.Errorf("metric grouped: sample %s has no metadata %q: every sample needs it to be grouped; %s", sample.ID, g.GroupKey, sample.known(g.GroupKey))
	}
	return pytext.Str(value), nil
}

func (g grouped) overall(ctx context.Context, samples []Sample, groups []score.Entry) (score.Value, error) {
	if string(g.All) == `"samples"` {
		return g.inner.Compute(ctx, samples)
	}
	values := make([]float64, len(groups))
	for i, group := range groups {
		values[i], _ = group.Value.Float()
	}
	return score.Number(mean(values)), nil
}

// aggregate holds the parameters of the metric of that name.
type aggregate struct {
	Key       string `json:"key"`
	Agg       Spec   `json:"agg"`
	OnMissing string `json:"on_missing"`

	inner Metric
}

func aggregateDefinition(r *Registry) Definition {
	params := param.List{
		{Name: "key", Type: param.String, Required: true, Description: "Key of the map values to compute over."},
		{Name: "agg", Required: true, Description: "The metric to compute: its name, or an object with name and params."},
		{
			Name: "on_missing", Type: param.String, Default: json.RawMessage(`"error"`), Enum: []string{`"error"`, `"skip"`, `"zero"`},
			Description: "What to do with a value that lacks the key: fail, leave it out, or count 0.",
		},
	}
	return Definition{
		Name:        "aggregate",
		Description: "Computes another metric over one key of map values.",
		Params:      params,
		New: func(given json.RawMessage) (Func, error) {
			a := aggregate{OnMissing: "error"}
			if err := params.Decode(given, &a); err != nil {
				return nil, err
			}
			inner, err := r.unchecked(a.Agg)
			if err != nil {
				return nil, err
			}
			a.inner = inner
			return a.compute, nil
		},
		Check: func(given json.RawMessage) (Check, error) {
			var a aggregate
			if err := unmarshal(given, &a); err != nil || a.OnMissing == "skip" {
				return nil, err // Samples without the key are left out, and need no metadata then.
			}
			return r.check(a.Agg)
		},
	}
}

func (a aggregate) compute(ctx context.Context, samples []Sample) (score.Value, error) {
	var picked []Sample
	for _, s := range samples {
		if s.Value.IsUnscored() {
			continue
		}
		if s.Value.Kind() != score.KindMap {
			return score.Value{}, fmt.Errorf("metric aggregate: sample %s has a value that is no map, so it has no key %q", s.ID, a.Key)
		}
		value, ok := s.Value.Lookup(a.Key)
		switch {
		case ok && value.IsUnscored():
			continue
		case ok && value.Kind() != score.KindNull:
		case a.OnMissing == "skip":
			continue
		case a.OnMissing == "zero":
			value = score.Number(0)
		default:
			return score.Value{}, fmt.Errorf("metric aggregate: sample %s has no value for key %q: allow that with on_missing skip or zero", s.ID, a.Key)
		}
		s.Value = value
		picked = append(picked, s)
	}
	if len(picked) == 0 {
		return score.Unscored(), nil
	}
	return a.inner.Compute(ctx, picked)
}

// frequency holds the parameters of the metric of that name.
type frequency struct {
	Categories []string `json:"categories"`
	Normalize  bool     `json:"normalize"`
}

func frequencyDefinition() Definition {
	params := param.List{
		{Name: "categories", Type: param.Strings, Description: "Categories to report also when they do not occur, and first."},
		{Name: "normalize", Type: param.Boolean, Default: json.RawMessage("true"), Description: "Whether to give shares rather than counts."},
	}
	return Definition{
		Name:        "frequency",
		Description: "How often each value occurs, over all epochs.",
		Params:      params,
		View:        Unreduced,
		New: func(given json.RawMessage) (Func, error) {
			f := frequency{Normalize: true}
			if err := params.Decode(given, &f); err != nil {
				return nil, err
			}
			return f.compute, nil
		},
	}
}

func (f frequency) compute(_ context.Context, samples []Sample) (score.Value, error) {
	counts := map[string]int{}
	names := slices.Clone(f.Categories)
	for _, s := range samples {
		if !s.Value.IsScalar() {
			return score.Value{}, fmt.Errorf("metric frequency: sample %s has a list or map value: compute it for each key instead", s.ID)
		}
		name := s.Value.Text()
		counts[name]++
		names = append(names, name)
	}
	var entries []score.Entry
	seen := map[string]bool{}
	for _, name := range names {
		if seen[name] {
			continue
		}
		seen[name] = true
		n := float64(counts[name])
		if f.Normalize && len(samples) > 0 {
			n /= float64(len(samples))
		}
		entries = append(entries, score.Entry{Key: name, Value: score.Number(n)})
	}
	return score.Map(entries...), nil
}
