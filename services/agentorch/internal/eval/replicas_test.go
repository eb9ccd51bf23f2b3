package eval_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/replica"
	replicasqlite "github.com/evalfleet/evalfleet/pkg/replica/sqlite"
	"github.com/evalfleet/evalfleet/pkg/sqlite"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent/generate"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/eval"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/fleettest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	journalsqlite "github.com/evalfleet/evalfleet/services/agentorch/internal/journal/sqlite"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/builtin"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/metric"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/servicetest"
)

// replicas are orchestrators on one database, each with a connection of its own, so that none is notified of another's
// writes.
type replicas struct {
	*fleettest.Fleet

	dir   string
	blobs *bodies
	table replica.Table
}

// member is one of them. Kill ends it as a crash does: its row stays, and counts as dead.
type member struct {
	evals *eval.Engine
	kill  func()
}

func newReplicas(t *testing.T) *replicas {
	t.Helper()
	dir := t.TempDir()
	f := fleettest.New(t, fleettest.Parts{
		Open: func(ctx context.Context, db *sqlite.DB) (journal.Store, error) {
			return journalsqlite.Open(ctx, db, nil)
		},
		Agents: []agent.Definition{generate.Definition()}, Scorers: builtin.Definitions(), Dir: dir,
	})
	table, err := replicasqlite.New(t.Context(), f.DB)
	require.NoError(t, err)
	f.Config.Beat, f.Replica.TTL = 20*time.Millisecond, waittest.Bound // No busy machine takes one that lives for dead.
	return &replicas{Fleet: f, dir: dir, blobs: &bodies{all: map[string][]byte{}}, table: table}
}

// crashing is a table that a process does not leave as it ends.
type crashing struct{ replica.Table }

func (crashing) Leave(context.Context, string) error { return nil }

func (r *replicas) start(t *testing.T, name string) *member {
	t.Helper()
	db, err := sqlite.Open(t.Context(), filepath.Join(r.dir, "test.db"), sqlite.Options{})
	require.NoError(t, err)
	store, err := journalsqlite.Open(t.Context(), db, nil)
	require.NoError(t, err)
	var (
		m         member
		adoptions sync.WaitGroup
		ready     = make(chan struct{})
	)
	evals := func() *eval.Engine {
		<-ready
		return m.evals
	}
	r.Replica.Name, r.Replica.Table = name, crashing{r.table}
	r.Wrap = func(journal.Store) journal.Store { return store }
	r.Adjust = func(d *engine.Deps) {
		d.AdoptEval = func(l journal.Listed) {
			evals().Adopting(l.Ref)
			adoptions.Go(func() { m.evals.Adopt(l.Head) })
		}
		d.WakeEval = func(name string) { evals().Wake(name) }
		d.EvalRefs = func() []journal.Ref { return evals().Refs() }
	}
	r.Start()
	m.evals = eval.New(eval.Config{MaxSamples: 100}, eval.Deps{
		Journals: store, Blobs: r.blobs, Runs: r.Runs, Replica: name, Hold: r.Engine.Hold, Logger: slog.New(slog.DiscardHandler),
		Judges: eval.Judges{Scorers: score.NewRegistry(builtin.Definitions()...), Metrics: metric.NewRegistry()},
	})
	close(ready)
	stop := r.Stop
	m.kill = sync.OnceFunc(func() {
		m.evals.Close()
		stop()
		adoptions.Wait()
		require.NoError(t, db.Close())
		require.NoError(t, r.DB.Write(context.WithoutCancel(t.Context()), func(tx *sqlite.Tx) error {
			_, err := tx.Exec(`UPDATE replica SET beat = 0 WHERE name = ?`, name) // its last beat was long ago
			return err
		}))
	})
	t.Cleanup(m.kill)
	return &m
}

// load waits until the open journals belong to replicas as is wanted.
func (r *replicas) load(t *testing.T, wanted func(map[string]int) bool) map[string]int {
	t.Helper()
	var load map[string]int
	require.Eventually(t, func() bool {
		var err error
		load, err = r.Store.Load(t.Context())
		return err == nil && wanted(load)
	}, waittest.Bound, 5*time.Millisecond, "%v", &load)
	return load
}

// ended waits for the end of an evaluation as a replica sees it.
func (m *member) ended(t *testing.T, name string) *agentv1.Eval {
	t.Helper()
	s, err := m.evals.Wait(t.Context(), name, waittest.Bound)
	require.NoError(t, err)
	require.True(t, s.Ended(), "the evaluation is late")
	return s.Eval
}

// answering gives each model call its answer once let is closed.
func answering(let chan struct{}) func(context.Context, *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
	return func(ctx context.Context, _ *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
		select {
		case <-let:
			return servicetest.Say("A"), nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// TestSamplesBelongToAnyReplica: the samples of one evaluation are shared by the replicas that live. When its driver
// dies, the others share what that had, and nothing happens twice.
func TestSamplesBelongToAnyReplica(t *testing.T) {
	t.Parallel()
	const samples = 12
	r := newReplicas(t)
	let := make(chan struct{})
	r.Models.Answer = answering(let)
	two := r.start(t, "two")
	r.start(t, "three")
	one := r.start(t, "one")
	made, err := one.evals.Create(t.Context(), "p", spec(samples), "", false)
	require.NoError(t, err)
	name := made.Eval.GetName()
	shared := r.load(t, func(load map[string]int) bool {
		return load["one"]+load["two"]+load["three"] == samples+1 && load["two"] > 0 && load["three"] > 0
	})
	for _, replica := range []string{"two", "three"} {
		assert.LessOrEqual(t, shared[replica], (samples+1+2)/3, "an even share of %v", shared)
	}

	one.kill()
	inherited := r.load(t, func(load map[string]int) bool { return load["two"]+load["three"] == samples+1 })
	for _, replica := range []string{"two", "three"} {
		assert.Greater(t, inherited[replica], shared[replica], "each takes some of what the dead one had: %v", inherited)
		assert.LessOrEqual(t, inherited[replica], (samples+1+1)/2, "and no more than its share: %v", inherited)
	}
	close(let)
	got := two.ended(t, name)
	assert.Equal(t, agentv1.EvalState_EVAL_STATE_SUCCEEDED, got.GetState())
	assert.EqualValues(t, samples, got.GetProgress().GetSucceeded())
	assert.Equal(t, samples, r.Models.Total(), "each model call was made once")
	runs, err := r.Store.List(t.Context(), journal.Query{Parent: name})
	require.NoError(t, err)
	require.Len(t, runs, samples)
	for _, l := range runs {
		ends := 0
		for e, err := range journal.All(t.Context(), r.Store, l.Ref, 0) {
			require.NoError(t, err)
			if e.GetRunFinished() != nil {
				ends++
			}
			if l.Before = e.GetOwnerChanged().GetOwner(); l.Before != "" {
				assert.Equal(t, agentv1.OwnerChangeReason_OWNER_CHANGE_REASON_TAKEOVER, e.GetOwnerChanged().GetReason(), "a claim of what none had is no change of owner")
			}
		}
		assert.Equal(t, 1, ends)
	}
	load, err := r.Store.Load(t.Context())
	require.NoError(t, err)
	assert.Empty(t, load, "nothing is left open")
}

// TestACancelReachesTheSamplesOfAllReplicas: it comes by a replica that does not drive the evaluation, and the one that
// does owns only a part of its runs.
func TestACancelReachesTheSamplesOfAllReplicas(t *testing.T) {
	t.Parallel()
	const samples = 6
	r := newReplicas(t)
	r.Models.Answer = answering(nil)
	two, one := r.start(t, "two"), r.start(t, "one")
	made, err := one.evals.Create(t.Context(), "p", spec(samples), "", false)
	require.NoError(t, err)
	name := made.Eval.GetName()
	r.load(t, func(load map[string]int) bool { return load["one"]+load["two"] == samples+1 && load["two"] > 0 })
	changed, err := two.evals.Update(waittest.Context(t), name, eval.Update{Tags: &[]string{"seen"}}, "", "")
	require.NoError(t, err)
	assert.Contains(t, changed.Eval.GetSpec().GetTags(), "seen", "an update comes that way too")
	_, err = two.evals.Cancel(waittest.Context(t), name, "", "enough")
	require.NoError(t, err)
	got := two.ended(t, name)
	assert.Equal(t, agentv1.EvalState_EVAL_STATE_CANCELLED, got.GetState())
	assert.EqualValues(t, samples, got.GetProgress().GetCancelled())
}

// TestASampleOfTheOnlyReplicaWaitsForNoBeat: it begins with its run.
func TestASampleOfTheOnlyReplicaWaitsForNoBeat(t *testing.T) {
	t.Parallel()
	r := newReplicas(t)
	r.Config.Beat, r.Replica.TTL = time.Hour, 2*time.Hour
	r.Models.Answer = servicetest.ByTurn(servicetest.Says("A"))
	one := r.start(t, "one")
	made, err := one.evals.Create(t.Context(), "p", spec(3), "", false)
	require.NoError(t, err)
	assert.EqualValues(t, 3, one.ended(t, made.Eval.GetName()).GetProgress().GetSucceeded())
}

// TestAResumedEvaluationBelongsToTheReplicaThatResumedIt: its journal names it, so that no other one takes it up, and a
// process of before can write no more.
func TestAResumedEvaluationBelongsToTheReplicaThatResumedIt(t *testing.T) {
	t.Parallel()
	b := start(t, func(string, int, int) *agentv1.Run { return working() })
	made, err := b.engine.Create(t.Context(), "default", spec(3), "", false)
	require.NoError(t, err)
	name := made.Eval.GetName()
	b.wait(t, name, func(e *agentv1.Eval) bool { return e.GetProgress().GetRunning() == 3 })
	_, err = b.engine.Cancel(t.Context(), name, "", "")
	require.NoError(t, err)
	before, err := b.journals.Open(t.Context(), name)
	require.NoError(t, err)
	require.Equal(t, "test", before.Owner)
	b.replica = "other"
	other := b.newEngine()
	defer other.Close()
	_, err = other.Resume(t.Context(), name)
	require.NoError(t, err)
	after, err := b.journals.Open(t.Context(), name)
	require.NoError(t, err)
	assert.Equal(t, "other", after.Owner)
	assert.Greater(t, after.Epoch, before.Epoch)
}
