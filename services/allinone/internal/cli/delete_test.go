package cli_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

func TestWhatCannotBeDeletedDoesNotKeepTheRest(t *testing.T) {
	t.Parallel()
	s := &server{
		runs: []string{"a-gone", "b-used", "c", "d-used", "e"},
		undeletable: map[string]error{
			"a-gone": rpcerr.ResourceNotFound("projects/default/runs/a-gone"),
			"b-used": rpcerr.ResourceInUse("x", "b-used is in use"), "d-used": rpcerr.ResourceInUse("x", "d-used is in use"),
		},
	}
	flags := serve(t, s)
	c := begin(t, append(flags, "run", "delete", "--older-than", "1d", "--yes")...)
	assert.Equal(t, 1, c.end(t), c.stderr.String())
	assert.Equal(t, []string{"c", "e", "r-over"}, s.deleted)
	assert.NotContains(t, c.stderr.String(), "a-gone", "what retention deleted first is deleted")
	assert.Contains(t, c.stderr.String(), "b-used is in use")
	assert.Contains(t, c.stderr.String(), "d-used is in use")

	c = begin(t, append(flags, "run", "delete", "a-gone", "--yes")...)
	assert.Equal(t, 1, c.end(t), c.stderr.String())
	assert.Contains(t, c.stderr.String(), "a-gone", "a run that was named has to be there")
}
