package run

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/toolcall"
)

// Calls are the tool calls of one assistant message, in its order, from their review until their results are in the
// conversation.
//
// They are run in stages: neighbours that may run side by side are one stage and one request, every other call is a
// stage of its own.
type Calls struct {
	// MessageID is the assistant message's.
	MessageID string
	// All are the calls.
	All []*Call
	// Stage is the one begun last; nil before the first.
	Stage *Stage
	// Failed is set once a call failed permanently: no later stage begins.
	Failed bool
	// Interrupted is set once the turn was cut: no further call begins, and the model sees all calls as cancelled.
	Interrupted bool
	// FailFast is the message's policy after a failed call.
	FailFast toolcall.FailFast

	added int
}

// Call is one of them.
type Call struct {
	// Call is the call as it would run.
	Call *toolv1.ToolCall
	// Review is the decision about the call.
	Review *toolv1.ToolReview
	// Intent is its ToolIntent; nil while it has not begun, or was rejected.
	Intent *agentv1.Event
	// Outcome is its ToolOutcome; nil while the call is open.
	Outcome *agentv1.Event
}

// Stage is the set of calls that one request executes.
type Stage struct {
	// RequestID is its key.
	RequestID string
	// Calls are its calls.
	Calls []*Call
	// Store are the entries that its tools declare, as they were when it began.
	Store map[string]string

	working time.Duration
}

// Done reports whether every call has its outcome.
func (c *Calls) Done() bool {
	return !slices.ContainsFunc(c.All, func(call *Call) bool { return call.Outcome == nil })
}

// Next returns the calls of the stage that can begin now: none while another stage is open or after a failure.
func (c *Calls) Next() []*Call {
	from := slices.IndexFunc(c.All, func(call *Call) bool { return call.Outcome == nil })
	if from < 0 || c.All[from].Intent != nil || c.Failed {
		return nil
	}
	return c.All[from:toolcall.StageEnd(from, len(c.All), c.parallel)]
}

// parallel reports whether a call is to run and may run concurrently with its neighbours.
func (c *Calls) parallel(i int) bool {
	call := c.All[i]
	return call.Review.GetDecision() == toolv1.ReviewDecision_REVIEW_DECISION_RUN &&
		c.FailFast.Parallel(call.Call.GetFunction(), call.Review.GetParallel())
}

// Skips reports whether a call is skipped, since an earlier call of its function failed.
func (c *Calls) Skips(call *Call) bool {
	return c.FailFast.Skips(call.Call.GetFunction(), func(function string) bool {
		return slices.ContainsFunc(c.All, func(other *Call) bool {
			return other.Call.GetFunction() == function && other.Outcome.GetToolOutcome().GetErrorType() != toolv1.ToolErrorType_TOOL_ERROR_TYPE_UNSPECIFIED
		})
	})
}

// find returns the first call of that id which fits. Ids of a message should differ, but providers repeat them.
func (c *Calls) find(id string, fits func(*Call) bool) *Call {
	for _, call := range c.All {
		if call.Review.GetCallId() == id && fits(call) {
			return call
		}
	}
	return nil
}

func (f *Frame) toolsReviewed(r *agentv1.ToolsReviewed) error {
	if f.Calls != nil {
		return fmt.Errorf("the calls of %s are reviewed while those of %s are at hand", r.GetMessageId(), f.Calls.MessageID)
	}
	message := f.message(r.GetMessageId())
	f.Calls = &Calls{MessageID: r.GetMessageId(), FailFast: toolcall.FailFastOf(message)}
	for i, review := range r.GetContent().GetReviews() {
		call := review.GetCall()
		if call == nil && i < len(message.GetToolCalls()) { // A review holds only a call that differs.
			call = message.GetToolCalls()[i]
		}
		if call == nil {
			return fmt.Errorf("a review of the call %s, which the message %s has not", review.GetCallId(), r.GetMessageId())
		}
		f.Calls.All = append(f.Calls.All, &Call{Call: call, Review: review})
	}
	return nil
}

// message returns the message with an id; nil if there is none.
func (f *Frame) message(id string) *modelv1.ChatMessage {
	for _, m := range slices.Backward(f.Messages()) {
		if m.GetId() == id {
			return m
		}
	}
	return nil
}

func (s *State) toolIntent(f *Frame, e *agentv1.Event, i *agentv1.ToolIntent) error {
	if i.GetClientKey() != "" {
		s.outsideCall(f, e, i)
		return nil
	}
	call, err := f.call(i.GetCallId(), func(c *Call) bool { return c.Intent == nil && c.Outcome == nil })
	if err != nil {
		return err
	}
	call.Intent = e
	if stage := f.Calls.Stage; stage == nil || stage.RequestID != i.GetRequestId() {
		f.Calls.Stage = &Stage{RequestID: i.GetRequestId(), Store: map[string]string{}}
	}
	stage := f.Calls.Stage
	stage.Calls = append(stage.Calls, call)
	maps.Copy(stage.Store, f.declared(i.GetFunction()))
	if !i.GetCaller() {
		s.begin(f, e)
	}
	return nil
}

// outsideCall begins a call that was requested from outside. It is no call of a message, and a request of its own.
func (s *State) outsideCall(f *Frame, e *agentv1.Event, i *agentv1.ToolIntent) {
	s.begin(f, e).Stage = &Stage{
		RequestID: i.GetRequestId(), Calls: []*Call{{Call: i.GetContent(), Intent: e}}, Store: f.declared(i.GetFunction()),
	}
}

func (f *Frame) call(id string, fits func(*Call) bool) (*Call, error) {
	if f.Calls != nil {
		if call := f.Calls.find(id, fits); call != nil {
			return call, nil
		}
	}
	return nil, fmt.Errorf("the call %s is not at hand", id)
}

// declared returns the entries of the store that a tool declares.
func (f *Frame) declared(function string) map[string]string {
	entries := map[string]string{}
	keys := f.Tool(function).GetStoreKeys()
	for key, value := range f.run.store {
		if toolcall.Covers(keys, key) {
			entries[key] = value
		}
	}
	return entries
}

func (s *State) toolOutcome(f *Frame, e *agentv1.Event, o *agentv1.ToolOutcome) error {
	if i := s.OpenIntent(o.GetIntent()); i != nil && i.Outside() {
		s.work(f, o.GetTiming().GetWorking().AsDuration())
		s.toolEnded(o)
		_, err := s.end(i.Seq())
		return err
	}
	call, err := f.call(o.GetCallId(), func(c *Call) bool { return c.Outcome == nil && c.Intent.GetSeq() == o.GetIntent() })
	if err != nil {
		return err
	}
	if call.Intent != nil && !call.Intent.GetToolIntent().GetCaller() {
		if _, err := s.end(o.GetIntent()); err != nil {
			return err
		}
	}
	call.Outcome = e
	if stage := f.Calls.Stage; stage != nil {
		// Calls that ran side by side count once.
		if worked := o.GetTiming().GetWorking().AsDuration(); worked > stage.working {
			s.work(f, worked-stage.working)
			stage.working = worked
		}
	}
	s.toolEnded(o)
	if failure := o.GetFailure(); failure != nil {
		f.Calls.Failed = true
		s.fail(&agentv1.RunError{Reason: failure.GetReason(), Message: failure.GetMessage()})
	}
	return nil
}

// toolEnded applies what a call did to the run, whoever requested it.
func (s *State) toolEnded(o *agentv1.ToolOutcome) {
	s.change(o.GetContent().GetResult().GetStoreChanges())
	if o.GetErrorType() == toolv1.ToolErrorType_TOOL_ERROR_TYPE_SANDBOX_UNAVAILABLE && s.SandboxFault == "" {
		s.SandboxFault = cmp.Or(o.GetContent().GetResult().GetError().GetMessage(), "the tool "+o.GetFunction()+" could not use it")
	}
}

// resultAdded notes that a result is in the conversation; the calls are over when all are.
func (f *Frame) resultAdded(m *modelv1.ChatMessage) {
	if f.Calls == nil || m.GetRole() != modelv1.Role_ROLE_TOOL {
		return
	}
	if f.Calls.added++; f.Calls.added == len(f.Calls.All) {
		f.Calls = nil
	}
}

// Ended reports whether every call of the stage has its outcome; false for no stage.
func (s *Stage) Ended() bool {
	return s != nil && !slices.ContainsFunc(s.Calls, func(c *Call) bool { return c.Outcome == nil })
}

// ToolOutcome is how a call that began has ended.
func ToolOutcome(intent *agentv1.Event, result *toolv1.ToolResult) *agentv1.Event {
	i := intent.GetToolIntent()
	if result.GetContent() == nil {
		result.Content = chat.TextContent("")
	}
	if result.GetArgumentsJson() == i.GetContent().GetArgumentsJson() {
		result.ArgumentsJson = "" // the call holds them
	}
	return NewEvent(&agentv1.ToolOutcome{
		Intent: intent.GetSeq(), CallId: i.GetCallId(), Function: i.GetFunction(), ErrorType: result.GetError().GetType(), Failure: result.GetFailure(),
		Truncation: result.GetTruncation(), Timing: result.GetTiming(), MessageId: i.GetResultMessageId(), Content: &agentv1.ToolOutcomeContent{Result: result},
	})
}
