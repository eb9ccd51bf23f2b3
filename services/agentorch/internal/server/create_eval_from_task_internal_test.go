package server

import (
	"testing"

	"github.com/stretchr/testify/assert"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
)

// A fault of what the request gives beside the task file has the request's field, and any other that of the file.
func TestAFaultOfATaskHasTheFieldThatSetIt(t *testing.T) {
	t.Parallel()
	all := &agentv1.CreateEvalFromTaskRequest{
		Models: []string{"a/a", "b/b"}, ModelArgs: map[string]string{"x": "1"}, Limit: &agentv1.SampleRange{End: 1}, SampleIds: []string{"1"},
		Epochs: new(int32(1)), MaxSamples: new(int32(1)),
	}
	for path, want := range map[string]string{
		"spec.models":                             "models",
		"spec.models[1].model":                    "models[1]",
		"spec.model.model":                        "models",
		"spec.models[0].model_args_json":          "model_args",
		"spec.models[0].model_args_json/x":        "model_args",
		`spec.model_roles["grader"].model`:        "task",
		"spec.limit.end":                          "limit",
		"spec.limits.turns":                       "task",
		"spec.sample_ids":                         "sample_ids",
		"spec.epochs.count":                       "epochs",
		"spec.epochs.reducers[0]":                 "task",
		"spec.max_samples":                        "max_samples",
		"spec.dataset.inline.samples[0].files[a]": "task",
	} {
		assert.Equal(t, want, fieldOf(path, all), path)
		assert.Equal(t, "task", fieldOf(path, &agentv1.CreateEvalFromTaskRequest{}), path)
	}
}
