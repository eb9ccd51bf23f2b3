package taskfile

import (
	"context"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
)

// Override are the settings that have precedence over a task file for one evaluation. Zero fields change nothing.
type Override struct {
	// Models replace those of the file, and ModelArgs, whose values are YAML, replace all their arguments.
	Models    []string
	ModelArgs map[string]string
	// Limit and SampleIDs exclude each other, and each takes the other's place.
	Limit     *agentv1.SampleRange
	SampleIDs []string
	// Epochs and MaxSamples are at least 1.
	Epochs, MaxSamples int32
	// Driver replaces that of all sandboxes; AllowUnisolated allows creating them although a part of their isolation is
	// missing.
	Driver          string
	AllowUnisolated bool
	// Tags are added.
	Tags []string
}

// Override overlays the task with o. Files are those that arguments of models name; nil uses those of the working
// directory, which become bodies of the task.
func (t *Task) Override(ctx context.Context, o Override, files Files) error {
	s := t.Spec
	if len(o.Models) > 0 {
		s.Models = nil
		for _, m := range o.Models {
			s.Models = append(s.Models, &agentv1.ModelRef{Model: m})
		}
	}
	if len(o.ModelArgs) > 0 {
		here := workingDirectory(".")
		if files == nil {
			files = here
		}
		text, err := modelArgs(ctx, files, o.ModelArgs)
		if err != nil {
			return err
		}
		for _, m := range s.GetModels() {
			m.ModelArgsJson = text
		}
		t.Bodies = append(t.Bodies, here.bodies...)
	}
	if o.Limit != nil {
		s.Limit, s.SampleIds = o.Limit, nil
	}
	if len(o.SampleIDs) > 0 {
		s.SampleIds, s.Limit = o.SampleIDs, nil
	}
	if o.Epochs > 0 {
		if s.Epochs == nil {
			s.Epochs = &agentv1.Epochs{}
		}
		s.Epochs.Count = &o.Epochs
	}
	if o.MaxSamples > 0 {
		s.MaxSamples = &o.MaxSamples
	}
	s.Tags = append(s.Tags, o.Tags...)
	for _, box := range Sandboxes(s) {
		if o.Driver != "" {
			box.Driver = o.Driver
		}
		box.AllowUnisolated = box.GetAllowUnisolated() || o.AllowUnisolated
	}
	return nil
}

// Sandboxes are all sandboxes that an evaluation describes, those in files of samples aside.
func Sandboxes(s *agentv1.EvalSpec) []*sandboxv1.SandboxSpec {
	var all []*sandboxv1.SandboxSpec
	for _, box := range s.GetSandboxes() {
		all = append(all, box)
	}
	for _, sample := range s.GetDataset().GetInline().GetSamples() {
		if sample.GetSandbox() != nil {
			all = append(all, sample.GetSandbox())
		}
	}
	return all
}
