package engine_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/goldentest"
	"github.com/evalfleet/evalfleet/pkg/retry"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/inbox"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/mailbox"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/servicetest"
)

func TestGoldenOperator(t *testing.T) {
	t.Parallel()
	goldentest.Run(t, "operator", goldentest.Load(t, "agents/operator.json"), reactCase, goldentest.Parallel())
}

// operator is a tool that acts as an operator while a run is active.
func (f *fleet) operator() servicetest.Tool {
	return servicetest.Tool{
		Schema: `{"type": "object", "properties": {"items": {"type": "array"}, "seconds": {"type": "number"}}, "required": ["items"]}`,
		Run: func(ctx context.Context, c servicetest.Call) (*toolv1.ToolResult, error) {
			items, _ := c.Arguments["items"].([]any)
			if err := f.operate(ctx, c.Request.GetAttribution().GetRun(), c.Request.GetRequestId(), items); err != nil {
				return nil, err
			}
			seconds, _ := c.Arguments["seconds"].(float64)
			return servicetest.Text("acted"), retry.Sleep(ctx, time.Duration(seconds*float64(time.Second)))
		},
	}
}

// operate posts messages to a run and cuts its turn, and returns when the run has taken that. What follows after the
// turn was cut is sent all the same.
func (f *fleet) operate(ctx context.Context, name, by string, items []any) error {
	var last string
	for i, recorded := range items {
		item, _ := recorded.(map[string]any)
		last = fmt.Sprint(by, ".", i)
		request := proto.Message(&agentv1.InterruptRunRequest{})
		if text, isMessage := item["message"].(string); isMessage {
			request = &agentv1.PostMessageRequest{Messages: []*modelv1.ChatMessage{user(text)}}
		}
		if err := f.Runs.Post(context.WithoutCancel(ctx), name, inbox.Command{ID: last, Principal: "user:ada", Request: request}); err != nil {
			return err
		}
	}
	if last == "" {
		return nil
	}
	return f.taken(name, last)
}

// taken waits until a run has taken a command.
func (f *fleet) taken(name, id string) error {
	return mailbox.Await(waittest.Context(f.T), f.Store, name, 0, func() (bool, error) {
		seq, err := f.Store.Taken(context.Background(), name, id)
		return seq > 0, err
	})
}

func TestGoldenChannel(t *testing.T) {
	t.Parallel()
	goldentest.Run(t, "channel", goldentest.Load(t, "agents/channel.json"), channelCase, goldentest.Parallel())
}

// channelCase posts messages before the first turn of a run with a history, and compares the new part of the
// conversation that the model then sees. A run without an operator waits.
func channelCase(t *goldentest.T, c goldentest.Case) {
	switch c.Op() {
	case "before_turn":
	case "after_cancel":
		afterCancel(t, c)
		return
	default:
		t.Skipf("no driver for %q", c.Op())
	}
	f := newFleet(t)
	f.Models.Answer = servicetest.ByTurn(servicetest.Says("Done", call("c9", "submit", `{"answer": "42"}`)))
	begin := make(chan struct{})
	f.Sandboxes.Refuse = func(*sandboxv1.CreateSandboxRequest) error { waittest.Hold(f.T, begin); return nil }
	f.start()
	s := spec(step("react", `{"prompt": null}`))
	s.Input = parsed(t, c.At("history"))
	s.Sandboxes = map[string]*sandboxv1.SandboxSpec{"default": {}}
	name := f.Create(s).Name

	queue, _ := c.At("queue").([]any)
	for i, item := range queue {
		f.send(name, fmt.Sprint("m", i), operators(t, item))
		require.NoError(t, f.taken(name, fmt.Sprint("m", i)))
	}
	close(begin)
	waits := func(s *run.State) bool {
		return s.Finished || s.Wait.GetReason() == agentv1.WaitReason_WAIT_REASON_INPUT
	}
	state := f.Until(name, waits)
	if later := c.At("posted_later"); later != nil {
		f.send(name, "later", operators(t, later))
		state = f.Finish(name)
	}
	f.compareFresh(t, c, state, 0, len(s.GetInput()))
}

// compareFresh compares what is new in the conversation of a model call with what is recorded: that the run waits, or
// the messages after the first so many.
func (f *fleet) compareFresh(t *goldentest.T, c goldentest.Case, state *run.State, call, known int) {
	if !state.Finished {
		t.Equal(c.At("result"), map[string]any{"blocks": true})
		return
	}
	fresh := recordedForm(t, f.Models.Requests()[call].GetMessages()[known:])
	for _, m := range fresh {
		message, _ := m.(map[string]any)
		delete(message, "id")
	}
	t.Equal(c.At("result"), map[string]any{"messages": fresh})
}

// operators is the command of an item of a channel.
func operators(t *goldentest.T, recorded any) proto.Message {
	item, _ := recorded.(map[string]any)
	if text, isMessage := item["content"].(string); isMessage {
		return &agentv1.PostMessageRequest{Messages: []*modelv1.ChatMessage{chat.User(text)}}
	}
	if _, cut := item["cancel"].(string); !cut {
		t.Fatalf("an item of a channel says %v", recorded)
	}
	return &agentv1.InterruptRunRequest{}
}

// afterCancel has a model make the calls with which the recorded history ends, and cuts the turn while they run.
func afterCancel(t *goldentest.T, c goldentest.Case) {
	history := parsed(t, c.At("history"))
	calls := history[len(history)-1]
	f := newFleet(t)
	begun := make(chan struct{}, 2)
	f.Tools.Tools["add"] = servicetest.Tool{Parallel: true, Run: func(ctx context.Context, _ servicetest.Call) (*toolv1.ToolResult, error) {
		begun <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	f.Models.Answer = servicetest.ByTurn(
		servicetest.Says(chat.Text(calls), calls.GetToolCalls()...), servicetest.Says("Done", call("c9", "submit", `{"answer": "42"}`)),
	)
	f.start()
	s := spec(step("react", `{"prompt": null}`, "add"))
	s.Input = history[:len(history)-1]
	name := f.Create(s).Name
	for range calls.GetToolCalls() {
		waittest.For(f.T, begun, "a call of the tool")
	}
	queue, _ := c.At("queue").([]any)
	for i, item := range queue {
		command := operators(t, item)
		interrupt, cuts := command.(*agentv1.InterruptRunRequest)
		if cuts {
			for _, further := range queue[i+1:] { // What follows in the queue continues the same turn.
				if post, isPost := operators(t, further).(*agentv1.PostMessageRequest); isPost {
					interrupt.Messages = append(interrupt.Messages, post.GetMessages()...)
				}
			}
		}
		f.send(name, fmt.Sprint("m", i), command)
		require.NoError(t, f.taken(name, fmt.Sprint("m", i)))
		if cuts {
			break
		}
	}
	state := f.Until(name, func(s *run.State) bool {
		return s.Finished || s.Wait.GetReason() == agentv1.WaitReason_WAIT_REASON_INPUT
	})
	if later := c.At("posted_later"); later != nil {
		f.send(name, "later", operators(t, later))
		state = f.Finish(name)
	}
	f.compareFresh(t, c, state, 1, len(history))
}
