package rest

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestPathsAreNamedAsJSONDoes(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"":                              "",
		"spec.max_samples":              "spec.maxSamples",
		"spec.steps[0].params_json":     "spec.steps[0].paramsJson",
		`spec.model_roles["my_role"]`:   `spec.modelRoles["my_role"]`,
		"limits.time":                   "limits.time",
		"a_b[0].params_json/tool_calls": "aB[0].paramsJson/tool_calls",
	} {
		assert.Equal(t, want, jsonPath(path))
	}
}

func TestBodiesThatAreAFieldAreKnown(t *testing.T) {
	t.Parallel()
	all := fieldBodies()
	assert.Equal(t, "budget", all["/api/v1/{budget.name=projects/*/budgets/**}"].field, all)
	assert.Equal(t, "request", all["/api/v1/{request.parent=projects/*}/models:streamGenerate"].field)
}
