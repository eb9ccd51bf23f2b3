package taskfile

import (
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// read reads the whole file.
func (r *reader) read(n *yaml.Node) error {
	s := r.task.Spec
	var models *yaml.Node
	err := r.mapping(n, "a task file", map[string]key{
		"task":             decode(r, &s.Task),
		"display_name":     decode(r, &s.DisplayName),
		"version":          decode(r, &s.TaskVersion),
		"dataset":          r.dataset,
		"solver":           func(n *yaml.Node) error { return items(n, r.step) },
		"tools":            func(n *yaml.Node) error { return r.tools(n, &s.Tools) },
		"sandbox":          r.sandboxes,
		"scorer":           func(n *yaml.Node) error { return items(n, r.scorer) },
		"metrics":          func(n *yaml.Node) error { return r.metrics(n, &s.Metrics) },
		"epochs":           r.epochs,
		"model":            func(n *yaml.Node) error { models = n; return nil },
		"model_args":       func(n *yaml.Node) error { return r.args(n, &r.modelArgs) },
		"model_roles":      r.roles,
		"config":           r.config(&s.Config),
		"limits":           r.limits,
		"samples":          r.selection,
		"max_samples":      optional(r, &s.MaxSamples),
		"fail_on_error":    r.failOnError,
		"continue_on_fail": decode(r, &s.ContinueOnFail),
		"retry_on_error":   decode(r, &s.RetryOnError),
		"score_on_error":   decode(r, &s.ScoreOnError),
		"record_calls":     word(r, &s.RecordCalls),
		"tags":             r.texts(&s.Tags),
		"metadata":         r.jsonMap(&s.MetadataJson),
	})
	if err != nil {
		return err
	}
	if models != nil { // Read last: they take in model_args.
		r.key = "model"
		if err := items(models, r.model); err != nil {
			return err
		}
	}
	if s.Task == "" {
		s.Task = strings.TrimSuffix(filepath.Base(r.path), filepath.Ext(r.path))
	}
	if s.Dataset == nil {
		return r.fault(n, "a task needs a dataset: `dataset: samples.jsonl`, or a list of samples")
	}
	if s.Dataset.Name == "" {
		s.Dataset.Name = s.Task
	}
	if len(s.Steps) == 0 {
		s.Steps = []*agentv1.AgentRef{{Name: "generate"}}
	}
	return nil
}

// step reads a solver or an agent.
func (r *reader) step(n *yaml.Node) error {
	name, params, err := r.named(n, "a solver")
	if err != nil {
		return err
	}
	ref := &agentv1.AgentRef{Name: name}
	if params != nil {
		if tools := take(params, "tools"); tools != nil {
			if err := r.tools(tools, &ref.Tools); err != nil {
				return err
			}
		}
		if ref.ParamsJson, err = r.asJSON(params); err != nil {
			return err
		}
	}
	r.task.Spec.Steps = append(r.task.Spec.Steps, ref)
	return nil
}

// take removes a key of a map and returns its value; nil where the map lacks it.
func take(n *yaml.Node, name string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			value := resolved(n.Content[i+1])
			n.Content = append(n.Content[:i:i], n.Content[i+2:]...)
			return value
		}
	}
	return nil
}

func (r *reader) tools(n *yaml.Node, to *[]*toolv1.ToolRef) error {
	return items(n, func(n *yaml.Node) error {
		name, params, err := r.named(n, "a tool")
		if err != nil {
			return err
		}
		ref := &toolv1.ToolRef{Name: name}
		if params != nil {
			if ref.OptionsJson, err = r.asJSON(params); err != nil {
				return err
			}
		}
		*to = append(*to, ref)
		return nil
	})
}

func (r *reader) scorer(n *yaml.Node) error {
	name, params, err := r.named(n, "a scorer")
	if err != nil {
		return err
	}
	ref := &agentv1.ScorerRef{Name: name}
	if params != nil {
		if metrics := take(params, "metrics"); metrics != nil {
			if err := r.metrics(metrics, &ref.Metrics); err != nil {
				return err
			}
		}
		if name == checkScorer {
			if params, err = r.checkFiles(params); err != nil {
				return err
			}
		}
		if ref.ParamsJson, err = r.asJSON(params); err != nil {
			return err
		}
	}
	r.task.Spec.Scorers = append(r.task.Spec.Scorers, ref)
	return nil
}

func (r *reader) metrics(n *yaml.Node, to *[]*agentv1.MetricRef) error {
	return items(n, func(n *yaml.Node) error {
		name, params, err := r.named(n, "a metric")
		if err != nil {
			return err
		}
		ref := &agentv1.MetricRef{Name: name}
		if params != nil {
			if ref.ParamsJson, err = r.asJSON(params); err != nil {
				return err
			}
		}
		*to = append(*to, ref)
		return nil
	})
}

// epochs reads a number, or a map with reducers.
func (r *reader) epochs(n *yaml.Node) error {
	e := &agentv1.Epochs{}
	r.task.Spec.Epochs = e
	count := func(n *yaml.Node) error {
		e.Count = new(int32)
		err := decode(r, e.Count)(n)
		if err == nil && e.GetCount() < 1 {
			err = r.fault(n, "epochs: every sample runs at least once, not %d times; leave epochs out for once", e.GetCount())
		}
		return err
	}
	if n.Kind == yaml.ScalarNode {
		return count(n)
	}
	return r.mapping(n, "epochs", map[string]key{
		"count": count,
		"reducer": func(n *yaml.Node) error {
			e.NoReducers = n.Kind == yaml.SequenceNode && len(n.Content) == 0
			return r.texts(&e.Reducers)(n)
		},
	})
}

// selection defines which samples run.
func (r *reader) selection(n *yaml.Node) error {
	s := r.task.Spec
	return r.mapping(n, "samples", map[string]key{
		"limit": func(n *yaml.Node) error {
			s.Limit = &agentv1.SampleRange{}
			if n.Kind == yaml.SequenceNode && len(n.Content) == 2 {
				if err := decode(r, &s.Limit.Start)(n.Content[0]); err != nil {
					return err
				}
				return decode(r, &s.Limit.End)(n.Content[1])
			}
			return decode(r, &s.Limit.End)(n)
		},
		"ids":     r.texts(&s.SampleIds),
		"shuffle": optional(r, &s.ShuffleSeed),
	})
}

// failOnError reads true, false, a part below 1, or a number of samples.
func (r *reader) failOnError(n *yaml.Node) error {
	var enabled bool
	if n.Tag == "!!bool" && n.Decode(&enabled) == nil {
		r.task.Spec.FailOnError = &agentv1.FailOnError{Rule: &agentv1.FailOnError_Enabled{Enabled: enabled}}
		return nil
	}
	var threshold float64
	if err := n.Decode(&threshold); n.Tag == "!!null" || err != nil || !(threshold >= 0) {
		return r.fault(n, "fail_on_error must be true, false, a part of the samples such as 0.1, or a number of samples, not %s", show(n))
	}
	r.task.Spec.FailOnError = &agentv1.FailOnError{Rule: &agentv1.FailOnError_Threshold{Threshold: threshold}}
	return nil
}
