package engine_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/waits"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/servicetest"
)

// laterStore shows commands of a type that this version does not know, until it does.
type laterStore struct {
	journal.Store
	known func() bool
}

func (s *laterStore) Pending(ctx context.Context, ref journal.Ref) ([]journal.Command, error) {
	pending, err := s.Store.Pending(ctx, ref)
	if !s.known() {
		for i := range pending {
			if strings.HasPrefix(pending[i].ID, "later") {
				pending[i].Body = []byte(strings.Replace(string(pending[i].Body), "HoldRunRequest", "RewindRunRequest", 1))
			}
		}
	}
	return pending, err
}

// TestACommandOfALaterVersionStays has a run get a command that this version cannot read, then one that it can, and
// then a version that knows both.
func TestACommandOfALaterVersionStays(t *testing.T) {
	t.Parallel()
	for says, request := range map[string]proto.Message{"unknown": &agentv1.HoldRunRequest{}, "no command": &agentv1.GetRunRequest{}} {
		t.Run(says, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			knows := false
			f.Wrap = func(s journal.Store) journal.Store { return &laterStore{Store: s, known: func() bool { return knows }} }
			f.start()
			let, begun := make(chan struct{}), make(chan struct{}, 1)
			f.Models.Answer = func(_ context.Context, r *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
				if r.GetAttribution().GetTurn() == 1 {
					begun <- struct{}{}
					waittest.Hold(t, let)
					return servicetest.Say("go", call("c1", "add", `{}`)), nil
				}
				return servicetest.Say("end"), nil
			}
			f.Tools.Tools["add"] = servicetest.Tool{Run: func(context.Context, servicetest.Call) (*toolv1.ToolResult, error) { return servicetest.Text("1"), nil }}
			name := f.Create(spec(step("generate", "", "add"))).Name
			waittest.For(t, begun, "the model call of the run")
			f.send(name, "later", request)
			f.send(name, "m", &agentv1.RetuneLimitsRequest{
				Limits: &agentv1.RunLimits{Turns: new(int32(9))}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"turns"}},
			})
			f.Until(name, func(s *run.State) bool { return s.Limits.Bounds().GetTurns() == 9 })
			close(let)
			waiting := f.Until(name, func(s *run.State) bool { return s.Phase == agentv1.RunState_RUN_STATE_WAITING })
			assert.Equal(t, waits.Version, waiting.Wait.GetReason())
			assert.Equal(t, 1, waiting.Turns, "what was under way came to its end")
			pending, err := f.Store.Pending(t.Context(), 1)
			require.NoError(t, err)
			require.Len(t, pending, 1, "the command is there for who knows it")
			assert.Equal(t, "later", pending[0].ID)

			if says == "no command" {
				f.send(name, "k", &agentv1.CancelRunRequest{})
				assert.Equal(t, agentv1.RunState_RUN_STATE_CANCELLED, f.Finish(name).Phase, "it can be cancelled")
				return
			}
			f.End()
			knows = true
			f.start()
			f.Until(name, func(s *run.State) bool { return s.Held && s.Wait.GetReason() == agentv1.WaitReason_WAIT_REASON_HOLD })
			f.send(name, "r", &agentv1.ResumeRunRequest{})
			assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, f.Finish(name).Phase)
		})
	}
}

// TestAPlaceAmongTheOpenCallsIsAReason has two runs and room for one call.
func TestAPlaceAmongTheOpenCallsIsAReason(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.Config.MaxGenerates = 1
	f.start()
	let, begun := make(chan struct{}), make(chan struct{}, 2)
	f.Models.Answer = func(context.Context, *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
		begun <- struct{}{}
		waittest.Hold(t, let)
		return servicetest.Say("ok"), nil
	}
	s := spec(step("generate", ""))
	first := f.Create(s).Name
	waittest.For(t, begun, "the model call of the first run")
	second := f.Create(s).Name
	require.Eventually(t, func() bool { return f.Engine.Waiting(second) != nil }, waittest.Bound, 5*time.Millisecond, "the second waits for its place")
	wait := f.Engine.Waiting(second)
	assert.Equal(t, agentv1.WaitReason_WAIT_REASON_CAPACITY, wait.GetReason())
	assert.Contains(t, wait.GetMessage(), "1 calls open")
	assert.Nil(t, f.Engine.Waiting(first))
	close(let)
	f.Finish(first)
	f.Finish(second)
	assert.Nil(t, f.Engine.Waiting(second))
}

// TestAMessageMayCallMoreToolsThanAnAgentMayDecide has a model call ten thousand tools that there are not.
func TestAMessageMayCallMoreToolsThanAnAgentMayDecide(t *testing.T) {
	t.Parallel()
	f := newFleet(t).start()
	f.Models.Answer = func(_ context.Context, r *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
		if r.GetAttribution().GetTurn() > 1 {
			return servicetest.Say("end"), nil
		}
		var calls []*toolv1.ToolCall
		for i := range 10_001 {
			calls = append(calls, call(fmt.Sprint("c", i), "none", `{}`))
		}
		return servicetest.Say("go", calls...), nil
	}
	f.Tools.Tools["add"] = servicetest.Tool{Run: func(context.Context, servicetest.Call) (*toolv1.ToolResult, error) { return servicetest.Text("1"), nil }}
	got := f.Finish(f.Create(spec(step("generate", "", "add"))).Name)
	assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, got.Phase, "%v", got.Error)
	assert.Len(t, got.Messages(), 10_001+3)
}
