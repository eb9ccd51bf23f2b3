package turn_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent/generate"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/ownertest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
)

// TestTakeover has a replica die silently; another one goes on with its runs, and the dead one cannot write any more.
func TestTakeover(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.Config.Replica, f.Config.Beat, f.Config.TTL = "one", 20*time.Millisecond, 200*time.Millisecond
	silent := &silentStore{Store: f.Store}
	f.Wrap = func(journal.Store) journal.Store { return silent }
	f.start()
	one := f.Stop
	let, begun := make(chan struct{}), make(chan struct{}, 1)
	f.Models.Answer = func(context.Context, *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
		begun <- struct{}{}
		<-let
		return ownertest.Say("ok"), nil
	}
	name := f.Create(spec(step("generate", ""))).Name
	<-begun
	silent.dead.Store(true)

	f.Wrap = nil
	f.Config.Replica = "two"
	f.start()
	t.Cleanup(one)
	require.Eventually(t, func() bool {
		head, err := f.Store.Open(t.Context(), name)
		return err == nil && head.Owner == "two"
	}, 5*time.Second, 10*time.Millisecond)
	close(let)
	got := f.Finish(name)
	assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, got.Phase)
	assert.Equal(t, "two", got.Owner)
	assert.Equal(t, 1, f.Models.Total())
	outcomes := 0
	for e, err := range f.Events(name) {
		require.NoError(t, err)
		if e.GetModelOutcome() != nil {
			outcomes++
			assert.Equal(t, int64(2), e.GetEpoch())
		}
	}
	assert.Equal(t, 1, outcomes)
}

// silentStore stops beating.
type silentStore struct {
	journal.Store
	dead atomic.Bool
}

func (s *silentStore) Beat(ctx context.Context, replica string, now time.Time) error {
	if s.dead.Load() {
		return nil
	}
	return s.Store.Beat(ctx, replica, now)
}

func (s *silentStore) Adopt(ctx context.Context, a journal.Adoption) ([]journal.Listed, error) {
	if s.dead.Load() {
		return nil, nil
	}
	return s.Store.Adopt(ctx, a)
}

func TestLeasesAreRenewed(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.Config.RenewLeases = 10 * time.Millisecond
	f.start()
	s := spec(step("react", ""))
	s.Input, s.KeepSandboxes = nil, true
	s.Sandboxes = map[string]*sandboxv1.SandboxSpec{"default": {}}
	name := f.Create(s).Name
	renewed := func() bool { return f.Sandboxes.Renewed("projects/p/sandboxes/s1") > 1 }
	require.Eventually(t, renewed, 5*time.Second, 5*time.Millisecond, "a run that waits keeps its sandbox")
	f.End()
	before := f.Sandboxes.Renewed("projects/p/sandboxes/s1")
	f.start()
	require.Eventually(t, func() bool { return f.Sandboxes.Renewed("projects/p/sandboxes/s1") > before }, 5*time.Second, 5*time.Millisecond, "also after a restart, without reading the run")
	f.send(name, "k", &agentv1.CancelRunRequest{})
	f.Finish(name)
	assert.Equal(t, []string{"projects/p/sandboxes/s1"}, f.Sandboxes.Alive(), "kept, under its lease")
	for e, err := range f.Events(name) {
		require.NoError(t, err)
		if r := e.GetSandboxRemoved(); r != nil {
			assert.True(t, r.GetKept())
		}
	}
}

// endless is an agent that never wants anything.
type endless struct{ agent.NoTools }

func (endless) Apply(*agentv1.Event) {}

func (endless) Next(agent.View) (agent.Action, error) {
	return agent.Action{Events: []*agentv1.Event{agent.Note("endless", "again", "and again")}}, nil
}

func TestAnAgentWithoutEndFailsItsRunAlone(t *testing.T) {
	t.Parallel()
	f := newFleet(t, agent.Definition{
		Name: "endless", Parameters: `{"type": "object"}`, Resolve: func(*agentv1.AgentRef) error { return nil },
		New: func(*agentv1.AgentRef) (agent.Machine, error) { return endless{}, nil },
	}).start()
	f.Models.Answer = ownertest.ByTurn(ownertest.Says("ok"))
	bad, good := f.Create(spec(step("endless", ""))).Name, f.Create(spec(step("generate", ""))).Name
	assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, f.Finish(good).Phase)
	got := f.Finish(bad)
	assert.Equal(t, agentv1.RunState_RUN_STATE_FAILED, got.Phase)
	assert.Equal(t, "INTERNAL", got.Error.GetReason())
}

// TestStoreHiccup has an append fail once for a reason that passes.
func TestStoreHiccup(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	hiccup := &hiccupStore{Store: f.Store}
	f.Wrap = func(journal.Store) journal.Store { return hiccup }
	f.start()
	f.Models.Answer = ownertest.ByTurn(ownertest.Says("ok"))
	got := f.Finish(f.Create(spec(step("generate", ""))).Name)
	assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, got.Phase)
	assert.Equal(t, 1, f.Models.Total())
}

type hiccupStore struct {
	journal.Store
	calls atomic.Int32
}

func (s *hiccupStore) Append(ctx context.Context, a journal.Append) error {
	if s.calls.Add(1) == 2 {
		return errors.New("disk is full")
	}
	return s.Store.Append(ctx, a)
}

// patient is an agent that waits for an operator.
type patient struct {
	agent.NoTools
	heard bool
}

func (p *patient) Apply(e *agentv1.Event) { p.heard = p.heard || e.GetMessageAdded() != nil }

func (p *patient) Next(agent.View) (agent.Action, error) {
	if p.heard {
		return agent.Action{Then: agent.Done{}}, nil
	}
	return agent.Action{Then: agent.Wait{}}, nil
}

// TestOlderVersionLeavesTheRunAlone has a version take over a run whose agent it does not know, and then one that does.
func TestOlderVersionLeavesTheRunAlone(t *testing.T) {
	t.Parallel()
	definition := agent.Definition{
		Name: "patient", Parameters: `{"type": "object"}`, Resolve: func(*agentv1.AgentRef) error { return nil },
		New: func(*agentv1.AgentRef) (agent.Machine, error) { return &patient{}, nil },
	}
	f := newFleet(t, definition).start()
	newer := f.Agents
	name := f.Create(spec(step("patient", ""))).Name
	before := f.Until(name, func(s *run.State) bool { return s.Phase == agentv1.RunState_RUN_STATE_WAITING })
	f.End()

	f.Agents = agent.NewRegistry(generate.Definition())
	f.start()
	f.send(name, "m", &agentv1.PostMessageRequest{Messages: []*modelv1.ChatMessage{user("Go.")}})
	require.Eventually(t, func() bool { return !f.Engine.Drives(name) }, 5*time.Second, 5*time.Millisecond)
	assert.Equal(t, before.Seq, f.State(name).Seq)
	f.End()

	f.Agents = newer
	f.start()
	assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, f.Finish(name).Phase)
}
