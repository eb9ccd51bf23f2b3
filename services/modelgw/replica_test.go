package modelgw_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	effectsqlite "github.com/evalfleet/evalfleet/pkg/effect/sqlite"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/replica"
	replicasqlite "github.com/evalfleet/evalfleet/pkg/replica/sqlite"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/sqlite"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/modelgw"
)

// TestTwoReplicasLeaveOneAnothersCallsAlone: a call that one of them has in flight is no lost one to the other, until
// it has ended.
func TestTwoReplicasLeaveOneAnothersCallsAlone(t *testing.T) {
	t.Parallel()
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "shared.db"), sqlite.Options{Readers: 1})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	ledger, err := effectsqlite.New(t.Context(), db, "modelgw")
	require.NoError(t, err)
	table, err := replicasqlite.New(t.Context(), db)
	require.NoError(t, err)
	start := func(name string) (*gateway, *replica.Process) {
		process, err := replica.Join(t.Context(), replica.Config{Table: table, Member: replica.Member{Service: "modelgw", Name: name, Process: name + "/1"}, TTL: time.Hour})
		require.NoError(t, err)
		return start(t, withLedger(ledger, name+"/1"), func(_ *modelgw.Config, d *modelgw.Deps) { d.Alive = process.Alive }), process
	}
	one, process := start("one")
	two, _ := start("two")
	request := keyed("r1/7", on("s", 1, ask(`{"outputs": [{"output": {"text": "the answer", "delay_s": 600}}]}`, "q")))
	ended := make(chan error, 1)
	go func() {
		_, err := one.models.Generate(waittest.Context(t), request)
		ended <- err
	}()
	require.Eventually(t, func() bool { return len(one.calls(t)) == 1 }, waitLimit, tick, "the call has reached the model")
	_, err = two.models.Generate(t.Context(), request)
	require.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_SERVICE_UNAVAILABLE), "%v", err)
	require.ErrorContains(t, err, "one/1")
	assert.Empty(t, two.calls(t))

	require.NoError(t, process.Leave(t.Context()))
	go func() { _, _ = two.models.Generate(waittest.Context(t), request) }()
	require.Eventually(t, func() bool { return len(two.calls(t)) == 1 }, waitLimit, tick, "what an ended process had in flight is made again")
	_, err = two.models.CancelGenerate(t.Context(), &modelv1.CancelGenerateRequest{Parent: project, RequestId: "r1/7"})
	require.NoError(t, err)
	one.close()
	require.Error(t, waittest.For(t, ended, "the call of the process that ended"))
}

// TestARunsOlderOwnerIsRefused: an orchestrator that lost a run, and does not know it yet, begins no call for it.
func TestARunsOlderOwnerIsRefused(t *testing.T) {
	t.Parallel()
	g := start(t)
	ask := func(id string, epoch int64) error {
		request := keyed(id, on("s", 1, ask(`{"outputs": ["the answer"]}`, "q")))
		request.Attribution.Run, request.Attribution.OwnerEpoch = project+"/runs/r1", epoch
		_, err := g.models.Generate(t.Context(), request)
		return err
	}
	require.NoError(t, ask("r1/7", 2))
	err := ask("r1/9", 1)
	require.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_NOT_OWNER), "%v", err)
	assert.Len(t, g.calls(t), 1)
}
