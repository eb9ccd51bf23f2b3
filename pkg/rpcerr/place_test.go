package rpcerr_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// An error about a part of a request names the whole path, once in its message and in each of its fields.
func TestAFieldIsNamedFromTheRequestOn(t *testing.T) {
	t.Parallel()
	var several rpcerr.Fields
	several.Add("model", "is required")
	several.Add("account", "is unknown")
	type field = rpcerr.Field
	for name, tt := range map[string]struct {
		got    error
		says   string
		fields []field
	}{
		"one field":                {rpcerr.In("spec.model", rpcerr.InvalidField("model", "no")), "spec.model.model: no", []field{{"spec.model.model", "no"}}},
		"an element":               {rpcerr.In("tools", rpcerr.InvalidField("[1].name", "no")), "tools[1].name: no", []field{{"tools[1].name", "no"}}},
		"a member of JSON":         {rpcerr.In("steps[0]", rpcerr.InvalidField("params_json/a", "no")), "steps[0].params_json/a: no", []field{{"steps[0].params_json/a", "no"}}},
		"several fields":           {rpcerr.In("m", several.Err()), "m.model: is required; m.account: is unknown", []field{{"m.model", "is required"}, {"m.account", "is unknown"}}},
		"no field":                 {rpcerr.In("m", rpcerr.InvalidRequest("no")), "m: no", []field{{"m", "no"}}},
		"no field, of a state":     {rpcerr.In("m", rpcerr.CapabilityUnsupported("images", "no")), "m: no", []field{{"m", "no"}}},
		"no field, not at fault":   {rpcerr.In("m", rpcerr.ServiceUnavailable("sandboxd", 0, "no")), "m: no", nil},
		"words around the field":   {rpcerr.In("m", fmt.Errorf("sample 3: %w", rpcerr.InvalidField("a", "no"))), "m.a: sample 3: no", []field{{"m.a", "no"}}},
		"words instead of a field": {rpcerr.In("m", rpcerr.InvalidRequest("gone").WithField("a", "no")), "m.a: gone", []field{{"m.a", "no"}}},
		"in a part of a part":      {rpcerr.In("a", rpcerr.In("b[1]", rpcerr.InvalidField("c", "no"))), "a.b[1].c: no", []field{{"a.b[1].c", "no"}}},
		"moved":                    {rpcerr.Moved("spec", "boxes[0]", rpcerr.InvalidField("spec.image", "no")), "boxes[0].image: no", []field{{"boxes[0].image", "no"}}},
		"not what is moved":        {rpcerr.Moved("spec", "boxes[0]", rpcerr.InvalidField("special", "no")), "special: no", []field{{"special", "no"}}},
		"moved, without a field":   {rpcerr.Moved("spec", "boxes[0]", rpcerr.InvalidRequest("no")), "no", nil},
	} {
		assert.EqualError(t, tt.got, tt.says, name)
		e, ok := rpcerr.As(tt.got)
		assert.True(t, ok, name)
		assert.Equal(t, tt.fields, e.Fields, name)
	}
	assert.NoError(t, rpcerr.In("m", nil))
	assert.EqualError(t, rpcerr.In("m", errors.New("no")), "m: no")
	large, _ := rpcerr.As(rpcerr.In("spec", rpcerr.RequestTooLarge("stdin", 1, "stdin: too large")))
	assert.Equal(t, "spec.stdin", large.Metadata["field"])
}

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
		assert.Equal(t, want, rpcerr.JSONPath(path))
	}
}
