package server_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/testing/protocmp"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/sqlite"
)

// TestADamagedRowStopsNoListOfRuns damages the row of one of three runs, and then its journal too. The list has the
// content of the journal, and then the run's name and state.
func TestADamagedRowStopsNoListOfRuns(t *testing.T) {
	t.Parallel()
	r := serve(t)
	for range 3 {
		r.finished(answering())
	}
	list := func() []*agentv1.Run {
		page, err := r.runs.ListRuns(t.Context(), &agentv1.ListRunsRequest{Parent: project})
		require.NoError(t, err)
		return page.GetRuns()
	}
	damage := func(text, name string) {
		require.NoError(t, r.DB.Write(t.Context(), func(tx *sqlite.Tx) error {
			_, err := tx.Exec(text+` = (SELECT id FROM journal WHERE name = ?)`, name)
			return err
		}))
	}
	want := list()
	require.Len(t, want, 3)
	damage(`UPDATE view_journal SET view = 'damaged' WHERE id`, want[1].GetName())
	assert.Empty(t, cmp.Diff(want, list(), protocmp.Transform()))

	damage(`UPDATE journal_event SET body = 'damaged' WHERE journal`, want[1].GetName())
	want[1] = &agentv1.Run{
		Name: want[1].GetName(), State: want[1].GetState(), Head: want[1].GetHead(), Epoch: want[1].GetEpoch(), Owner: want[1].GetOwner(),
	}
	assert.Empty(t, cmp.Diff(want, list(), protocmp.Transform()))
}
