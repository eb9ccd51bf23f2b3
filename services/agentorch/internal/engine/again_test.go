package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/servicetest"
)

// A rate limit of a provider comes here when it has outlasted the retries that the configuration of the call allows. It
// fails the run, as every other error of a provider does.
func TestARateLimitThatOutlastsItsRetriesFailsTheRun(t *testing.T) {
	t.Parallel()
	f := newFleet(t).start()
	f.Models.Answer = func(context.Context, *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
		return nil, rpcerr.ProviderRateLimited("openai", 429, 30*time.Millisecond, "slow down")
	}
	got := f.Finish(f.Create(spec(step("generate", ""))).Name)
	assert.Equal(t, agentv1.RunState_RUN_STATE_FAILED, got.Phase)
	assert.Equal(t, "PROVIDER_RATE_LIMITED", got.Error.GetReason())
	assert.Len(t, f.Models.Requests(), 1)
}

// checked is a run that a program judges in its sandbox.
func checked() *agentv1.RunSpec {
	s := spec(step("generate", ""))
	s.Sandboxes = map[string]*sandboxv1.SandboxSpec{"default": {}}
	s.Scorers = []*agentv1.ScorerRef{{Name: "exec", ParamsJson: `{"command": "true"}`}}
	return s
}

// TestAStoppedRunIsJudgedInItsSandbox: what a run's end cuts are the effects of its agent, not those of its scorers.
func TestAStoppedRunIsJudgedInItsSandbox(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(*fleet, string){
		"a bound": nil,
		"an operator": func(f *fleet, run string) {
			f.send(run, "k", &agentv1.CancelRunRequest{Mode: agentv1.CancelMode_CANCEL_MODE_SCORE})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t).start()
			f.Sandboxes.Run = func(context.Context, *sandboxv1.ExecRequest) (*sandboxv1.ExecResult, error) {
				return &sandboxv1.ExecResult{ExitCode: new(int32(0))}, nil
			}
			begun := make(chan struct{}, 1)
			f.Models.Answer = hanging(begun)
			s := checked()
			if stop == nil {
				s.Limits = &agentv1.RunLimits{Messages: new(int32(1))}
			}
			run := f.Create(s).Name
			if stop != nil {
				waittest.For(t, begun, "the model call of the run")
				stop(f, run)
			}
			got := f.Finish(run)
			assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, got.Phase, "%v", got.Error)
			require.Len(t, got.FinalScores(), 1)
			assert.Equal(t, "C", got.FinalScores()[0].GetScore().GetValue().GetText())
			assert.Empty(t, f.Sandboxes.Alive())
		})
	}
}

// TestACancelStopsTheJudgesToo cancels while a program judges.
func TestACancelStopsTheJudgesToo(t *testing.T) {
	t.Parallel()
	f := newFleet(t).start()
	f.Models.Answer = servicetest.ByTurn(servicetest.Says("done"))
	begun := make(chan struct{}, 1)
	f.Sandboxes.Run = func(ctx context.Context, _ *sandboxv1.ExecRequest) (*sandboxv1.ExecResult, error) {
		begun <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	run := f.Create(checked()).Name
	waittest.For(t, begun, "the program that judges")
	f.send(run, "k", &agentv1.CancelRunRequest{})
	got := f.Finish(run)
	assert.Equal(t, agentv1.RunState_RUN_STATE_CANCELLED, got.Phase)
	assert.Empty(t, f.Sandboxes.Alive())
	f.Sandboxes.CheckOnce(t)
}

// TestCallsOfOneIDAreDifferentCalls: models repeat ids, in one answer and over turns.
func TestCallsOfOneIDAreDifferentCalls(t *testing.T) {
	t.Parallel()
	f := newFleet(t).start()
	f.Tools.Tools["echo"] = servicetest.Tool{Parallel: true, Run: func(_ context.Context, c servicetest.Call) (*toolv1.ToolResult, error) {
		text, _ := c.Arguments["text"].(string)
		return servicetest.Text(text), nil
	}}
	f.Models.Answer = servicetest.ByTurn(
		servicetest.Says("a", call("c1", "echo", `{"text": "one"}`), call("c1", "echo", `{"text": "two"}`)),
		servicetest.Says("b", call("c1", "echo", `{"text": "three"}`)),
		servicetest.Says("c"),
	)
	got := f.Finish(f.Create(spec(step("generate", "", "echo"))).Name)
	assert.Equal(t, []string{"U:Start.", "A:a", "T:one", "T:two", "A:b", "T:three", "A:c"}, texts(got.Messages()))
	assert.Equal(t, 3, f.Tools.Total())
	f.Tools.CheckOnce(t)
}
