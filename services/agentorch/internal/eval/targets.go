package eval

import (
	"context"
	"fmt"
	"strings"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
)

// namedSamples bounds the samples that a message names.
const namedSamples = 5

// checkTargets refuses samples without a target if a scorer compares with it: the score would not depend on the model's
// answer.
func (j Judges) checkTargets(ctx context.Context, spec *agentv1.EvalSpec, samples *Samples) error {
	var comparing *score.Definition // the first of the strictest: targets that it accepts, all accept
	for i, ref := range spec.GetScorers() {
		if ref.GetWorker() != nil {
			continue
		}
		if _, err := j.Scorers.New(ref.GetName(), raw(ref.GetParamsJson())); err != nil {
			return rpcerr.In(fmt.Sprintf("spec.scorers[%d]", i), err)
		}
		definition, err := j.Scorers.Definition(ref.GetName())
		if err != nil {
			return err
		}
		stricter := comparing == nil || definition.NeedsTarget && !comparing.NeedsTarget
		if stricter && definition.Compares(raw(ref.GetParamsJson())) {
			comparing = &definition
		}
	}
	if comparing == nil {
		return nil
	}
	var without []string
	for _, sample := range samples.All() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if comparing.Lacks(sample.GetTarget().GetValues()) {
			without = append(without, sample.GetId())
		}
	}
	if len(without) > 0 {
		none := "none"
		if comparing.NeedsTarget {
			none = "none or a blank one"
		}
		return rpcerr.InvalidField("spec.dataset", "the scorer %s needs a target, and %d of %d samples have %s: %s; %s",
			comparing.Name, len(without), samples.Len(), none, first(without), howToTarget(spec.GetDataset()))
	}
	return nil
}

// howToTarget explains how samples of a dataset get a target.
func howToTarget(d *agentv1.Dataset) string {
	if d.GetFile() == nil {
		return "give each sample a `target`"
	}
	return "name the column that holds it, `dataset: {fields: {target: COLUMN}}`, or use a scorer that compares with none"
}

// first names the first few of many.
func first(names []string) string {
	if more := len(names) - namedSamples; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:namedSamples], ", "), more)
	}
	return strings.Join(names, ", ")
}
