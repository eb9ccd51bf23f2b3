package resource_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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

func TestWithin(t *testing.T) {
	t.Parallel()
	mine, err := resource.Within("parent", "projects/default")
	require.NoError(t, err)
	assert.True(t, mine("default"))
	assert.False(t, mine("other"))
	all, err := resource.Within("parent", "projects/-")
	require.NoError(t, err)
	assert.True(t, all("other"))
	_, err = resource.Within("parent", "projects")
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST))
}

// TestIDsAreThoseOfTheProtocol holds the checks against the patterns that the protocol's documentation gives.
func TestIDsAreThoseOfTheProtocol(t *testing.T) {
	t.Parallel()
	projectID := regexp.MustCompile(`^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)
	id := regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._~-]{0,127}$`)
	check := func(s string) {
		if strings.Contains(s, "/") {
			return // the name is cut there
		}
		_, err := resource.ParseProject("parent", "projects/"+s)
		assert.Equal(t, projectID.MatchString(s), err == nil, "project %q", s)
		_, err = resource.Parse("name", "projects/p/runs/"+s, "runs")
		assert.Equal(t, id.MatchString(s), err == nil, "id %q", s)
	}
	for c := range 256 {
		b := string([]byte{byte(c)})
		for _, s := range []string{b, b + "a", "a" + b, "a" + b + "a"} {
			check(s)
		}
	}
	for _, n := range []int{0, 62, 63, 64, 127, 128, 129} {
		check(strings.Repeat("a", n))
	}
	check("a\n")
	check("ä")
}

func TestChildrenAreOfTheirParent(t *testing.T) {
	t.Parallel()
	project, ids, err := resource.Children("projects/p", "runs", []string{"projects/p/runs/a", "projects/p/runs/b"})
	require.NoError(t, err)
	assert.Equal(t, "p", project)
	assert.Equal(t, []string{"a", "b"}, ids)
	for _, bad := range []string{"", "a", "projects/q/runs/a", "projects/p/evals/a", "projects/p/runs/", "projects/p/runs/a/b"} {
		_, _, err := resource.Children("projects/p", "runs", []string{bad})
		assert.Error(t, err, bad)
	}
	_, _, err = resource.Children("p", "runs", nil)
	assert.Error(t, err)
}
