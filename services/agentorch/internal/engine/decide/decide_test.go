package decide_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent/generate"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/decide"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/inbox"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/waits"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
)

const name = "projects/p/runs/r"

var began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// lab is a run without an engine: its journal, and what is decided of it.
type lab struct {
	t      *testing.T
	events []*agentv1.Event
	live   *run.State
	agents *agent.Registry
	steps  int
	// scorers are those that the run may name.
	scorers *score.Registry
}

func newLab(t *testing.T, agents ...agent.Definition) *lab {
	t.Helper()
	first := "generate"
	if len(agents) > 0 {
		first = agents[0].Name
	}
	bare, content := run.Split(&agentv1.RunSpec{
		Steps: []*agentv1.AgentRef{{Name: first}}, Model: &agentv1.ModelRef{Model: "mockllm/model"}, Input: []*modelv1.ChatMessage{chat.User("Start.")},
	})
	created := run.NewEvent(&agentv1.RunCreated{Spec: bare, Content: content, FoldVersion: run.FoldVersion})
	created.Journal, created.Seq, created.Epoch, created.Critical, created.Time = name, 1, 1, true, timestamppb.New(began)
	l := &lab{t: t, events: []*agentv1.Event{created}, agents: agent.NewRegistry(append(agents, generate.Definition())...), scorers: score.NewRegistry()}
	l.live = l.fold()
	return l
}

// fold reads the journal.
func (l *lab) fold() *run.State {
	l.t.Helper()
	s, err := run.Fold(name, l.agents, func(yield func(*agentv1.Event, error) bool) {
		for _, e := range l.events {
			if !yield(proto.CloneOf(e), nil) {
				return
			}
		}
	})
	require.NoError(l.t, err)
	return s
}

// step decides twice, from the state in memory and from a new fold, and expects the same.
func (l *lab) step(facts func() decide.Facts, review func(*toolv1.ToolCall) *toolv1.ToolReview) *decide.Step {
	l.t.Helper()
	l.steps++
	var both []*decide.Step
	for _, s := range []*run.State{l.live, l.fold()} {
		f := facts()
		f.Now, f.Replica, f.Epoch = began.Add(time.Duration(l.steps)*time.Second), "local", 1
		d := decide.New(s, l.scorers, f)
		wanted, err := d.Decide()
		for err == nil && wanted != nil {
			var reviews []*toolv1.ToolReview
			for _, call := range wanted.Request.GetCalls() {
				if review == nil {
					break // no answer is to be had now
				}
				if r := review(call); r != nil {
					reviews = append(reviews, r)
				}
			}
			if len(reviews) == 0 {
				wanted, err = d.Unreviewed()
			} else {
				wanted, err = d.Reviewed(reviews, nil)
			}
		}
		require.NoError(l.t, err)
		both = append(both, d)
	}
	entries := func(d *decide.Step) (all []*agentv1.Event) {
		for _, e := range d.Entries {
			all = append(all, e.Event)
		}
		return all
	}
	require.Empty(l.t, cmp.Diff(entries(both[0]), entries(both[1]), protocmp.Transform()), "a successor decides the same")
	l.events = append(l.events, entries(both[0])...)
	return both[0]
}

func nothing() decide.Facts { return decide.Facts{} }

func answers(all ...decide.Answer) func() decide.Facts {
	return func() decide.Facts {
		var f decide.Facts
		for _, a := range all {
			clone := decide.Answer{Key: a.Key, Wait: proto.CloneOf(a.Wait)}
			for _, e := range a.Outcomes {
				clone.Outcomes = append(clone.Outcomes, proto.CloneOf(e))
			}
			f.Answers = append(f.Answers, clone)
		}
		return f
	}
}

// said is the outcome of the open model call.
func (l *lab) said(m *modelv1.ChatMessage) decide.Answer { return said(l.live.Open[0], m) }

func said(i *run.Intent, m *modelv1.ChatMessage) decide.Answer {
	m.Role = modelv1.Role_ROLE_ASSISTANT
	outcome := &agentv1.ModelOutcome{Intent: i.Seq(), Content: &agentv1.ModelOutcomeContent{
		Output: &modelv1.ModelOutput{Choices: []*modelv1.Choice{{Message: m}}},
	}}
	return decide.Answer{Outcomes: []*agentv1.Event{run.NewEvent(outcome)}}
}

func kinds(d *decide.Step) []string {
	var all []string
	for _, e := range d.Entries {
		m := e.Event.ProtoReflect()
		all = append(all, string(m.WhichOneof(m.Descriptor().Oneofs().ByName("kind")).Name()))
	}
	return all
}

// A run is decided from its creation to its end without an engine, and at each step by its journal alone.
func TestARunIsDecidedByItsJournal(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	d := l.step(nothing, nil)
	assert.True(t, d.Intents)
	assert.Empty(t, l.step(nothing, nil).Entries, "it waits for its effect")

	calls := &modelv1.ChatMessage{Content: chat.TextContent(""), ToolCalls: []*toolv1.ToolCall{chat.Call("c1", "weather", `{}`)}}
	assert.Equal(t, []string{"model_outcome"}, kinds(l.step(answers(l.said(calls)), nil)), "toolexec is away: nothing of the action is journaled")
	run1 := func(c *toolv1.ToolCall) *toolv1.ToolReview {
		return &toolv1.ToolReview{CallId: c.GetId(), Call: c, Decision: toolv1.ReviewDecision_REVIEW_DECISION_RUN}
	}
	assert.Equal(t, []string{"message_added", "tools_reviewed", "tool_intent"}, kinds(l.step(nothing, run1)))

	result := run.ToolOutcome(l.live.Open[0].Event, &toolv1.ToolResult{CallId: "c1", Function: "weather", Content: chat.TextContent("rain")})
	assert.Equal(t, []string{"tool_outcome", "message_added", "model_intent"}, kinds(l.step(answers(decide.Answer{Outcomes: []*agentv1.Event{result}}), nil)))
	again := decide.Answer{Outcomes: []*agentv1.Event{result}}
	d = l.step(answers(again, l.said(&modelv1.ChatMessage{Content: chat.TextContent("It rains.")})), nil)
	assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, d.Finished.GetState())
	assert.NotContains(t, kinds(d), "tool_outcome", "an answer that came again is not journaled again")
}

// A wait for capacity ends when its time comes, and the same effect is open again.
func TestAWaitIsJournaledAndEnds(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.step(nothing, nil)
	open := l.live.Open[0].Seq()
	wait := &agentv1.RunWait{Reason: waits.Capacity, RetryTime: timestamppb.New(began.Add(4 * time.Second))}
	l.step(answers(decide.Answer{Key: l.live.Key(open), Wait: wait}), nil)
	assert.Equal(t, agentv1.RunState_RUN_STATE_WAITING, l.live.Phase)
	assert.Equal(t, began.Add(4*time.Second), decide.Wake(l.live))
	assert.Empty(t, l.step(nothing, nil).Entries)
	l.step(nothing, nil)
	assert.Equal(t, agentv1.RunState_RUN_STATE_RUNNING, l.live.Phase)
	assert.Equal(t, open, l.live.Open[0].Seq())
}

// A review that fails permanently ends the run, and a command ends it at any time.
func TestWhatEndsARun(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.step(nothing, nil)
	calls := &modelv1.ChatMessage{Content: chat.TextContent(""), ToolCalls: []*toolv1.ToolCall{chat.Call("c1", "weather", `{}`)}}
	l.step(answers(l.said(calls)), nil)
	f := decide.Facts{Now: began.Add(time.Minute), Replica: "local", Epoch: 1}
	d := decide.New(l.fold(), score.NewRegistry(), f)
	wanted, err := d.Decide()
	require.NoError(t, err)
	require.NotNil(t, wanted)
	_, err = d.Reviewed(nil, errors.New("no such tool"))
	require.NoError(t, err)
	assert.Equal(t, agentv1.RunState_RUN_STATE_FAILED, d.Finished.GetState())
	assert.Len(t, d.Faults, 1)

	cancel := func() decide.Facts {
		return decide.Facts{Commands: []inbox.Command{{ID: "cancel", Principal: "user:ada", Request: &agentv1.CancelRunRequest{}}}}
	}
	d = l.step(cancel, nil)
	assert.Equal(t, agentv1.RunState_RUN_STATE_CANCELLED, d.Finished.GetState())
	assert.Equal(t, []string{"cancel"}, d.Took)
	assert.True(t, slices.Contains(kinds(d), "command_received"))
}
