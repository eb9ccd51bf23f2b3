package engine_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/evalfleet/evalfleet/pkg/enum"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/servicetest"
)

// phases returns the states that a run went through, with what it waited for.
func (f *fleet) phases(name string) (all []string) {
	s, last := run.New(name, nil), "PENDING"
	for e, err := range f.Events(name) {
		require.NoError(f.T, err)
		require.NoError(f.T, s.Apply(e))
		now := agentv1.RunState_name[int32(s.Phase)][len("RUN_STATE_"):] + enum.Word(s.Wait.GetReason())
		if s.Finished {
			now = "end"
		}
		if now != last && now != "PENDING" {
			all = append(all, now)
		}
		last = now
	}
	return all
}

func TestFullnessIsAWait(t *testing.T) {
	t.Parallel()
	f := newFleet(t).start()
	asked := 0
	f.Models.Answer = func(context.Context, *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
		if asked++; asked == 1 {
			return nil, rpcerr.ConnectionQueueFull("openai/default", 50*time.Millisecond, "full")
		}
		return servicetest.Say("ok"), nil
	}
	name := f.Create(spec(step("generate", ""))).Name
	got := f.Finish(name)
	assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, got.Phase)
	assert.Equal(t, []string{"RUNNING", "WAITINGcapacity", "RUNNING", "end"}, f.phases(name))
	assert.Equal(t, 1, f.Models.Total(), "what was full never began; the same key was asked for again")
}

// A call that waits for a batch is a wait of its run, which ends when the gateway says that the call waits no more,
// long before it would be asked again.
func TestABatchIsAWait(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.Models.Retries = make(chan *modelv1.WatchRetriesResponse)
	f.start()
	var pending atomic.Bool
	pending.Store(true)
	f.Models.Answer = func(_ context.Context, r *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
		assert.True(t, r.GetDeferBatched())
		if pending.Load() {
			return nil, rpcerr.BatchPending(r.GetModel(), r.GetRequestId(), time.Hour, "in a batch")
		}
		return servicetest.Say("ok"), nil
	}
	name := f.Create(spec(step("generate", ""))).Name
	f.Until(name, func(s *run.State) bool { return s.Wait.GetReason() == agentv1.WaitReason_WAIT_REASON_BATCH })
	f.End()
	f.start()
	state := f.Until(name, func(s *run.State) bool { return s.Wait.GetReason() == agentv1.WaitReason_WAIT_REASON_BATCH })
	pending.Store(false)
	id := strings.TrimPrefix(state.Wait.GetSubject(), "call ")
	finished := make(chan *run.State)
	go func() { finished <- f.Finish(name) }()
	for got := (*run.State)(nil); got == nil; { // The run may not listen yet when the news comes.
		select {
		case f.Models.Retries <- &modelv1.WatchRetriesResponse{Parent: state.Parent(), RequestId: id}:
		case got = <-finished:
			assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, got.Phase)
		}
	}
	assert.Equal(t, 1, f.Models.Total(), "it never began before")
}

func TestAwayIsNotAnError(t *testing.T) {
	t.Parallel()
	f := newFleet(t).start()
	f.Models.Answer = servicetest.ByTurn(servicetest.Says("ok"))
	flaky := &flakyModels{Models: f.Models}
	f.End()
	f.WrapModels = flaky
	f.start()
	got := f.Finish(f.Create(spec(step("generate", ""))).Name)
	assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, got.Phase)
	assert.Equal(t, int32(3), flaky.calls.Load())
	assert.Equal(t, 1, f.Models.Total())
}

// flakyModels is unreachable for two calls.
type flakyModels struct {
	*servicetest.Models
	calls atomic.Int32
}

func (m *flakyModels) Generate(ctx context.Context, r *modelv1.GenerateRequest, opts ...callOption) (*modelv1.GenerateResponse, error) {
	if !r.GetValidateOnly() && m.calls.Add(1) <= 2 {
		return nil, rpcerr.ServiceUnavailable("modelgw", time.Second, "starting")
	}
	return m.Models.Generate(ctx, r, opts...)
}

func TestProviderErrorsEndTheRun(t *testing.T) {
	t.Parallel()
	for _, no := range []error{
		rpcerr.ProviderUnavailable("openai", 503, time.Second, "the provider says no"),
		rpcerr.ScriptExhausted("mockllm/model", "1", 1, "the provider says no"),
		status.Error(codes.ResourceExhausted, "the provider says no"), // a message too large for the wire
	} {
		f := newFleet(t).start()
		f.Models.Answer = func(context.Context, *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
			return nil, rpcerr.FromStatus(no)
		}
		got := f.Finish(f.Create(spec(step("generate", ""))).Name)
		assert.Equal(t, agentv1.RunState_RUN_STATE_FAILED, got.Phase, no)
		assert.Equal(t, "the provider says no", got.Error.GetMessage())
	}
}

func TestGateBoundsOpenCalls(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.Config.MaxGenerates = 2
	f.start()
	var (
		open, most atomic.Int32
		begun      = make(chan struct{}, 10)
		let        = make(chan struct{})
	)
	f.Models.Answer = func(context.Context, *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
		most.Store(max(most.Load(), open.Add(1)))
		begun <- struct{}{}
		waittest.Hold(t, let)
		open.Add(-1)
		return servicetest.Say("ok"), nil
	}
	var names []string
	for range 6 {
		names = append(names, f.Create(spec(step("generate", ""))).Name)
	}
	waittest.For(t, begun, "the model calls that there is room for")
	waittest.For(t, begun, "the model calls that there is room for")
	for _, name := range names {
		f.Until(name, func(s *run.State) bool { return len(s.Open) == 1 })
	}
	close(let)
	for _, name := range names {
		assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, f.Finish(name).Phase)
	}
	assert.Equal(t, int32(2), most.Load())
}

func TestSandboxQuotaIsAWait(t *testing.T) {
	t.Parallel()
	f := newFleet(t).start()
	f.Models.Answer = servicetest.ByTurn(servicetest.Says("ok"))
	var once sync.Once
	f.Sandboxes.Refuse = func(*sandboxv1.CreateSandboxRequest) (err error) {
		once.Do(func() {
			err = rpcerr.SandboxQuota("sandboxes", 1, 20*time.Millisecond, "full")
		})
		return err
	}
	s := spec(step("generate", ""))
	s.Sandboxes = map[string]*sandboxv1.SandboxSpec{"default": {}}
	name := f.Create(s).Name
	f.Finish(name)
	assert.Equal(t, []string{"RUNNING", "WAITINGquota", "RUNNING", "end"}, f.phases(name))
	assert.Empty(t, f.Sandboxes.Alive())
}

// TestAnEngineThatIsAwayIsAWait makes a run wait for the engine of its sandbox, over a restart too, and continue when
// it is reachable again.
func TestAnEngineThatIsAwayIsAWait(t *testing.T) {
	t.Parallel()
	f := newFleet(t).start()
	f.Models.Answer = servicetest.ByTurn(servicetest.Says("ok"))
	var back atomic.Bool
	f.Sandboxes.Refuse = func(*sandboxv1.CreateSandboxRequest) error {
		if !back.Load() {
			return rpcerr.EngineUnavailable("docker", "unix:///no.sock", 20*time.Millisecond, "nobody listens there")
		}
		return nil
	}
	s := spec(step("generate", ""))
	s.Sandboxes = map[string]*sandboxv1.SandboxSpec{"default": {}}
	name := f.Create(s).Name
	waits := func(s *run.State) bool { return s.Phase == agentv1.RunState_RUN_STATE_WAITING }
	assert.Equal(t, "nobody listens there", f.Until(name, waits).Wait.GetMessage())
	f.End()
	f.start()
	assert.Equal(t, agentv1.WaitReason_WAIT_REASON_ENGINE, f.Until(name, waits).Wait.GetReason())
	back.Store(true)
	assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, f.Finish(name).Phase)
	assert.Equal(t, 1, f.Sandboxes.Made())
}

// TestWaitSurvivesARestart ends the engine while a run waits, and finds it waiting, then done.
func TestWaitSurvivesARestart(t *testing.T) {
	t.Parallel()
	f := newFleet(t).start()
	var full atomic.Bool
	full.Store(true)
	f.Models.Answer = func(context.Context, *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
		if full.Load() {
			return nil, rpcerr.BudgetExhausted("projects/p", 300*time.Millisecond, "spent")
		}
		return servicetest.Say("ok"), nil
	}
	name := f.Create(spec(step("generate", ""))).Name
	f.Until(name, func(s *run.State) bool { return s.Phase == agentv1.RunState_RUN_STATE_WAITING })
	f.End()
	full.Store(false)
	f.start()
	got := f.Finish(name)
	assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, got.Phase)
	assert.Equal(t, []string{"RUNNING", "WAITINGbudget", "RUNNING", "end"}, f.phases(name))
	assert.Equal(t, int64(2), got.Epoch)
}

// unserved makes calls of the tool `weather` wait for a worker, without polling, until there is set.
func (f *fleet) unserved() (there *atomic.Bool) {
	there = &atomic.Bool{}
	f.Tools.Workers = make(chan *toolv1.WatchWorkersResponse)
	f.Tools.Tools["weather"] = servicetest.Tool{Run: func(context.Context, servicetest.Call) (*toolv1.ToolResult, error) {
		if !there.Load() {
			return nil, rpcerr.WorkerUnavailable("tool", "weather", time.Hour, "waiting for a worker of tool weather")
		}
		return servicetest.Text("sun"), nil
	}}
	f.Models.Answer = servicetest.ByTurn(servicetest.Says("look", call("c", "weather", `{}`)), servicetest.Says("end"))
	return there
}

// comes announces that a worker serves a tool, for runs of a project.
func (f *fleet) comes(parent, tool string) {
	f.Tools.Workers <- &toolv1.WatchWorkersResponse{Parent: parent, Tool: tool, Served: true}
}

func waitsForWeather(s *run.State) bool { return s.Wait.GetSubject() == "tool weather" }

func TestAWorkersReturnWakesWhoWaitsForIt(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	there := f.unserved()
	f.start()
	name := f.Create(spec(step("generate", "", "weather"))).Name
	f.Until(name, waitsForWeather)
	f.comes("projects/p", "another")
	f.comes("projects/other", "weather")
	f.Tools.Workers <- &toolv1.WatchWorkersResponse{Parent: "projects/p", Tool: "weather"} // it leaves
	assert.Equal(t, []string{"RUNNING", "WAITINGworker"}, f.phases(name))
	there.Store(true)
	f.comes("projects/p", "weather")
	got := f.Finish(name)
	assert.Equal(t, []string{"U:Start.", "A:look", "T:sun", "A:end"}, texts(got.Messages()))
	assert.Equal(t, []string{"RUNNING", "WAITINGworker", "RUNNING", "end"}, f.phases(name))
}

func TestAWorkersReturnWakesARunThatWaitedBeforeTheRestart(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	there := f.unserved()
	f.start()
	name := f.Create(spec(step("generate", "", "weather"))).Name
	f.Until(name, waitsForWeather)
	f.End()
	there.Store(true)
	f.start()
	f.comes("projects/p", "weather")
	assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, f.Finish(name).Phase)
}

// The worker comes when the call has been turned away, and before the run knows that it has to wait.
func TestAWorkerThatComesJustBeforeTheWaitIsNotMissed(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.unserved()
	away := f.Tools.Tools["weather"].Run
	asked := 0
	f.Tools.Tools["weather"] = servicetest.Tool{Run: func(ctx context.Context, c servicetest.Call) (*toolv1.ToolResult, error) {
		if asked++; asked > 1 {
			return servicetest.Text("sun"), nil
		}
		result, err := away(ctx, c)
		f.comes("projects/p", "weather")
		f.comes("projects/p", "another") // The first arrival has been handled when this one is taken.
		return result, err
	}}
	f.start()
	name := f.Create(spec(step("generate", "", "weather"))).Name
	assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, f.Finish(name).Phase)
}

// lost is the answer of the owner of an effect that was lost with six processes.
func lost() error {
	return rpcerr.EffectIndeterminate("k", "lost").WithDetail(&effectv1.Timing{Attempts: 6, Reissued: true, Reissues: 5})
}

func awaitsDecision(s *run.State) bool {
	return s.Phase == agentv1.RunState_RUN_STATE_WAITING && s.Wait.GetReason() == agentv1.WaitReason_WAIT_REASON_DECISION
}

// decisions are what an operator may decide, and what becomes of the run.
var decisions = map[string]struct {
	command proto.Message
	ends    agentv1.RunState
	phases  []string
	calls   int
}{
	"retry": {&agentv1.ResumeRunRequest{}, agentv1.RunState_RUN_STATE_SUCCEEDED, []string{"RUNNING", "WAITINGdecision", "RUNNING", "end"}, 2},
	"fail":  {&agentv1.CancelRunRequest{Mode: agentv1.CancelMode_CANCEL_MODE_ERROR}, agentv1.RunState_RUN_STATE_FAILED, []string{"RUNNING", "WAITINGdecision", "RUNNING", "end"}, 1},
}

func TestALostModelCallWaitsForADecision(t *testing.T) {
	t.Parallel()
	for name, decision := range decisions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t).start()
			var asked atomic.Int32
			f.Models.Answer = func(context.Context, *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
				if asked.Add(1) == 1 {
					return nil, lost()
				}
				return servicetest.Say("ok"), nil
			}
			name := f.Create(spec(step("generate", ""))).Name
			before := f.Until(name, awaitsDecision).Seq
			f.End()
			f.start()
			f.send(name, "other", &agentv1.RetuneLimitsRequest{})
			got := f.Until(name, func(s *run.State) bool { return s.Seq > before })
			assert.True(t, awaitsDecision(got), "another command decides nothing")
			assert.Contains(t, got.Wait.GetMessage(), "resume the run")
			assert.EqualValues(t, 1, asked.Load(), "nothing is asked again before the decision")
			f.End()
			f.start()
			f.send(name, "decide", decision.command)
			got = f.Finish(name)
			assert.Equal(t, decision.ends, got.Phase)
			assert.Equal(t, decision.phases, f.phases(name))
			assert.EqualValues(t, decision.calls, asked.Load())
			outcome := f.modelOutcomes(name)[0]
			assert.Equal(t, "EFFECT_INDETERMINATE", outcome.GetError().GetReason())
			assert.EqualValues(t, 6, outcome.GetTiming().GetAttempts())
			assert.True(t, outcome.GetTiming().GetReissued())
			assert.EqualValues(t, 5, outcome.GetTiming().GetReissues())
		})
	}
}

func (f *fleet) modelOutcomes(name string) (all []*agentv1.ModelOutcome) {
	for e, err := range f.Events(name) {
		require.NoError(f.T, err)
		if e.GetModelOutcome() != nil {
			all = append(all, e.GetModelOutcome())
		}
	}
	return all
}

func TestASandboxWhoseMakingWasLostWaitsForADecision(t *testing.T) {
	t.Parallel()
	f := newFleet(t).start()
	var asked atomic.Int32
	f.Sandboxes.Refuse = func(*sandboxv1.CreateSandboxRequest) error {
		if asked.Add(1) == 1 {
			return lost()
		}
		return nil
	}
	f.Models.Answer = servicetest.ByTurn(servicetest.Says("ok"))
	s := spec(step("generate", ""))
	s.Sandboxes = map[string]*sandboxv1.SandboxSpec{"default": {}}
	name := f.Create(s).Name
	f.Until(name, awaitsDecision)
	f.send(name, "decide", &agentv1.ResumeRunRequest{})
	assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, f.Finish(name).Phase)
	assert.EqualValues(t, 2, asked.Load())
}

// What a call cost that failed is in the journal as well.
func TestTheCostOfAFailedCallIsJournaled(t *testing.T) {
	t.Parallel()
	f := newFleet(t).start()
	f.Models.Answer = func(context.Context, *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
		return nil, rpcerr.ModelRefused("openai/gpt-4o", "no reason given").WithDetail(&modelv1.ModelUsage{InputTokens: 10, TotalTokens: 10}).
			WithDetail(&effectv1.Timing{Attempts: 2, Working: durationpb.New(time.Second)})
	}
	name := f.Create(spec(step("generate", ""))).Name
	got := f.Finish(name)
	assert.Equal(t, agentv1.RunState_RUN_STATE_FAILED, got.Phase)
	assert.EqualValues(t, 10, got.Total.GetTotalTokens())
	assert.Equal(t, time.Second, got.Working)
	assert.EqualValues(t, 2, f.modelOutcomes(name)[0].GetTiming().GetAttempts())
}
