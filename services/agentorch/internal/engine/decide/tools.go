package decide

import (
	"cmp"
	"errors"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/toolcall"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/limit"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
)

// review is an action of the agent that waits for the review of its calls.
type review struct {
	request *toolv1.ReviewToolsRequest
	events  []*agentv1.Event
}

// wantReview has the calls of the assistant message reviewed that is last once the events are in the conversation. A
// review has no effect, so it is asked for within the step and needs no intent.
func (d *Step) wantReview(events []*agentv1.Event) (bool, error) {
	s := d.s
	message := chat.LastAssistant(s.Messages())
	for _, e := range events {
		if m := e.GetMessageAdded().GetContent(); m.GetRole() == modelv1.Role_ROLE_ASSISTANT {
			message = m
		}
	}
	if len(message.GetToolCalls()) == 0 {
		return true, d.fail(errors.New("the agent wants tools called, and the last answer calls none"))
	}
	d.review = &review{events: events, request: &toolv1.ReviewToolsRequest{
		Parent: s.Parent(), Attribution: s.Attribution(run.PurposeAgent, "", s.Answers), Tools: s.ToolRefs(), Calls: message.GetToolCalls(),
		Policies: s.Spec().GetApproval(),
	}}
	return false, nil
}

// Reviewed goes on with the review that Decide asked for, or with why it failed for good.
func (d *Step) Reviewed(reviews []*toolv1.ToolReview, err error) (*toolv1.ReviewToolsRequest, error) {
	asked := d.review
	d.review = nil
	if calls := len(asked.request.GetCalls()); err == nil && len(reviews) != calls {
		err = rpcerr.Internal("%d calls have %d reviews", calls, len(reviews))
	}
	if err != nil {
		err = d.fail(err)
	} else if stopped, addErr := d.add(asked.events); addErr != nil || stopped {
		err = addErr
	} else {
		err = d.reviewed(reviews)
	}
	if err != nil {
		return nil, err
	}
	return d.next()
}

// reviewed journals the reviews of the last assistant message's calls.
func (d *Step) reviewed(reviews []*toolv1.ToolReview) error {
	message := chat.LastAssistant(d.s.Messages())
	reviewed := &agentv1.ToolsReviewed{MessageId: message.GetId(), Content: &agentv1.ToolsReviewedContent{Reviews: reviews}}
	for i, r := range reviews {
		if proto.Equal(r.GetCall(), message.GetToolCalls()[i]) {
			r.Call = nil // the message has it
		}
		reviewed.Decisions = append(reviewed.Decisions, &agentv1.ToolDecision{CallId: r.GetCallId(), Decision: r.GetDecision(), Approver: r.GetApprover(), Parallel: r.GetParallel()})
	}
	return d.emit(run.NewEvent(reviewed))
}

// calls goes on with the calls at hand: the next stage, or, when all have ended, their results into the conversation.
func (d *Step) calls() (bool, error) {
	all := d.s.Calls
	if all.Done() {
		return true, d.addResults()
	}
	stage := all.Next()
	if len(stage) == 0 {
		return false, nil
	}
	first := stage[0]
	switch first.Review.GetDecision() {
	case toolv1.ReviewDecision_REVIEW_DECISION_REJECT:
		return true, d.refuse(first, first.Review.GetError())
	case toolv1.ReviewDecision_REVIEW_DECISION_CALLER:
		return true, d.callOwn(first)
	case toolv1.ReviewDecision_REVIEW_DECISION_RUN:
		if all.Skips(first) {
			return true, d.refuse(first, toolcall.Skipped(first.Call.GetFunction()), toolcall.SkippedNote(first.Call.GetFunction()))
		}
		return true, d.begin(d.alike(stage))
	case toolv1.ReviewDecision_REVIEW_DECISION_TERMINATE:
		return true, d.hit(limit.Ended(cmp.Or(first.Review.GetExplanation(), "an approver ended the run")))
	case toolv1.ReviewDecision_REVIEW_DECISION_ASK:
		return true, d.fail(rpcerr.NotBuiltYet("asking a person about a tool call"))
	default:
		return true, d.fail(rpcerr.Internal("the call %s has the review %s", first.Call.GetId(), first.Review.GetDecision()))
	}
}

// alike cuts a stage where the bound of results changes, since one request has one.
func (d *Step) alike(stage []*run.Call) []*run.Call {
	bound, set := d.s.Machine.ToolBound(stage[0].Call.GetFunction())
	for i, c := range stage {
		if other, otherSet := d.s.Machine.ToolBound(c.Call.GetFunction()); other != bound || otherSet != set {
			return stage[:i]
		}
	}
	return stage
}

// begin journals the intents of a stage, which is one request.
func (d *Step) begin(stage []*run.Call) error {
	key := d.s.Key(d.s.Seq + 1)
	for _, c := range stage {
		err := d.emit(run.NewEvent(&agentv1.ToolIntent{
			CallId: c.Call.GetId(), Function: c.Call.GetFunction(), RequestId: key, MessageId: d.s.Calls.MessageID,
			ResultMessageId: d.messageID(d.s.Seq+1, 0), Content: c.Call,
		}))
		if err != nil {
			return err
		}
	}
	return nil
}

// callOwn runs a call of the agent's own tool; its intent and its outcome are one append.
func (d *Step) callOwn(c *run.Call) error {
	intent := &agentv1.ToolIntent{
		CallId: c.Call.GetId(), Function: c.Call.GetFunction(), RequestId: d.s.Key(d.s.Seq + 1), Caller: true, MessageId: d.s.Calls.MessageID,
		ResultMessageId: d.messageID(d.s.Seq+1, 0), Content: c.Call,
	}
	if err := d.emit(run.NewEvent(intent)); err != nil {
		return err
	}
	result := d.s.Machine.Call(d.s, c.Call)
	return d.emit(run.ToolOutcome(c.Intent, result))
}

// refuse gives a call that never begins its error.
func (d *Step) refuse(c *run.Call, err *toolv1.ToolCallError, notes ...string) error {
	return d.emit(run.NewEvent(&agentv1.ToolOutcome{
		CallId: c.Call.GetId(), Function: c.Call.GetFunction(), ErrorType: err.GetType(), MessageId: d.messageID(d.s.Seq+1, 0),
		Content: &agentv1.ToolOutcomeContent{
			Call:   c.Call,
			Result: &toolv1.ToolResult{CallId: c.Call.GetId(), Function: c.Call.GetFunction(), Content: chat.TextContent(""), Error: err, Notes: notes},
		},
	}))
}

// addResults puts the results into the conversation, in the order of the calls, all or, where the bound forbids it,
// none.
func (d *Step) addResults() error {
	all := d.s.Calls.All
	if reached := d.s.Limits.Growth(len(d.s.Messages()) + len(all)); reached != nil {
		return d.hit(reached)
	}
	for _, c := range all {
		m := journal.MessageOf(c.Outcome)
		e := &agentv1.Event{Kind: &agentv1.Event_MessageAdded{MessageAdded: &agentv1.MessageAdded{Role: m.GetRole(), Content: m}}}
		if err := d.emit(e); err != nil {
			return err
		}
		d.Entries[len(d.Entries)-1].Same = c.Outcome.GetSeq()
	}
	return nil
}

// askWorker journals the intent of a call.
func (d *Step) askWorker(ref *agentv1.WorkerRef, purpose string) error {
	return d.emit(run.NewEvent(&agentv1.WorkerIntent{Worker: ref, RequestId: d.s.Key(d.s.Seq + 1), Purpose: purpose}))
}

// askForAgent asks the worker that an agent wants to hear, unless a bound forbids it.
func (d *Step) askForAgent(ref *agentv1.WorkerRef) error {
	if reached := d.forbidden(); reached != nil {
		return d.hit(reached)
	}
	return d.askWorker(ref, run.PurposeAgent)
}
