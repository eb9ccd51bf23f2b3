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

// pinWindows writes the context windows of models into the steps that must know them, so that better data about a model
// does not change a run. Windows that a step has already stay. It returns a warning for each window that is unknown,
// and for which the agent assumes a default; the run of a sample has none, since its evaluation has them. It fails with INVALID_REQUEST if a given window is not above 0.
func (c Checker) pinWindows(ctx context.Context, spec *agentv1.RunSpec) ([]*agentv1.EvalWarning, error) {
	var warnings []*agentv1.EvalWarning
	for i, step := range spec.GetSteps() {
		field := run.FieldOfStep(i)
		for name, window := range step.GetContextWindows() {
			if window <= 0 {
				return nil, rpcerr.InvalidField(field+"/context_windows", "the context window of %q is %d; want tokens, above 0", name, window)
			}
		}
		wanted, err := c.Agents.Windows(step)
		if err != nil {
			return nil, rpcerr.In(field, err)
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
			if known > 0 {
				if step.ContextWindows == nil {
					step.ContextWindows = map[string]int64{}
				}
				step.ContextWindows[w.Model] = known
			} else if w.Default > 0 && spec.GetAttribution().GetEval() == "" {
				warnings = append(warnings, unknownWindow(ref.GetModel(), step.GetName(), w.Default, field))
			}
		}
	}
	return warnings, nil
}

func unknownWindow(model, step string, assumed int64, field string) *agentv1.EvalWarning {
	return &agentv1.EvalWarning{
		Message: fmt.Sprintf("the context window of %s is unknown, and %s takes it to be %d tokens", model, step, assumed), Model: model, Field: field,
	}
}

// window returns the context window of a model, in tokens of input; 0 if it is unknown.
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
