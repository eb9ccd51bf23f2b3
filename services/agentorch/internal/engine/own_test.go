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

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/replica"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/sqlite"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent/generate"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/waits"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/servicetest"
)

// Leases that nearly ran out while no engine was there are renewed as soon as one is, whatever the runs do: one is at
// work, and one waits.
func TestLeasesAreRenewedAtOnceAtAStart(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.Config.Beat = 10 * time.Millisecond // leases are renewed every two minutes
	f.start()
	begun, let := make(chan struct{}, 1), make(chan struct{})
	t.Cleanup(func() { close(let) }) // before the fleet's own, which waits for the call
	var asked atomic.Int32
	f.Models.Answer = func(context.Context, *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
		if asked.Add(1) > 1 {
			return nil, rpcerr.ConnectionQueueFull("openai/default", time.Hour, "full")
		}
		begun <- struct{}{}
		waittest.Hold(t, let)
		return servicetest.Say("ok"), nil
	}
	s := spec(step("generate", ""))
	s.Sandboxes = map[string]*sandboxv1.SandboxSpec{"default": {}}
	f.Create(s)
	waittest.For(t, begun, "the model call of the first run")
	f.Until(f.Create(s).Name, func(s *run.State) bool { return s.Phase == agentv1.RunState_RUN_STATE_WAITING })
	f.End()
	before := map[string]int{}
	boxes := []string{"projects/p/sandboxes/s1", "projects/p/sandboxes/s2"}
	for _, box := range boxes {
		before[box] = f.Sandboxes.Renewed(box)
	}
	f.Sandboxes.Away.Store(2) // sandboxd comes a little later
	f.start()
	for _, box := range boxes {
		require.Eventually(t, func() bool { return f.Sandboxes.Renewed(box) > before[box] }, waittest.Bound, 5*time.Millisecond, "%s is renewed", box)
	}
}

// The row of a waiting run lists its sandboxes. If the row cannot be read, the journal does, however long it takes to
// read: the sandboxes of other runs are renewed before.
func TestLeasesAreRenewedOfARunWhoseRowIsDamaged(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.Config.Beat = 10 * time.Millisecond // leases are renewed every two minutes
	f.start()
	f.Models.Answer = func(context.Context, *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
		return nil, rpcerr.ConnectionQueueFull("openai/default", time.Hour, "full")
	}
	s := spec(step("generate", ""))
	s.Sandboxes = map[string]*sandboxv1.SandboxSpec{"default": {}}
	waits := func(s *run.State) bool { return s.Phase == agentv1.RunState_RUN_STATE_WAITING }
	f.Until(f.Create(s).Name, waits)
	damaged := f.Create(s).Name
	f.Until(damaged, waits)
	f.End()
	require.NoError(t, f.DB.Write(t.Context(), func(tx *sqlite.Tx) error {
		_, err := tx.Exec(`UPDATE view_journal SET view = 'damaged' WHERE id = (SELECT id FROM journal WHERE name = ?)`, damaged)
		return err
	}))
	const box, boxOfDamaged = "projects/p/sandboxes/s1", "projects/p/sandboxes/s2"
	before, beforeOfDamaged := f.Sandboxes.Renewed(box), f.Sandboxes.Renewed(boxOfDamaged)
	read := make(chan struct{})
	f.Wrap = func(store journal.Store) journal.Store { return &slowStore{Store: store, t: t, read: read} }
	f.start()
	require.Eventually(t, func() bool { return f.Sandboxes.Renewed(box) > before }, waittest.Bound, 5*time.Millisecond)
	close(read)
	require.Eventually(t, func() bool { return f.Sandboxes.Renewed(boxOfDamaged) > beforeOfDamaged }, waittest.Bound, 5*time.Millisecond)
}

// slowStore is a store whose journals are read when read is closed.
type slowStore struct {
	journal.Store
	t    *testing.T
	read chan struct{}
}

func (s *slowStore) Read(ctx context.Context, ref journal.Ref, r journal.Range) ([]*agentv1.Event, error) {
	waittest.Hold(s.t, s.read)
	return s.Store.Read(ctx, ref, r)
}

// A run whose time is bounded is not charged for the time in which no server was there, be it that it works or waits,
// and whether the server stopped or was killed.
func TestBoundsOfTimeDoNotCountTheServersAbsence(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ killed, waits bool }{
		"stopped, at work": {}, "killed, at work": {killed: true}, "stopped, waiting": {waits: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t)
				silent := &silence{}
				f.silenced(silent)
				f.Config.Beat, f.Replica.TTL = time.Minute, 5*time.Minute
				f.start()
				begun, let := make(chan struct{}, 2), make(chan struct{})
				f.Models.Answer = func(context.Context, *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
					if begun <- struct{}{}; tt.waits && len(begun) == 1 {
						return nil, rpcerr.ConnectionQueueFull("openai/default", 50*time.Minute, "full")
					}
					<-let
					return servicetest.Say("ok"), nil
				}
				s := spec(step("generate", ""))
				s.Limits = &agentv1.RunLimits{Time: durationpb.New(time.Hour)}
				inTime, late := f.Create(s).Name, ""
				synctest.Wait()
				time.Sleep(30 * time.Minute)
				for range 2 { // absences add up
					silent.dead.Store(tt.killed)
					f.End()
					time.Sleep(3 * time.Hour)
					silent.dead.Store(false)
					f.start()
					time.Sleep(10 * time.Minute)
				}
				assert.Nil(t, f.State(inTime).Limit)
				if tt.waits {
					late = inTime
				} else {
					close(let)
					assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, f.Finish(inTime).Phase)
					return
				}
				time.Sleep(20 * time.Minute)
				assert.Equal(t, agentv1.LimitType_LIMIT_TYPE_TIME, f.State(late).Limit.GetType(), "its own time counts")
				close(let)
				f.Finish(late)
			})
		})
	}
}

// TestTakeover lets a replica die silently. Another replica continues its runs, and the dead one can no longer write.
func TestTakeover(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.Replica.Name, f.Config.Beat, f.Replica.TTL = "one", 20*time.Millisecond, 200*time.Millisecond
	silent := &silence{}
	after := f.silenced(silent)
	f.start()
	one := f.Stop
	let, begun := make(chan struct{}), make(chan struct{}, 1)
	f.Models.Answer = func(context.Context, *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
		begun <- struct{}{}
		waittest.Hold(t, let)
		return servicetest.Say("ok"), nil
	}
	name := f.Create(spec(step("generate", ""))).Name
	waittest.For(t, begun, "the model call of the run")
	silent.dead.Store(true)

	after()
	f.Replica.Name = "two"
	f.start()
	t.Cleanup(one)
	require.Eventually(t, func() bool {
		head, err := f.Store.Open(t.Context(), name)
		return err == nil && head.Owner == "two"
	}, waittest.Bound, 10*time.Millisecond)
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

// A replica that cannot beat requests no effects, since another may own its runs by then. It requests none of a run
// that another took over.
func TestAReplicaThatCannotBeatAsksForNothing(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.Replica.Name, f.Config.Beat, f.Replica.TTL = "one", 20*time.Millisecond, 200*time.Millisecond
	silent := &silence{fails: errors.New("no beat")}
	after := f.silenced(silent)
	away := &awayModels{Models: f.Models}
	f.WrapModels = away
	f.Models.Answer = servicetest.ByTurn(servicetest.Says("ok"))
	f.start()
	one, stopOne := f.Engine, f.Stop
	name := f.Create(spec(step("generate", ""))).Name
	require.Eventually(t, func() bool { return away.calls.Load() > 1 }, waittest.Bound, time.Millisecond, "it asks again and again")
	silent.dead.Store(true)

	after()
	f.WrapModels = nil
	f.Replica.Name = "two"
	f.start()
	t.Cleanup(stopOne)
	assert.Equal(t, "two", f.Finish(name).Owner)
	asked := away.calls.Load()
	silent.dead.Store(false)
	require.Eventually(t, func() bool { return !one.Drives(name) }, waittest.Bound, time.Millisecond, "it finds that the run is another's")
	assert.Equal(t, asked, away.calls.Load(), "and asked for nothing before that")
	assert.Equal(t, 1, f.Models.Total())
}

// awayModels answers no call.
type awayModels struct {
	*servicetest.Models
	calls atomic.Int32
}

func (m *awayModels) Generate(ctx context.Context, r *modelv1.GenerateRequest, o ...callOption) (*modelv1.GenerateResponse, error) {
	if r.GetValidateOnly() {
		return m.Models.Generate(ctx, r, o...)
	}
	m.calls.Add(1)
	return nil, rpcerr.ServiceUnavailable("modelgw", time.Second, "starting")
}

// Releases that an unreachable owner did not receive are repeated later, including commands of scorers.
func TestReleasesAreRepeated(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.Config.Beat, f.Config.KeepResults = 10*time.Millisecond, 1
	f.Sandboxes.Run = func(context.Context, *sandboxv1.ExecRequest) (*sandboxv1.ExecResult, error) {
		return &sandboxv1.ExecResult{}, nil
	}
	f.Models.Answer = servicetest.ByTurn(servicetest.Says("ok"))
	f.Models.Deaf.Store(3)
	f.Sandboxes.Deaf.Store(3)
	f.start()
	s := spec(step("generate", ""))
	s.Sandboxes = map[string]*sandboxv1.SandboxSpec{"default": {}}
	s.Scorers = []*agentv1.ScorerRef{{Name: "exec", ParamsJson: `{"program": "true", "language": "bash"}`}}
	f.Finish(f.Create(s).Name)
	require.Eventually(t, func() bool { return f.Models.Kept() == 0 }, waittest.Bound, 5*time.Millisecond, "the model's answer is released")
	require.Eventually(t, func() bool { return f.Sandboxes.Kept() == 1 }, waittest.Bound, 5*time.Millisecond, "the scorer's command is released; the making of the sandbox is with the run's end")
}

// silence is a replica that beats and claims no more, or fails to beat.
type silence struct {
	dead  atomic.Bool
	fails error // of beats when it is dead; nil means that nothing fails
}

// silenced makes the next engine fall silent as s defines. Call the returned function before later engines start.
func (f *fleet) silenced(s *silence) (after func()) {
	table := f.Replica.Table
	f.Wrap = func(store journal.Store) journal.Store { return &silentStore{Store: store, silence: s} }
	f.Replica.Table = &silentTable{Table: table, silence: s}
	return func() { f.Wrap, f.Replica.Table = nil, table }
}

type silentTable struct {
	replica.Table
	*silence
}

func (s *silentTable) Beat(ctx context.Context, process string) error {
	if s.dead.Load() {
		return s.fails
	}
	return s.Table.Beat(ctx, process)
}

func (s *silentTable) Leave(ctx context.Context, process string) error {
	if s.dead.Load() {
		return nil
	}
	return s.Table.Leave(ctx, process)
}

type silentStore struct {
	journal.Store
	*silence
}

func (s *silentStore) Claim(ctx context.Context, c journal.Claim) ([]journal.Listed, error) {
	if s.dead.Load() {
		return nil, nil
	}
	return s.Store.Claim(ctx, c)
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
	require.Eventually(t, renewed, waittest.Bound, 5*time.Millisecond, "a run that waits keeps its sandbox")
	f.End()
	before := f.Sandboxes.Renewed("projects/p/sandboxes/s1")
	f.start()
	require.Eventually(t, func() bool { return f.Sandboxes.Renewed("projects/p/sandboxes/s1") > before }, waittest.Bound, 5*time.Millisecond, "also after a restart, without reading the run")
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

// shareStore holds up the list of what a replica owned before.
type shareStore struct {
	journal.Store
	let chan struct{}
}

func (s *shareStore) List(ctx context.Context, q journal.Query) ([]journal.Listed, error) {
	if q.Owner != "" {
		select {
		case <-s.let:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return s.Store.List(ctx, q)
}

// A start resumes earlier work beside new work: earlier runs are fenced at once and resumed in pages, and none of that
// is in their journals.
func TestNewRunsDoNotWaitForThoseOfBefore(t *testing.T) {
	t.Parallel()
	f := newFleet(t, patientDefinition()).start()
	answer := make(chan struct{})
	f.Models.Answer = func(ctx context.Context, r *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
		if chat.Text(r.GetMessages()[0]) == "quick" {
			return servicetest.Say("ok"), nil
		}
		select {
		case <-answer:
			return servicetest.Say("ok"), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	working := f.Create(spec(step("generate", ""))).Name
	f.Until(working, func(s *run.State) bool { return len(s.Open) > 0 })
	parked := f.Create(spec(step("patient", ""))).Name
	f.Until(parked, func(s *run.State) bool { return s.Phase == agentv1.RunState_RUN_STATE_WAITING })
	f.End()
	before := f.State(working).Seq

	shares := &shareStore{Store: f.Store, let: make(chan struct{})}
	f.Wrap = func(journal.Store) journal.Store { return shares }
	f.start()
	quick := spec(step("generate", ""))
	quick.Input = []*modelv1.ChatMessage{user("quick")}
	assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, f.Finish(f.Create(quick).Name).Phase)
	assert.False(t, f.Engine.Drives(working))
	assert.Equal(t, before, f.State(working).Seq)
	f.send(parked, "m", &agentv1.PostMessageRequest{Messages: []*modelv1.ChatMessage{user("quick")}}) // before it is taken up

	close(shares.let)
	close(answer)
	assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, f.Finish(working).Phase)
	assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, f.Finish(parked).Phase)
	for _, name := range []string{working, parked} {
		for e, err := range f.Events(name) {
			require.NoError(t, err)
			assert.Nil(t, e.GetOwnerChanged(), "a restart is no change of owner")
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
	f.Models.Answer = servicetest.ByTurn(servicetest.Says("ok"))
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
	f.Models.Answer = servicetest.ByTurn(servicetest.Says("ok"))
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

func patientDefinition() agent.Definition {
	return agent.Definition{
		Name: "patient", Parameters: `{"type": "object"}`, Resolve: func(*agentv1.AgentRef) error { return nil },
		New: func(*agentv1.AgentRef) (agent.Machine, error) { return &patient{}, nil },
	}
}

// TestOlderVersionLeavesTheRunAlone has a version take over a run whose agent it does not know, and then one that does.
func TestOlderVersionLeavesTheRunAlone(t *testing.T) {
	t.Parallel()
	f := newFleet(t, patientDefinition()).start()
	newer := f.Agents
	name := f.Create(spec(step("patient", ""))).Name
	before := f.Until(name, func(s *run.State) bool { return s.Phase == agentv1.RunState_RUN_STATE_WAITING })
	f.End()

	f.Agents = agent.NewRegistry(generate.Definition())
	f.start()
	f.send(name, "m", &agentv1.PostMessageRequest{Messages: []*modelv1.ChatMessage{user("Go.")}})
	require.Eventually(t, func() bool { return f.Engine.Waiting(name).GetReason() == waits.Version }, waittest.Bound, 5*time.Millisecond, "the run waits for a later version")
	assert.Equal(t, before.Seq, f.State(name).Seq)
	f.End()

	f.Agents = newer
	f.start()
	assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, f.Finish(name).Phase)
}

// A nearly full disk parks new runs with a reason. Active runs end, and the parked ones begin when there is room, after
// a restart too.
func TestNewRunsWaitForRoom(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.Config.Beat = 10 * time.Millisecond
	var full atomic.Bool
	f.Lack = func() string {
		if full.Load() {
			return "the disk is nearly full"
		}
		return ""
	}
	f.start()
	asked, answer := make(chan struct{}, 4), make(chan struct{})
	f.Models.Answer = func(context.Context, *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
		asked <- struct{}{}
		waittest.Hold(t, answer)
		return servicetest.Say("ok"), nil
	}
	working := f.Create(spec(step("generate", ""))).Name
	waittest.For(t, asked, "the model call of the run")
	full.Store(true)
	var parked []string
	for range 2 {
		name := f.Create(spec(step("generate", ""))).Name
		waiting := f.Until(name, func(s *run.State) bool { return s.Phase == agentv1.RunState_RUN_STATE_WAITING })
		assert.Equal(t, agentv1.WaitReason_WAIT_REASON_DISK, waiting.Wait.GetReason())
		assert.Equal(t, "the disk is nearly full", waiting.Wait.GetMessage())
		parked = append(parked, name)
	}
	assert.Equal(t, agentv1.WaitReason_WAIT_REASON_DISK, f.Engine.Hold().GetReason(), "evaluations begin no sample either")
	close(answer)
	assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, f.Finish(working).Phase)
	f.send(parked[0], "stop", &agentv1.CancelRunRequest{})
	assert.Equal(t, agentv1.RunState_RUN_STATE_CANCELLED, f.Finish(parked[0]).Phase)
	f.End()
	f.start()
	full.Store(false)
	assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, f.Finish(parked[1]).Phase)
}
