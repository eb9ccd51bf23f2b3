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
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/mailbox"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/servicetest"
)

func outsideCall(key string) *agentv1.EffectRequest {
	return &agentv1.EffectRequest{ClientKey: key, Effect: &agentv1.EffectRequest_Generate{Generate: &agentv1.OutsideGenerate{
		Messages: []*modelv1.ChatMessage{user("And now?")}, Tools: []*toolv1.ToolInfo{{Name: "own", ParametersJson: `{"type": "object"}`}},
	}}}
}

// answered waits until the journal of a run has that many outcomes of what was asked for from outside.
func (f *fleet) answered(name string, n int) error {
	return mailbox.Await(waittest.Context(f.T), f.Store, name, 0, func() (bool, error) {
		asked, ended := map[int64]bool{}, 0
		for e, err := range f.Events(name) {
			if err != nil {
				return false, err
			}
			switch {
			case e.GetModelIntent().GetClientKey() != "" || e.GetExecIntent().GetClientKey() != "":
				asked[e.GetSeq()] = true
			case asked[e.GetModelOutcome().GetIntent()] || asked[e.GetExecOutcome().GetIntent()]:
				ended++
			}
		}
		return ended >= n, nil
	})
}

// assistedLife is a run of which a program asks for a model call and a command, each of them twice, while a model call
// of the agent is open, and reads in the journal what came of them.
func assistedLife(f *fleet) *agentv1.RunSpec {
	f.Config.Beat = 20 * time.Millisecond
	exec := &agentv1.EffectRequest{ClientKey: "k2", Effect: &agentv1.EffectRequest_Exec{Exec: &agentv1.OutsideExec{
		Environment: "default", Spec: &sandboxv1.ExecSpec{Argv: []string{"ls"}},
	}}}
	f.Models.Answer = func(_ context.Context, r *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
		if r.GetAttribution().GetPurpose() == run.PurposeOutside {
			return servicetest.Say("outside"), nil
		}
		name := r.GetAttribution().GetRun()
		for range 2 {
			if err := f.leave(name, outsideCall("k1"), exec); err != nil {
				return nil, err
			}
		}
		if err := f.answered(name, 2); err != nil {
			return nil, err
		}
		return servicetest.Say("Done."), nil
	}
	f.Sandboxes.Run = func(context.Context, *sandboxv1.ExecRequest) (*sandboxv1.ExecResult, error) {
		return &sandboxv1.ExecResult{Stdout: []byte("a\n")}, nil
	}
	s := spec(step("generate", ""))
	s.Sandboxes = map[string]*sandboxv1.SandboxSpec{"default": {}}
	return s
}

func TestAnAssistedLife(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	s := assistedLife(f)
	f.start()
	name := f.Create(s).Name
	got := f.ending(f.Finish(name))
	assert.Equal(t, []string{"U:Start.", "A:Done."}, got.Messages)
	assert.Equal(t, []int{2, 2, 2}, []int{got.Models, got.Execs, got.Turns}, "a sandbox and a command: the same key is the same effect, and a call is a turn of the run")
	var asked *modelv1.GenerateRequest
	for _, r := range f.Models.Requests() {
		if r.GetAttribution().GetPurpose() == run.PurposeOutside {
			asked = r
		}
	}
	require.NotNil(t, asked)
	assert.Equal(t, []string{"U:And now?"}, texts(asked.GetMessages()))
	assert.Equal(t, "own", asked.GetTools()[0].GetName())
	assert.Equal(t, "mockllm/model", asked.GetModel())
}

// What was asked for from outside happens once, however often the process dies: between the command and its intent,
// between the intent and its outcome, and at every other append.
func TestDeathAtEveryAppendOfAnAssistedLife(t *testing.T) {
	t.Parallel()
	calm := newFleet(t)
	s := assistedLife(calm)
	calm.start()
	want := calm.ending(calm.Finish(calm.Create(s).Name))
	dieEverywhere(t, want, assistedLife)
}

// After a cancel nothing begins from outside, be it asked for before or after it.
func TestNothingBeginsFromOutsideAfterACancel(t *testing.T) {
	t.Parallel()
	f := newFleet(t).start()
	begun := make(chan struct{}, 4)
	f.Models.Answer = hanging(begun)
	name := f.Create(spec(step("generate", ""))).Name
	waittest.For(t, begun, "the model call of the run")
	f.End()
	require.NoError(t, f.leave(name, outsideCall("before")))
	f.send(name, "k", &agentv1.CancelRunRequest{})
	require.NoError(t, f.leave(name, outsideCall("after")))
	f.start()
	assert.Equal(t, agentv1.RunState_RUN_STATE_CANCELLED, f.Finish(name).Phase)
	assert.Equal(t, 1, f.Models.Total())
}
