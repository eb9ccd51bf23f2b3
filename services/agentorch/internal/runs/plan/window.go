package plan

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
)

// pinWindows writes the context windows of models into the steps that must know them, so that the run's course does not
// change with what is known of a model later. It returns a warning for each window in place of which a default is taken.
func (c Checker) pinWindows(ctx context.Context, spec *agentv1.RunSpec) ([]*agentv1.EvalWarning, error) {
	var warnings []*agentv1.EvalWarning
	for i, step := range spec.GetSteps() {
		wanted, err := c.Agents.Windows(step)
		if err != nil {
			return nil, rpcerr.In(run.FieldOfStep(i), err)
		}
		for name, window := range step.GetContextWindows() {
			if window <= 0 {
				return nil, rpcerr.InvalidField(run.FieldOfStep(i)+"/context_windows", "the context window of %q is %d; want tokens, above 0", name, window)
			}
		}
		for _, w := range wanted {
			if step.GetContextWindows()[w.Model] > 0 {
				continue
			}
			ref, _ := run.NamedModel(spec, w.Model)
			known, err := c.window(ctx, ref.GetModel())
			if err != nil {
				return nil, err
			}
			switch {
			case known > 0 && step.ContextWindows == nil:
				step.ContextWindows = map[string]int64{w.Model: known}
			case known > 0:
				step.ContextWindows[w.Model] = known
			case w.Default > 0:
				warnings = append(warnings, &agentv1.EvalWarning{
					Message: fmt.Sprintf("the context window of %s is unknown, and %s takes it to be %d tokens", ref.GetModel(), step.GetName(), w.Default),
					Model:   ref.GetModel(), Field: run.FieldOfStep(i),
				})
			}
		}
	}
	return warnings, nil
}

// window returns how many tokens of input a model takes; 0 if that is unknown.
func (c Checker) window(ctx context.Context, model string) (int64, error) {
	provider, name, _ := strings.Cut(model, "/")
	known, err := c.Models.GetModel(ctx, &modelv1.GetModelRequest{Name: "providers/" + provider + "/models/" + name})
	if rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_RESOURCE_NOT_FOUND) {
		return 0, nil
	}
	if err != nil {
		return 0, rpcerr.Wrap(err, "look up the context window of %s", model)
	}
	return cmp.Or(known.GetInputTokens(), known.GetContextTokens()), nil
}
