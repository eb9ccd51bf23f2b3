package turn_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/ownertest"
)

func TestTimeLimits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		limits *agentv1.RunLimits
		hit    string
		tool   bool
	}{
		"time in a model call":    {&agentv1.RunLimits{Time: durationpb.New(100 * time.Millisecond)}, "time", false},
		"time in a tool call":     {&agentv1.RunLimits{Time: durationpb.New(100 * time.Millisecond)}, "time", true},
		"working time, tool call": {&agentv1.RunLimits{WorkingTime: durationpb.New(100 * time.Millisecond)}, "working", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t).start()
			f.Tools.Tools["hang"] = ownertest.Tool{Run: func(ctx context.Context, _ ownertest.Call) (*toolv1.ToolResult, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}}
			f.Models.Answer = func(ctx context.Context, _ *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
				if c.tool {
					return ownertest.Say("go", call("c1", "hang", `{}`)), nil
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
			assert.Equal(t, c.hit, got.Limit.GetType())
			assert.Len(t, got.FinalScores(), 1, "a bound is not an error; the run is scored")
		})
	}
}

func TestScoringHasHalfOfTheTime(t *testing.T) {
	t.Parallel()
	f := newFleet(t).start()
	f.Models.Answer = ownertest.ByTurn(ownertest.Says("go"))
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
		"no model": {func() *agentv1.RunSpec { s := spec(step("generate", "")); s.Model = nil; return s }(), "AGENT_FAILED", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t).start()
			f.Models.Answer = ownertest.ByTurn(ownertest.Says("go"))
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
