package engine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/goldentest"
	"github.com/evalfleet/evalfleet/pkg/retry"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/inbox"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/ownertest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
)

func TestGoldenOperator(t *testing.T) {
	t.Parallel()
	goldentest.Run(t, "operator", goldentest.Load(t, "agents/operator.json"), reactCase, goldentest.Parallel())
}

var errNoInterrupt = errors.New("a turn cannot be interrupted")

// operator is a tool that does what an operator does while a run is at work.
func (f *fleet) operator() ownertest.Tool {
	return ownertest.Tool{
		Schema:   `{"type": "object", "properties": {"items": {"type": "array"}, "seconds": {"type": "number"}}, "required": ["items"]}`,
		Parallel: true,
		Run: func(ctx context.Context, c ownertest.Call) (*toolv1.ToolResult, error) {
			items, _ := c.Arguments["items"].([]any)
			if err := f.operate(ctx, c.Request.GetAttribution().GetRun(), items); err != nil {
				return nil, err
			}
			seconds, _ := c.Arguments["seconds"].(float64)
			return ownertest.Text("acted"), retry.Sleep(ctx, time.Duration(seconds*float64(time.Second)))
		},
	}
}

// operate posts messages to a run, and returns when the run has taken them.
func (f *fleet) operate(ctx context.Context, name string, items []any) error {
	before := len(f.State(name).Posted)
	for i, recorded := range items {
		item, _ := recorded.(map[string]any)
		text, isMessage := item["message"].(string)
		if !isMessage {
			return errNoInterrupt
		}
		if err := f.postAs(ctx, name, fmt.Sprint("item", i), user(text)); err != nil {
			return err
		}
	}
	f.Until(name, func(s *run.State) bool { return len(s.Posted) == before+len(items) })
	return nil
}

func (f *fleet) postAs(ctx context.Context, name, id string, messages ...*modelv1.ChatMessage) error {
	post := &agentv1.PostMessageRequest{Messages: messages}
	return f.Runs.Post(ctx, name, inbox.Command{ID: id, Principal: "user:ada", Request: post})
}

func TestGoldenChannel(t *testing.T) {
	t.Parallel()
	goldentest.Run(t, "channel", goldentest.Load(t, "agents/channel.json"), channelCase, goldentest.Parallel())
}

// channelCase has messages posted before the first turn of a run that goes on with a history, and compares what is new
// in the conversation that the model then sees. A run without an operator waits.
func channelCase(t *goldentest.T, c goldentest.Case) {
	switch c.Op() {
	case "before_turn":
	case "after_cancel":
		t.Fatal(errNoInterrupt)
	default:
		t.Skipf("no driver for %q", c.Op())
	}
	f := newFleet(t)
	f.Models.Answer = ownertest.ByTurn(ownertest.Says("Done", call("c9", "submit", `{"answer": "42"}`)))
	begin := make(chan struct{})
	f.Sandboxes.Refuse = func(*sandboxv1.CreateSandboxRequest) error { waittest.Hold(f.T, begin); return nil }
	f.start()
	s := spec(step("react", `{"prompt": null}`))
	s.Input = parsed(t, c.At("history"))
	s.Sandboxes = map[string]*sandboxv1.SandboxSpec{"default": {}}
	name := f.Create(s).Name

	queue, _ := c.At("queue").([]any)
	var posted []*modelv1.ChatMessage
	for _, item := range queue {
		posted = append(posted, operatorsMessage(t, item))
	}
	for i, m := range posted {
		require.NoError(t, f.postAs(t.Context(), name, fmt.Sprint("m", i), m))
	}
	f.Until(name, func(s *run.State) bool { return len(s.Posted) == len(posted) })
	close(begin)
	waits := func(s *run.State) bool { return s.Finished || s.Wait.GetReason() == "input" }
	state := f.Until(name, waits)
	if later := c.At("posted_later"); later != nil {
		require.NoError(t, f.postAs(t.Context(), name, "later", operatorsMessage(t, later)))
		state = f.Finish(name)
	}
	if !state.Finished {
		t.Equal(c.At("result"), map[string]any{"blocks": true})
		return
	}
	fresh := recordedForm(t, f.Models.Requests()[0].GetMessages()[len(s.GetInput()):])
	for _, m := range fresh {
		message, _ := m.(map[string]any)
		delete(message, "id")
	}
	t.Equal(c.At("result"), map[string]any{"messages": fresh})
}

func operatorsMessage(t *goldentest.T, recorded any) *modelv1.ChatMessage {
	item, _ := recorded.(map[string]any)
	text, isMessage := item["content"].(string)
	if !isMessage {
		t.Fatal(errNoInterrupt)
	}
	return chat.User(text)
}
