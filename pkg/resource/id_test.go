package resource_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/resource"
)

func TestIDsAreUniqueAndSortByTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var ids []string
		for range 1000 {
			ids = append(ids, resource.NewID())
			time.Sleep(time.Millisecond)
		}
		assert.True(t, slices.IsSorted(ids))
		same := map[string]bool{}
		for range 1000 {
			same[resource.NewID()] = true
		}
		assert.Len(t, same, 1000, "also within a millisecond")
		for _, id := range ids {
			assert.Len(t, id, 18)
			_, err := resource.Parse("name", resource.Format("default", "runs", id), "runs")
			require.NoError(t, err)
		}
	})
}

func TestADerivedIDDependsOnEveryPart(t *testing.T) {
	t.Parallel()
	id := resource.DerivedID("here", "default", "key")
	assert.Len(t, id, 18)
	assert.Equal(t, id, resource.DerivedID("here", "default", "key"))
	for _, other := range [][]string{{"there", "default", "key"}, {"here", "other", "key"}, {"here", "default"}, {"here", "defaultkey", ""}, {"here", "defaultk", "ey"}} {
		assert.NotEqual(t, id, resource.DerivedID(other...), other)
	}
}

func TestAProjectsNameIsReadAsItIsWritten(t *testing.T) {
	t.Parallel()
	id, err := resource.ParseProject("parent", resource.Project("default"))
	require.NoError(t, err)
	assert.Equal(t, "default", id)
	assert.Equal(t, resource.DefaultProject, resource.Project("default"))
}
