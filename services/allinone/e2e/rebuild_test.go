package e2e_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/sqlite"
)

// record are the tables that cannot be rebuilt, by the prefixes of their names: the journal with its inbox, each
// service's ledger of effects, budgets, the catalogues of sandboxes, the schema's version.
var record = []string{"journal", "modelgw_effects", "modelgw_batch", "modelgw_budgets", "toolexec_effects", "sandboxd_effects", "sandboxes", "sandboxd_installation", "replica", "schema_version", "sqlite_"}

// All other tables are rebuilt from the record: after they were dropped, lists, evaluations, samples and runs are as
// before.
func TestRebuildProjections(t *testing.T) {
	t.Parallel()
	inEachForm(t, func(t *testing.T, f form) {
		h := newHome(t, &shipped, f)
		c := h.serve()
		done := c.create(t, asked(3, scripted(t, object{"min_turn": 1, "output": "yes"})))
		c.await(t, done)
		failed := c.create(t, asked(2, scripted(t, object{"sample": "question-1", "output": "yes"})))
		c.await(t, failed)
		endless := c.create(t, asked(1, scripted(t, object{"min_turn": 1, "output": object{"text": "yes", "delay_s": 600}})))
		c.until(t, endless, func(e *agentv1.Event) bool { return e.GetSampleAdmitted() != nil })
		_, err := c.evals.CancelEval(within(t), &agentv1.CancelEvalRequest{Name: endless})
		require.NoError(t, err)
		c.await(t, endless)
		before := c.everything(t)
		h.stop()

		dropped := dropProjections(t, h.database())
		assert.NotEmpty(t, dropped)
		c = h.serve()
		if diff := cmp.Diff(before, c.everything(t), protocmp.Transform()); diff != "" {
			t.Errorf("after %s were dropped (-before +after):\n%s", strings.Join(dropped, ", "), diff)
		}
		eval := c.await(t, c.create(t, asked(1, scripted(t, object{"min_turn": 1, "output": "no"}))))
		assert.InDelta(t, 0, metric(t, eval, "match", "accuracy"), 0, "and work goes on")
	})
}

// database is the path of the journals and of the tables that are rebuilt from them.
func (h *home) database() string {
	if h.form == single {
		return filepath.Join(h.dir, "evalfleet.db")
	}
	return filepath.Join(h.dirOf("agentorch"), "agentorch.db")
}

// everything lists all there is to list.
func (c *client) everything(t *testing.T) []proto.Message {
	t.Helper()
	ctx := within(t)
	evals, err := c.evals.ListEvals(ctx, &agentv1.ListEvalsRequest{Parent: project})
	require.NoError(t, err)
	runs, err := c.runs.ListRuns(ctx, &agentv1.ListRunsRequest{Parent: project})
	require.NoError(t, err)
	all := []proto.Message{evals, runs}
	require.Len(t, evals.GetEvals(), 3)
	for _, e := range evals.GetEvals() {
		for _, sample := range c.samples(t, e.GetName()) {
			all = append(all, sample)
		}
		of, err := c.runs.ListRuns(ctx, &agentv1.ListRunsRequest{Parent: project, Eval: e.GetName()})
		require.NoError(t, err)
		assert.NotEmpty(t, of.GetRuns())
		all = append(all, of)
	}
	for _, r := range runs.GetRuns() {
		full, err := c.runs.GetRun(ctx, &agentv1.GetRunRequest{Name: r.GetName(), View: agentv1.RunView_RUN_VIEW_FULL})
		require.NoError(t, err)
		all = append(all, full)
	}
	return all
}

// dropProjections drops every table that is not of the record, and returns their names.
func dropProjections(t *testing.T, path string) []string {
	t.Helper()
	db, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	require.NoError(t, err)
	var dropped []string
	require.NoError(t, db.Write(t.Context(), func(tx *sqlite.Tx) error {
		dropped = nil
		for row, err := range tx.Query("SELECT name FROM sqlite_master WHERE type = 'table'") {
			if err != nil {
				return err
			}
			var name string
			if err := row.Scan(&name); err != nil {
				return err
			}
			if !isRecord(name) {
				dropped = append(dropped, name)
			}
		}
		for _, name := range dropped {
			if _, err := tx.Exec("DROP TABLE " + name); err != nil {
				return err
			}
		}
		return nil
	}))
	require.NoError(t, db.Close())
	return dropped
}

func isRecord(table string) bool {
	for _, prefix := range record {
		if strings.HasPrefix(table, prefix) {
			return true
		}
	}
	return false
}
