package engine_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/replica"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/servicetest"
)

// countingModels counts the calls that one replica makes.
type countingModels struct {
	*servicetest.Models
	calls atomic.Int32
}

func (m *countingModels) Generate(ctx context.Context, r *modelv1.GenerateRequest, o ...callOption) (*modelv1.GenerateResponse, error) {
	if !r.GetValidateOnly() {
		m.calls.Add(1)
	}
	return m.Models.Generate(ctx, r, o...)
}

// A replica that beats again after a lapse asks for nothing of a run that rested when it was taken over: it reads the
// journal first, and another wrote that.
func TestARunThatRestedDuringALapseIsNotDriven(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.Replica.Name = "one"
		silent := &silence{fails: errors.New("no beat")}
		after := f.silenced(silent)
		ones := &countingModels{Models: f.Models}
		f.WrapModels = ones
		let := make(chan struct{})
		f.Models.Answer = func(context.Context, *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
			<-let
			return servicetest.Say("ok"), nil
		}
		f.start()
		one, stopOne := f.Engine, f.Stop
		s := spec(step("react", ""))
		s.Input = nil
		name := f.Create(s).Name
		f.Until(name, func(s *run.State) bool { return s.Phase == agentv1.RunState_RUN_STATE_WAITING })
		silent.dead.Store(true)

		after()
		f.WrapModels = nil
		f.Replica.Name = "two"
		f.start()
		time.Sleep(time.Minute)
		head, err := f.Store.Open(t.Context(), name)
		require.NoError(t, err)
		require.Equal(t, "two", head.Owner)
		silent.dead.Store(false)
		time.Sleep(time.Minute)
		f.send(name, "m", &agentv1.PostMessageRequest{Messages: []*modelv1.ChatMessage{user("Go.")}})
		f.Until(name, func(s *run.State) bool { return len(s.Open) > 0 })
		one.Wake(name)
		synctest.Wait()
		assert.Zero(t, ones.calls.Load())
		assert.False(t, one.Drives(name))
		f.send(name, "c", &agentv1.CancelRunRequest{})
		close(let)
		f.Finish(name)
		stopOne()
		f.End()
	})
}

// slowTable takes long for a beat.
type slowTable struct {
	replica.Table
	slow atomic.Bool
}

func (s *slowTable) Beat(ctx context.Context, process string) error {
	if s.slow.Load() {
		time.Sleep(10 * time.Second)
	}
	return s.Table.Beat(ctx, process)
}

// A store that answers late is not taken for a machine that slept, after which leases are renewed at once.
func TestASlowStoreIsNoStandstill(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.Config.RenewLeases = time.Hour
		store := &slowTable{Table: f.Replica.Table}
		f.Replica.Table = store
		f.start()
		s := spec(step("react", ""))
		s.Input = nil
		s.Sandboxes = map[string]*sandboxv1.SandboxSpec{"default": {}}
		name := f.Create(s).Name
		f.Until(name, func(s *run.State) bool { return s.Phase == agentv1.RunState_RUN_STATE_WAITING })
		time.Sleep(time.Minute)
		before := f.Sandboxes.Renewed("projects/p/sandboxes/s1")
		store.slow.Store(true)
		time.Sleep(10 * time.Minute)
		store.slow.Store(false)
		assert.Equal(t, before, f.Sandboxes.Renewed("projects/p/sandboxes/s1"))
		time.Sleep(time.Minute)
		f.send(name, "c", &agentv1.CancelRunRequest{})
		f.Finish(name)
		f.End()
	})
}

// deafClaim claims and answers with an error.
type deafClaim struct {
	journal.Store
	deaf atomic.Bool
}

func (s *deafClaim) Claim(ctx context.Context, c journal.Claim) ([]journal.Listed, error) {
	page, err := s.Store.Claim(ctx, c)
	if len(page) > 0 && s.deaf.Swap(false) {
		return nil, away
	}
	return page, err
}

// A run whose adoption was answered with an error is not credited with the absence before the process that adopted it.
func TestWhatIsTakenUpAgainWasNotAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.Replica.Name = "two"
		f.start()
		time.Sleep(time.Minute)
		f.End()
		time.Sleep(48 * time.Hour)

		f.Replica.Name = "one"
		silent := &silence{}
		after := f.silenced(silent)
		let := make(chan struct{})
		f.Models.Answer = func(context.Context, *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
			<-let
			return servicetest.Say("ok"), nil
		}
		f.start()
		stopOne := f.Stop
		s := spec(step("generate", ""))
		s.Limits = &agentv1.RunLimits{Time: durationpb.New(time.Hour)}
		name := f.Create(s).Name
		synctest.Wait()
		silent.dead.Store(true)

		after()
		f.Replica.Name = "two"
		store := &deafClaim{Store: f.Store}
		store.deaf.Store(true)
		f.Wrap = func(journal.Store) journal.Store { return store }
		f.start()
		time.Sleep(time.Minute)
		assert.False(t, store.deaf.Load())
		close(let)
		assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, f.Finish(name).Phase)
		for e, err := range f.Events(name) {
			require.NoError(t, err)
			assert.Less(t, e.GetOwnerChanged().GetAway().AsDuration(), time.Hour)
		}
		stopOne()
		f.End()
	})
}

// A store that takes long to answer, or to fail, is shown within two beats, and no longer than that.
func TestAStoreThatDoesNotAnswerIsShownSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		store := &slowTable{Table: f.Replica.Table}
		f.Replica.Table = store
		f.Config.Beat = time.Second
		f.start()
		let := make(chan struct{})
		f.Models.Answer = func(context.Context, *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
			<-let
			return servicetest.Say("ok"), nil
		}
		name := f.Create(spec(step("generate", ""))).Name
		synctest.Wait()
		assert.Nil(t, f.Engine.Waiting(name))
		store.slow.Store(true)
		time.Sleep(2*f.Config.Beat + time.Millisecond)
		assert.Equal(t, agentv1.WaitReason_WAIT_REASON_STORE, f.Engine.Waiting(name).GetReason())
		store.slow.Store(false)
		time.Sleep(10 * time.Second) // Until the slow beat has ended.
		assert.Nil(t, f.Engine.Waiting(name))
		close(let)
		assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, f.Finish(name).Phase)
		f.End()
	})
}

// Once a slow beat has failed, runs show why. A store that answers with another error is not shown as away.
func TestASlowBeatThatFailsSaysWhy(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		err  error
		says string
	}{
		{"away", rpcerr.StoreUnavailable("disk", 0, "the disk is gone"), "the disk is gone"},
		{"another error", errors.New("no beat"), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t)
				store := &failingTable{Table: f.Replica.Table}
				f.Replica.Table = store
				f.Config.Beat = time.Second
				f.start()
				let := make(chan struct{})
				f.Models.Answer = func(context.Context, *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
					<-let
					return servicetest.Say("ok"), nil
				}
				name := f.Create(spec(step("generate", ""))).Name
				synctest.Wait()
				store.fails.Store(&c.err)
				time.Sleep(2*f.Config.Beat + time.Millisecond)
				assert.Contains(t, f.Engine.Waiting(name).GetMessage(), "the store has not answered for 1s")
				time.Sleep(failingBeat - 600*time.Millisecond) // Until the beat has failed, and before the next one is late.
				assert.Equal(t, c.says, f.Engine.Waiting(name).GetMessage())
				store.fails.Store(nil)
				time.Sleep(2 * failingBeat)
				assert.Nil(t, f.Engine.Waiting(name))
				close(let)
				assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, f.Finish(name).Phase)
				f.End()
			})
		})
	}
}

// failingBeat is how long a beat of a failingTable takes.
const failingBeat = 2500 * time.Millisecond

// failingTable fails each beat after a while.
type failingTable struct {
	replica.Table
	fails atomic.Pointer[error] // nil means that nothing fails
}

func (s *failingTable) Beat(ctx context.Context, process string) error {
	if err := s.fails.Load(); err != nil {
		time.Sleep(failingBeat)
		return *err
	}
	return s.Table.Beat(ctx, process)
}
