package engine_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/sqlite"
	"github.com/evalfleet/evalfleet/pkg/sqlite/sqlitefault"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/servicetest"
)

// talkative is a run of three turns with two tool calls side by side in each but the last; every effect takes a while.
// Each run ends with the same conversation.
func (f *fleet) talkative() *agentv1.RunSpec {
	pause := func(ctx context.Context) {
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	f.Tools.Tools["echo"] = servicetest.Tool{Parallel: true, Run: func(ctx context.Context, c servicetest.Call) (*toolv1.ToolResult, error) {
		pause(ctx)
		return servicetest.Text(fmt.Sprint(c.Arguments["text"])), nil
	}}
	f.Models.Answer = func(ctx context.Context, r *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
		pause(ctx)
		if turn := r.GetAttribution().GetTurn(); turn < 3 {
			return servicetest.Say("go", call("a", "echo", fmt.Sprintf(`{"text": "a%d"}`, turn)), call("b", "echo", fmt.Sprintf(`{"text": "b%d"}`, turn))), nil
		}
		return servicetest.Say("end"), nil
	}
	s := spec(step("generate", "", "echo"))
	s.Sandboxes = map[string]*sandboxv1.SandboxSpec{"default": {}}
	return s
}

var talked = []string{"U:Start.", "A:go", "T:a1", "T:b1", "A:go", "T:a2", "T:b2", "A:end"}

// checkTalked checks that runs ended as on a calm day, and that nothing happened twice.
func (f *fleet) checkTalked(names []string) {
	f.T.Helper()
	for _, name := range names {
		got := f.Finish(name)
		assert.Equal(f.T, agentv1.RunState_RUN_STATE_SUCCEEDED, got.Phase, "%s: %v", name, got.Error)
		assert.Equal(f.T, talked, texts(got.Messages()))
	}
	assert.Equal(f.T, 3*len(names), f.Models.Total())
	assert.Equal(f.T, 4*len(names), f.Tools.Total())
	f.Tools.CheckOnce(f.T)
	assert.Empty(f.T, f.Sandboxes.Alive())
}

// TestAnOutageOfTheStoreCostsNoRun has the disk below the journals fail for a while.
func TestAnOutageOfTheStoreCostsNoRun(t *testing.T) {
	t.Parallel()
	for what, fault := range map[string]sqlitefault.Fault{"a full disk": sqlitefault.Full, "a failing fsync": sqlitefault.Sync, "no disk": sqlitefault.Gone} {
		for _, outage := range []time.Duration{300 * time.Millisecond, 1500 * time.Millisecond, 8 * time.Second, 45 * time.Second} {
			t.Run(fmt.Sprintf("%s for %s", what, outage), func(t *testing.T) {
				t.Parallel()
				disk := sqlitefault.New()
				synctest.Test(t, func(t *testing.T) {
					f := newFleetOn(t, disk.Name(), "")
					f.Config.RenewLeases = time.Second
					f.start()
					s := f.talkative()
					var names []string
					for range 12 {
						names = append(names, f.Create(s).Name)
					}
					time.Sleep(500 * time.Millisecond) // Runs are in the middle of their turns.
					disk.Fail(fault)
					time.Sleep(outage / 2)
					renewed := f.Sandboxes.Renewed("projects/p/sandboxes/s1")
					time.Sleep(outage / 2)
					assert.Positive(t, disk.Failed())
					if outage > time.Second {
						for _, name := range names {
							wait := f.Engine.Waiting(name)
							assert.Equal(t, agentv1.WaitReason_WAIT_REASON_STORE, wait.GetReason())
							assert.NotEmpty(t, wait.GetMessage())
							assert.True(t, wait.GetRetryTime().IsValid())
						}
						assert.Equal(t, agentv1.WaitReason_WAIT_REASON_STORE, f.Engine.Hold().GetReason(), "no new work begins")
					}
					if outage > 5*time.Second {
						assert.Greater(t, f.Sandboxes.Renewed("projects/p/sandboxes/s1"), renewed, "who waits keeps its sandbox")
					}
					disk.Fail(sqlitefault.None)
					f.checkTalked(names)
					time.Sleep(2 * time.Second)
					assert.Nil(t, f.Engine.Hold())
					f.End()
				})
			})
		}
	}
}

// TestACancelIsTakenDuringAnOutage has appends fail while the inbox takes the cancel, and the other way round.
func TestACancelDuringAnOutage(t *testing.T) {
	t.Parallel()
	disk := sqlitefault.New()
	synctest.Test(t, func(t *testing.T) {
		f := newFleetOn(t, disk.Name(), "")
		store := &appendsAway{Store: f.Store}
		f.Wrap = func(journal.Store) journal.Store { return store }
		f.start()
		name := f.Create(f.talkative()).Name
		time.Sleep(500 * time.Millisecond)
		store.away.Store(true)
		time.Sleep(20 * time.Second)
		require.Equal(t, agentv1.WaitReason_WAIT_REASON_STORE, f.Engine.Waiting(name).GetReason())
		f.send(name, "k", &agentv1.CancelRunRequest{})
		models := f.Models.Total()
		store.away.Store(false)
		assert.Equal(t, agentv1.RunState_RUN_STATE_CANCELLED, f.Finish(name).Phase)
		assert.Equal(t, models, f.Models.Total(), "nothing began after the cancel")
		f.End()
	})
}

// TestWhatWasMadeWithoutAnAnswerIsDriven has a run become durable while its maker gets an error.
func TestWhatWasMadeWithoutAnAnswerIsDriven(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		store := &deafStore{Store: f.Store}
		f.Wrap = func(journal.Store) journal.Store { return store }
		f.start()
		s := f.talkative()
		store.deaf.Store(true)
		plan, err := f.Runs.Check(t.Context(), "p", s)
		require.NoError(t, err)
		_, err = f.Runs.Start(t.Context(), plan, noRequest, "user:test")
		require.True(t, rpcerr.StoreAway(err))
		store.deaf.Store(false)
		rows, err := f.Store.List(t.Context(), journal.Query{})
		require.NoError(t, err)
		require.Len(t, rows, 1)
		f.checkTalked([]string{rows[0].Name})
		f.End()
	})
}

// TestAnAppendThatWasRefusedAndIsDurable makes appends durable although they return an error, as a broken connection
// with a repeated request may do.
func TestAnAppendThatWasRefusedAndIsDurable(t *testing.T) {
	t.Parallel()
	for answer, err := range map[string]error{"fenced": journal.ErrFenced, "away": away} {
		t.Run(answer, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t)
				f.Wrap = func(s journal.Store) journal.Store { return &liar{Store: s, says: err} }
				f.start()
				s := f.talkative()
				f.checkTalked([]string{f.Create(s).Name, f.Create(s).Name})
				f.End()
			})
		})
	}
}

// TestAFullDisk fills a real one below the journals.
func TestAFullDisk(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("mounting a small disk needs root")
	}
	dir := t.TempDir()
	require.NoError(t, syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"))
	t.Cleanup(func() { assert.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	f := newFleetOn(t, "", dir)
	f.start()
	s := f.talkative()
	names := []string{f.Create(s).Name, f.Create(s).Name, f.Create(s).Name}
	f.Until(names[0], func(s *run.State) bool { return len(s.Open) > 0 })
	ballast := filepath.Join(dir, "ballast")
	fill(t, ballast)
	waits := func(reason agentv1.WaitReason) func() bool {
		return func() bool {
			for _, name := range names {
				if f.Engine.Waiting(name).GetReason() != reason {
					return false
				}
			}
			return true
		}
	}
	require.Eventually(t, waits(agentv1.WaitReason_WAIT_REASON_STORE), waittest.Bound, 10*time.Millisecond, "the runs wait for the store")
	assert.ErrorContains(t, f.DB.Write(t.Context(), func(tx *sqlite.Tx) error {
		_, err := tx.Exec("CREATE TABLE more AS SELECT zeroblob(1000000)")
		return err
	}), "full")
	require.NoError(t, os.Remove(ballast))
	f.checkTalked(names)
}

// fill writes a file until its disk is full.
func fill(t *testing.T, path string) {
	t.Helper()
	file, err := os.Create(path)
	require.NoError(t, err)
	for err == nil {
		_, err = file.Write(make([]byte, 4096))
	}
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.NoError(t, file.Close())
}
