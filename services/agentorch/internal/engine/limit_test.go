package engine_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/enum"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/servicetest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/workers"
)

func TestTimeLimits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		limits      *agentv1.RunLimits
		hit         string
		tool        bool
		interrupted []string
	}{
		"time in a model call": {&agentv1.RunLimits{Time: durationpb.New(100 * time.Millisecond)}, "time", false, nil},
		"time in a tool call":  {&agentv1.RunLimits{Time: durationpb.New(100 * time.Millisecond)}, "time", true, nil},
		"working time, tool call": {
			&agentv1.RunLimits{WorkingTime: durationpb.New(100 * time.Millisecond)}, "working", true, []string{"c1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t).start()
			f.Tools.Tools["hang"] = servicetest.Tool{Run: func(ctx context.Context, _ servicetest.Call) (*toolv1.ToolResult, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}}
			f.Models.Answer = func(ctx context.Context, _ *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
				if c.tool {
					return servicetest.Say("go", call("c1", "hang", `{}`)), nil
				}
				<-ctx.Done()
				return nil, ctx.Err()
			}
			s := spec(step("generate", "", "hang"))
			s.Limits = c.limits
			s.Scorers = []*agentv1.ScorerRef{{Name: "includes"}}
			s.Target = &agentv1.Target{Values: []string{"go"}}
			got := f.Finish(f.Create(s).Name)
			assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, got.Phase)
			assert.Equal(t, c.hit, enum.Word(got.Limit.GetType()))
			assert.Len(t, got.FinalScores(), 1, "a bound is not an error; the run is scored")
			assert.Equal(t, c.interrupted, f.interrupted(got.Name), "calls that are recorded as interrupted, cancelled and failed")
		})
	}
}

// interrupted returns the calls that the log of a run has as interrupted by a limit, cancelled and failed.
func (f *fleet) interrupted(name string) (ids []string) {
	f.T.Helper()
	cut := map[string]bool{}
	for _, e := range f.transcriptOf(name) {
		if e.Event == "tool" {
			cut[e.ID] = e.Failed && strings.Contains(string(e.Error), `"cancelled"`)
		}
	}
	for _, e := range f.transcriptOf(name) {
		if e.Event == "interrupt" && e.Source == "limit" && cut[e.CallID] {
			ids = append(ids, e.CallID)
		}
	}
	return ids
}

// The results of a message's calls are kept together or not at all; an answer is kept also where what follows it is
// not.
func TestWhatABoundOfMessagesKeeps(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		bound int32
		say   *modelv1.ModelOutput
		want  []string
	}{
		"no room to continue":   {3, servicetest.Say("thinking"), []string{"system", "user", "assistant"}},
		"no room for an answer": {2, servicetest.Say("thinking"), []string{"system", "user"}},
		"no room for all results": {
			4, servicetest.Say("", call("c1", "noop", `{}`), call("c2", "noop", `{}`)), []string{"system", "user", "assistant"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			f.Tools.Tools = scriptedTools()
			f.Models.Answer = func(context.Context, *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) { return c.say, nil }
			f.start()
			s := spec(step("react", "", "noop"))
			s.Limits = &agentv1.RunLimits{Messages: &c.bound}
			got := f.Finish(f.Create(s).Name)
			assert.Equal(t, agentv1.LimitType_LIMIT_TYPE_MESSAGE, got.Limit.GetType())
			var roles []string
			for _, m := range got.Messages() {
				roles = append(roles, chat.RoleName(m.GetRole()))
			}
			assert.Equal(t, c.want, roles)
		})
	}
}

// A function that ends an agent, or replaces its conversation, is called although no further model call is allowed.
func TestAReachedBoundForbidsModelCallsAlone(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	stop := f.serves(map[string]string{workers.Continue: `{"proceed": false}`})
	defer stop()
	f.Models.Answer = servicetest.ByTurn(servicetest.Says("thinking"))
	s := spec(step("react", `{"on_continue": {"worker": "w"}}`))
	s.Limits = &agentv1.RunLimits{Messages: new(int32(3))}
	got := f.Finish(f.start().Create(s).Name)
	assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, got.Phase)
	assert.Nil(t, got.Limit, "the agent ends by itself")
	assert.Len(t, got.Messages(), 3)
}

func TestScoringHasHalfOfTheTime(t *testing.T) {
	t.Parallel()
	f := newFleet(t).start()
	f.Models.Answer = servicetest.ByTurn(servicetest.Says("go"))
	f.Sandboxes.Run = func(ctx context.Context, _ *sandboxv1.ExecRequest) (*sandboxv1.ExecResult, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	s := spec(step("generate", ""))
	s.Limits = &agentv1.RunLimits{Time: durationpb.New(200 * time.Millisecond)}
	s.Sandboxes = map[string]*sandboxv1.SandboxSpec{"default": {}}
	s.Scorers = []*agentv1.ScorerRef{{Name: "exec", ParamsJson: `{"command": "sleep 1000"}`}}
	got := f.Finish(f.Create(s).Name)
	assert.Equal(t, agentv1.RunState_RUN_STATE_FAILED, got.Phase)
	assert.Equal(t, "SCORING_TIMEOUT", got.Error.GetReason())
	assert.Empty(t, f.Sandboxes.Alive())
}

func TestErrors(t *testing.T) {
	t.Parallel()
	scored := func(s *agentv1.RunSpec) *agentv1.RunSpec {
		s.Scorers = []*agentv1.ScorerRef{{Name: "includes"}}
		s.Target = &agentv1.Target{Values: []string{"x"}}
		return s
	}
	// nobodyAsks is a run whose agent finds no user message.
	nobodyAsks := func() *agentv1.RunSpec {
		s := spec(step("multiple_choice", ""))
		s.Choices = []string{"a", "b"}
		s.Input = []*modelv1.ChatMessage{{Role: modelv1.Role_ROLE_SYSTEM, Content: chat.TextContent("Be brief.")}}
		return scored(s)
	}
	for name, c := range map[string]struct {
		spec   *agentv1.RunSpec
		reason string
		scores int
	}{
		"an agent that cannot go on": {nobodyAsks(), "AGENT_FAILED", 0},
		"scored although it failed": {func() *agentv1.RunSpec {
			s := nobodyAsks()
			s.ScoreOnError = true
			return s
		}(), "AGENT_FAILED", 1},
		"a scorer that cannot judge": {func() *agentv1.RunSpec {
			s := spec(step("generate", ""))
			s.Choices, s.Target = []string{"a", "b"}, &agentv1.Target{Values: []string{"Z"}}
			s.Scorers = []*agentv1.ScorerRef{{Name: "choice"}}
			return s
		}(), "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t).start()
			f.Models.Answer = servicetest.ByTurn(servicetest.Says("go"))
			got := f.Finish(f.Create(c.spec).Name)
			assert.Equal(t, agentv1.RunState_RUN_STATE_FAILED, got.Phase)
			assert.NotEmpty(t, got.Error.GetMessage())
			if c.reason != "" {
				assert.Equal(t, c.reason, got.Error.GetReason())
			}
			assert.Len(t, got.FinalScores(), c.scores)
		})
	}
}
