package run

import (
	"fmt"
	"slices"
	"time"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/limit"
)

// Frame is an active agent: its conversation and its open effects.
//
//	run ─▶ root "" ─ takes the run's steps, one after another
//	         ├─▶ child "7"   AgentBegan is event 7: an intent of the root, which is open while the child works
//	         │     └─▶ child "12"
//	         └─▶ child "8"   children work side by side; AgentEnded brings what each answered
//
// An event belongs to the frame of its span. A frame implements [agent.View] for its machine.
type Frame struct {
	// Span names it: the id of the AgentBegan that began it. That of the root is empty.
	Span string
	// Parent is the frame that began it; nil for the root.
	Parent *Frame
	// Machine is the agent; nil for the root between steps, and for a reader that does not drive the run.
	Machine agent.Machine
	// Calls are the tool calls of the present turn; nil if there are none.
	Calls *Calls
	// Posted are messages of others that wait for the next turn.
	Posted []*modelv1.ChatMessage

	// Wait is what the agent waits for, besides its effects; nil if it does not wait.
	Wait *agentv1.RunWait

	// Bounds are the agent's own limits, which apply to its children too; nil if it has none. Reached is the limit that
	// ended it.
	Bounds  *limit.Set
	Reached *agentv1.LimitReached
	// Stopped is set if the turn of its parent was cut, which ends it.
	Stopped bool
	// Began is when it began.
	Began time.Time

	run          *State
	open         []*Intent                // of State.Open, its own
	ref          *agentv1.AgentRef        // whose tools are on offer; nil for the root between steps
	tools        []*toolv1.ToolDefinition // its own tools, whose names may equal those of the run's tools
	conversation Conversation
	sent         *Conversation // in place of the conversation; nil until it is compacted
	output       *modelv1.ModelOutput
	answer       *modelv1.ModelOutput
	answered     int64 // number of the event that holds answer

	// The usage of the agent and its children, for its own limits.

	turns     int
	total     *modelv1.ModelUsage
	worked    time.Duration
	awayAtAll time.Duration // how long no replica had driven the run when the agent began
}

var _ agent.View = (*Frame)(nil)

// Frames returns the active agents in the order in which they began. The root is the first.
func (s *State) Frames() []*Frame { return s.frames }

// At returns the frame of a span; nil if no such agent is active.
func (s *State) At(span string) *Frame {
	for _, f := range s.frames {
		if f.Span == span {
			return f
		}
	}
	return nil
}

// Spec implements [agent.View].
func (f *Frame) Spec() *agentv1.RunSpec { return f.run.spec }

// Messages implements [agent.View].
func (f *Frame) Messages() []*modelv1.ChatMessage { return f.conversation.Messages() }

// Input implements [agent.View].
func (f *Frame) Input() []*modelv1.ChatMessage { return f.Sent().Messages() }

// Sent returns what the agent's model is sent, with hashes: the conversation, unless it was compacted. It belongs to
// the frame.
func (f *Frame) Sent() *Conversation {
	if f.sent != nil {
		return f.sent
	}
	return &f.conversation
}

// Output implements [agent.View].
func (f *Frame) Output() *modelv1.ModelOutput { return f.output }

// Answer implements [agent.View].
func (f *Frame) Answer() *modelv1.ModelOutput { return f.answer }

// Answered returns the number of the event that holds the answer.
func (f *Frame) Answered() int64 { return f.answered }

// Stored implements [agent.View].
func (f *Frame) Stored(key string) (string, bool) {
	value, ok := f.run.store[key]
	return value, ok
}

// Scores implements [agent.View]: the scores of the last round, intermediate or not.
func (f *Frame) Scores() []*agentv1.NamedScore { return f.run.lastScores }

// Busy reports whether an effect of the agent, or a child of it, is open. Effects that were requested from outside do
// not count.
func (f *Frame) Busy() bool {
	return slices.ContainsFunc(f.open, func(i *Intent) bool { return !i.Outside() })
}

// Idle reports whether the frame has no open effect, neither the agent's own nor one that was requested from outside.
func (f *Frame) Idle() bool { return len(f.open) == 0 }

// Effects returns the frame's open intents, oldest first: those of [State.Open] whose frame it is.
func (f *Frame) Effects() []*Intent { return f.open }

// Ending reports whether a limit of the frame or of an ancestor was reached, or an ancestor's turn was cut, so that the
// frame's open effects are to be stopped.
func (f *Frame) Ending() bool {
	return f.Reached != nil || f.Stopped || f.Parent != nil && f.Parent.Ending()
}

// Name is the display name of the agent; empty for the root between steps.
func (f *Frame) Name() string {
	if f.ref == nil {
		return ""
	}
	return agent.DisplayName(f.ref)
}

// ToolRefs returns the references of the agent's tools.
func (f *Frame) ToolRefs() []*toolv1.ToolRef { return f.ref.GetTools() }

// Tools returns their definitions, in order.
func (f *Frame) Tools() []*toolv1.ToolDefinition {
	var offered []*toolv1.ToolDefinition
	for _, ref := range f.ToolRefs() {
		if d := f.Tool(VisibleName(ref)); d != nil {
			offered = append(offered, d)
		}
	}
	return offered
}

// Tool returns the pinned definition of the tool that the agent's model calls by a name; nil if there is none. The same
// name may mean another tool in another agent.
func (f *Frame) Tool(name string) *toolv1.ToolDefinition {
	if d := toolOf(f.tools, name); d != nil {
		return d
	}
	return toolOf(f.run.tools, name)
}

func toolOf(tools []*toolv1.ToolDefinition, name string) *toolv1.ToolDefinition {
	for _, d := range tools {
		if d.GetInfo().GetName() == name {
			return d
		}
	}
	return nil
}

// scopes calls yield with the frame and each above it.
func (f *Frame) scopes(yield func(*Frame)) {
	for at := f; at != nil; at = at.Parent {
		yield(at)
	}
}

// Use returns the usage that counts toward the limits of the run.
func (f *Frame) Use() limit.Use {
	return limit.Use{Messages: f.conversation.Len(), Usage: f.run.Total, Turns: f.run.Turns}
}

// Broken returns the innermost limit that check reports as broken, and the frame that owns it; a nil frame if it is the
// run's.
func (f *Frame) Broken(check func(*limit.Set, limit.Use) *agentv1.LimitReached) (reached *agentv1.LimitReached, of *Frame) {
	for at := f; at != nil; at = at.Parent {
		if at.Bounds == nil {
			continue
		}
		if reached := check(at.Bounds, limit.Use{Messages: f.conversation.Len(), Usage: at.total, Turns: at.turns}); reached != nil {
			return reached, at
		}
	}
	return check(f.run.Limits, f.Use()), nil
}

// Deadline returns when the frame's own limit of wall time is reached; zero if it has none or is ending.
func (f *Frame) Deadline() time.Time {
	bound := f.Bounds.Bounds().GetTime()
	if bound == nil || f.Ending() || f.run.Uncounted() {
		return time.Time{}
	}
	return f.Began.Add(f.run.away - f.awayAtAll + bound.AsDuration())
}

// Late returns a time limit of the frame or of an ancestor that is reached, and the frame that owns it; nil if there is
// none.
func (f *Frame) Late(now time.Time) (reached *agentv1.LimitReached, of *Frame) {
	f.scopes(func(at *Frame) {
		if hit, _ := at.Bounds.TimedOut(now.Sub(at.Began) - (f.run.away - at.awayAtAll)); hit != nil {
			reached, of = hit, at
		}
		if hit, _ := at.Bounds.Overworked(at.worked); hit != nil {
			reached, of = hit, at
		}
	})
	return reached, of
}

func (s *State) agentBegan(f *Frame, e *agentv1.Event, b *agentv1.AgentBegan) error {
	bounds, err := limit.New(b.GetLimits())
	if err != nil {
		return err
	}
	if s.At(e.GetId()) != nil {
		return fmt.Errorf("the agent %q is at work", e.GetId())
	}
	child := &Frame{Span: e.GetId(), Parent: f, Began: timeOf(e.GetTime()), run: s, ref: b.GetContent().GetAgent(), tools: b.GetContent().GetTools(), awayAtAll: s.away}
	if b.GetLimits() != nil {
		child.Bounds = bounds
	}
	child.conversation.Append(b.GetContent().GetMessages()...)
	s.begin(f, e)
	s.frames = append(s.frames[:len(s.frames):len(s.frames)], child)
	child.Machine = s.machine(child.ref)
	return nil
}

func (s *State) agentEnded(o *agentv1.AgentEnded) error {
	intent, err := s.end(o.GetIntent())
	if err != nil {
		return err
	}
	child := s.At(intent.Event.GetId())
	if child == nil || child.Parent == nil {
		return fmt.Errorf("the end of %d, which began no agent", o.GetIntent())
	}
	if !child.Idle() {
		return fmt.Errorf("the agent %q ends while effects of it are open", child.Span)
	}
	s.frames = slices.DeleteFunc(slices.Clone(s.frames), func(f *Frame) bool { return f == child })
	if s.Scoring != nil && s.Scoring.Frame == child { // No agent is left to use the result.
		s.Scoring = nil
	}
	return nil
}

// machine returns the machine of an agent; nil for a reader that does not drive the run, and if this version lacks the
// agent, or this form of it.
func (s *State) machine(ref *agentv1.AgentRef) agent.Machine {
	if s.agents == nil {
		return nil
	}
	machine, err := s.agents.New(ref)
	if err != nil {
		s.TooNew = true
		return nil
	}
	return machine
}
