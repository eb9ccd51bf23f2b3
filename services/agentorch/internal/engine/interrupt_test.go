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

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/inbox"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/servicetest"
)

// leave puts commands into a run's inbox without waking its engine, which may be another one by now.
func (f *fleet) leave(name string, requests ...proto.Message) error {
	for _, request := range requests {
		id := strings.ToLower(string(request.ProtoReflect().Descriptor().Name()))
		if outside, ok := request.(*agentv1.EffectRequest); ok {
			id = "effect/" + outside.GetClientKey()
		}
		packed, err := inbox.Command{ID: id, Principal: "user:ada", Request: request}.Pack()
		if err == nil {
			err = f.Store.Post(context.Background(), name, packed)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// operatedLife is a run whose operator cuts a turn with two calls, one of which has not begun, decides how to continue,
// and stops one of two concurrent calls.
func operatedLife(f *fleet) *agentv1.RunSpec {
	f.Config.Beat = 20 * time.Millisecond // at which commands are found
	f.Models.Answer = servicetest.ByTurn(
		servicetest.Says("Wrong way.", call("c1", "cut", `{}`), call("c2", "cut", `{}`)),
		servicetest.Says("Two at once.", call("c3", "stop", `{}`), call("c4", "quick", `{}`)),
		servicetest.Says("Done.", call("c5", "submit", `{"answer": "42"}`)),
	)
	sends := func(parallel bool, requests ...proto.Message) servicetest.Tool {
		return servicetest.Tool{Parallel: parallel, Run: func(ctx context.Context, c servicetest.Call) (*toolv1.ToolResult, error) {
			if err := f.leave(c.Request.GetAttribution().GetRun(), requests...); err != nil {
				return nil, err
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}}
	}
	f.Tools.Tools["cut"] = sends(false, &agentv1.InterruptRunRequest{}, &agentv1.PostMessageRequest{Messages: []*modelv1.ChatMessage{user("Turn back.")}})
	f.Tools.Tools["stop"] = sends(true, &agentv1.CancelCallRequest{CallId: "c3"})
	f.Tools.Tools["quick"] = servicetest.Tool{Parallel: true, Run: func(context.Context, servicetest.Call) (*toolv1.ToolResult, error) {
		return servicetest.Text("ok"), nil
	}}
	return spec(step("react", `{"prompt": null}`, "cut", "stop", "quick"))
}

func TestAnOperatedLife(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	s := operatedLife(f)
	f.start()
	got := f.ending(f.Finish(f.Create(s).Name))
	cancelled := "T:the call was cancelled by the user!cancelled"
	assert.Equal(t, []string{"U:Start.", "A:Wrong way.", cancelled, cancelled, "U:Turn back.", "A:Two at once.", "T:!timeout", "T:ok", "A:Done.\n\n42"}, got.Messages)
	assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, got.Phase)
	assert.Equal(t, 3, got.Tools, "the call that had not begun never does")
}

// Interrupts and stopped calls are the same however often the process dies: at each append, before it is durable and
// after.
func TestDeathAtEveryAppendOfAnOperatedLife(t *testing.T) {
	t.Parallel()
	calm := newFleet(t)
	s := operatedLife(calm)
	calm.start()
	want := calm.ending(calm.Finish(calm.Create(s).Name))
	dieEverywhere(t, want, operatedLife)
}

// A turn is cut while no replica drives the run: the successor stops the call, and never makes it again.
func TestAnInterruptAcrossARestart(t *testing.T) {
	t.Parallel()
	f := newFleet(t).start()
	begun := make(chan struct{}, 2)
	f.Models.Answer = hanging(begun)
	name := f.Create(spec(step("generate", ""))).Name
	waittest.For(t, begun, "the model call of the run")
	f.End()
	f.send(name, "k", &agentv1.InterruptRunRequest{})
	f.start()
	state := f.Until(name, func(s *run.State) bool { return s.Wait.GetReason() == agentv1.WaitReason_WAIT_REASON_INPUT })
	assert.Equal(t, 1, f.Models.Total())
	assert.Equal(t, []string{"U:Start."}, texts(state.Messages()))
	for e, err := range f.Events(name) {
		require.NoError(t, err)
		if o := e.GetModelOutcome(); o != nil {
			assert.True(t, o.GetInterrupted())
			assert.Nil(t, o.GetError())
		}
	}
	f.End()
	f.start()
	f.Models.Answer = servicetest.ByTurn(servicetest.Says("Done."))
	f.send(name, "m", &agentv1.PostMessageRequest{Messages: []*modelv1.ChatMessage{user("Go on.")}})
	assert.Equal(t, []string{"U:Start.", "U:Go on.", "A:Done."}, texts(f.Finish(name).Messages()))
}

// A model call that waits for its place is entombed by an interrupt, so that it never begins.
func TestAnInterruptBeforeACallBegan(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.Config.MaxGenerates = 1
	f.start()
	begun := make(chan struct{}, 2)
	f.Models.Answer = hanging(begun)
	first := f.Create(spec(step("generate", ""))).Name
	waittest.For(t, begun, "the model call of the first run")
	second := f.Create(spec(step("generate", ""))).Name
	f.Until(second, func(s *run.State) bool { return len(s.Open) == 1 })
	f.send(second, "k", &agentv1.InterruptRunRequest{})
	f.Until(second, func(s *run.State) bool { return s.Wait.GetReason() == agentv1.WaitReason_WAIT_REASON_INPUT })
	assert.Equal(t, 1, f.Models.Total())
	for i, name := range []string{first, second} {
		f.send(name, fmt.Sprint("end", i), &agentv1.CancelRunRequest{})
		f.Finish(name)
	}
}
