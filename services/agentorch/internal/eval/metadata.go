package eval

import (
	"context"
	"fmt"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/metric"
)

// metadataCheck is what a metric at a field of the specification needs of the metadata of each sample.
type metadataCheck struct {
	field string
	check metric.Check
}

// checkMetadata refuses samples without the metadata by which a metric groups them. The results could not be computed,
// which would be noticed when all samples are done.
func (j Judges) checkMetadata(ctx context.Context, spec *agentv1.EvalSpec, samples *Samples) error {
	checks, err := j.metadataChecks(nil, spec.GetMetrics(), "spec.metrics")
	for i := 0; err == nil && len(spec.GetMetrics()) == 0 && i < len(spec.GetScorers()); i++ {
		checks, err = j.metadataChecks(checks, spec.GetScorers()[i].GetMetrics(), fmt.Sprintf("spec.scorers[%d].metrics", i))
	}
	if err != nil || len(checks) == 0 {
		return err
	}
	for _, sample := range samples.All() {
		if err := ctx.Err(); err != nil {
			return err
		}
		judged := metric.Sample{ID: sample.GetId()}
		if text := sample.GetMetadataJson(); text != "" {
			judged.Metadata, _ = orderedjson.DecodeObject([]byte(text)) // It was read from JSON.
		}
		for _, c := range checks {
			if err := c.check(judged); err != nil {
				return rpcerr.InvalidField(c.field, "%v", err)
			}
		}
	}
	return nil
}

// metadataChecks appends the checks of the metrics of a field.
func (j Judges) metadataChecks(checks []metadataCheck, refs []*agentv1.MetricRef, field string) ([]metadataCheck, error) {
	metrics, err := j.metrics(refs, field)
	for i, m := range metrics {
		if m.Check != nil {
			checks = append(checks, metadataCheck{fmt.Sprintf("%s[%d]", field, i), m.Check})
		}
	}
	return checks, err
}
