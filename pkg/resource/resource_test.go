package resource_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

func TestNames(t *testing.T) {
	t.Parallel()
	n, err := resource.Parse("name", "projects/default/evals/e1/samples/s.2", "evals", "samples")
	require.NoError(t, err)
	assert.Equal(t, resource.Name{Project: "default", IDs: []string{"e1", "s.2"}}, n)
	assert.Equal(t, "projects/default/evals/e1", resource.Format("default", "evals", "e1"))
	assert.Equal(t, "e1", resource.LastID("projects/default/evals/e1"))

	for _, bad := range []string{"", "runs/r", "projects/default/runs/", "projects/Default/runs/r", "projects/default/runs/../x", "projects/default/runs/r/", "projects/a/runs/r\x00"} {
		_, err := resource.Parse("name", bad, "runs")
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST), "%q", bad)
		assert.ErrorContains(t, err, "projects/{project}/runs/{id}", "%q", bad)
	}
}

func TestAPageTokenBelongsToItsRequest(t *testing.T) {
	t.Parallel()
	list := &agentv1.ListRunsRequest{Parent: "projects/default", PageSize: 10}
	token := resource.PageToken("after-r7", list)

	next := &agentv1.ListRunsRequest{Parent: "projects/default", PageSize: 50, PageToken: token}
	position, err := resource.Position(token, next)
	require.NoError(t, err)
	assert.Equal(t, "after-r7", position)

	for name, other := range map[string]*agentv1.ListRunsRequest{"project": {Parent: "projects/other"}, "filter": {Parent: "projects/default", Eval: "projects/default/evals/e"}} {
		_, err := resource.Position(token, other)
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INVALID_CURSOR), name)
	}
	first, err := resource.Position("", list)
	require.NoError(t, err)
	assert.Empty(t, first)
}

func FuzzPosition(f *testing.F) {
	f.Add("AAAA")
	f.Fuzz(func(t *testing.T, token string) {
		_, _ = resource.Position(token, &agentv1.ListRunsRequest{})
	})
}
