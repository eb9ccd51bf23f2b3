package decide

import (
	"slices"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
)

// lacksSandboxes reports whether a sandbox of the run has not been requested yet.
func (d *Step) lacksSandboxes() bool { return len(d.sandboxesToMake()) > 0 }

// makingSandboxes reports whether a sandbox is being made, before which no agent is asked.
func (d *Step) makingSandboxes() bool {
	return slices.ContainsFunc(d.s.Open, func(i *run.Intent) bool { return i.Event.GetSandboxIntent() != nil })
}

func (d *Step) sandboxesToMake() []string {
	var missing []string
	for environment := range d.s.Spec().GetSandboxes() {
		asked := slices.ContainsFunc(d.s.Open, func(i *run.Intent) bool { return i.Event.GetSandboxIntent().GetEnvironment() == environment })
		if d.s.Sandboxes[environment] == nil && !asked {
			missing = append(missing, environment)
		}
	}
	slices.Sort(missing)
	return missing
}

func (d *Step) makeSandboxes() error {
	for _, environment := range d.sandboxesToMake() {
		if err := d.emit(run.NewEvent(&agentv1.SandboxIntent{Environment: environment, RequestId: d.s.Key(d.s.Seq + 1)})); err != nil {
			return err
		}
	}
	return nil
}

func (d *Step) sandboxesLeft() []string {
	var left []string
	for environment, box := range d.s.Sandboxes {
		if !box.Removed {
			left = append(left, environment)
		}
	}
	slices.Sort(left)
	return left
}
