package resource_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

func TestAMaskNamesWhatAnUpdateChanges(t *testing.T) {
	t.Parallel()
	bounds := []string{"max_tokens", "max_cost"}
	budget := &modelv1.Budget{Name: "projects/p/budgets/project", Etag: "e", MaxTokens: new(int64(5)), SpentTokens: 7}
	for name, tt := range map[string]struct {
		paths, want []string
		says        string
	}{
		"empty":                     {nil, []string{"max_tokens"}, ""},
		"named and set":             {[]string{"max_tokens"}, []string{"max_tokens"}, ""},
		"named and not set":         {[]string{"max_cost"}, []string{"max_cost"}, ""},
		"named twice":               {[]string{"max_cost", "max_cost"}, []string{"max_cost"}, ""},
		"as JSON names it":          {[]string{"maxCost"}, []string{"max_cost"}, ""},
		"all":                       {[]string{"*"}, bounds, ""},
		"with what was read":        {[]string{"name", "etag", "spent_tokens", "max_cost"}, []string{"max_cost"}, ""},
		"nothing of it":             {[]string{"name"}, nil, "nothing is to be changed"},
		"an unknown field":          {[]string{"max_tokns"}, nil, `"max_tokns" is no field of Budget; max_tokens, max_cost can be changed`},
		"a field of no message":     {[]string{"max_tokens.value"}, nil, "is no field of Budget"},
		"a body without members":    {[]string{""}, nil, "nothing is to be changed"},
		"an unknown field, and one": {[]string{"max_cost", "x"}, nil, "is no field of Budget"},
	} {
		got, err := resource.Mask(&fieldmaskpb.FieldMask{Paths: tt.paths}, budget, bounds...)
		assert.Equal(t, tt.want, got, name)
		if tt.says == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorContains(t, err, tt.says, name)
		e, _ := rpcerr.As(err)
		assert.Equal(t, "update_mask", e.Fields[0].Path, name)
	}
	_, err := resource.Mask(nil, &modelv1.Budget{}, bounds...)
	require.ErrorContains(t, err, "set or name one of max_tokens, max_cost")
}

func TestAMaskNamesFieldsOfMessagesWithin(t *testing.T) {
	t.Parallel()
	eval := &agentv1.Eval{Spec: &agentv1.EvalSpec{Task: "t", MaxSamples: new(int32(2))}}
	got, err := resource.Mask(nil, eval, "spec.tags", "spec.max_samples")
	require.NoError(t, err)
	assert.Equal(t, []string{"spec.max_samples"}, got)
	got, err = resource.Mask(&fieldmaskpb.FieldMask{Paths: []string{"spec.maxSamples"}}, &agentv1.Eval{}, "spec.tags", "spec.max_samples")
	require.NoError(t, err)
	assert.Equal(t, []string{"spec.max_samples"}, got)
	_, err = resource.Mask(&fieldmaskpb.FieldMask{Paths: []string{"spec.task"}}, eval, "spec.tags")
	require.ErrorContains(t, err, `"spec.task" cannot be changed; spec.tags can`)
}

func TestAnEtagIsOverWhatAnUpdateSets(t *testing.T) {
	t.Parallel()
	etag := func(e *agentv1.Eval) string {
		return resource.EtagOf(e, []string{"spec.tags", "spec.max_samples"}, e.GetState())
	}
	read := &agentv1.Eval{Spec: &agentv1.EvalSpec{Task: "t", Tags: []string{"a"}}, State: agentv1.EvalState_EVAL_STATE_RUNNING}
	for name, same := range map[string]*agentv1.Eval{
		"the same":      {Spec: &agentv1.EvalSpec{Tags: []string{"a"}}, State: agentv1.EvalState_EVAL_STATE_RUNNING},
		"other results": {Head: 7, Spec: &agentv1.EvalSpec{Task: "u", Tags: []string{"a"}}, State: agentv1.EvalState_EVAL_STATE_RUNNING},
	} {
		assert.Equal(t, etag(read), etag(same), name)
	}
	seen := map[string]string{etag(read): "as read"}
	for name, other := range map[string]*agentv1.Eval{
		"nothing":        {},
		"another value":  {Spec: &agentv1.EvalSpec{Tags: []string{"b"}}, State: agentv1.EvalState_EVAL_STATE_RUNNING},
		"one value more": {Spec: &agentv1.EvalSpec{Tags: []string{"a", "b"}}, State: agentv1.EvalState_EVAL_STATE_RUNNING},
		"a zero":         {Spec: &agentv1.EvalSpec{Tags: []string{"a"}, MaxSamples: new(int32(0))}, State: agentv1.EvalState_EVAL_STATE_RUNNING},
		"another state":  {Spec: &agentv1.EvalSpec{Tags: []string{"a"}}, State: agentv1.EvalState_EVAL_STATE_FAILED},
	} {
		assert.Empty(t, seen[etag(other)], name)
		seen[etag(other)] = name
	}
}

func TestAnEtagIsThatOfTheStateThatWasRead(t *testing.T) {
	t.Parallel()
	require.NoError(t, resource.Etag("projects/p/runs/r", "", "7"))
	require.NoError(t, resource.Etag("projects/p/runs/r", "7", "7"))
	assert.True(t, rpcerr.Is(resource.Etag("projects/p/runs/r", "6", "7"), errorsv1.ErrorReason_ERROR_REASON_ETAG_MISMATCH))
}
