package decide

import (
	"cmp"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/toolcall"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/limit"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
)

// Review is an action of an agent, or a call that was requested from outside, that waits for the review of its calls.
type Review struct {
	// Key names it within the run: the span of the agent, or the id of the command.
	Key string
	// Request is the request to toolexec.
	Request *toolv1.ReviewToolsRequest

	frame   *run.Frame
	events  []*agentv1.Event
	effects agent.All // the other effects that the agent wants
	outside bool      // the call is that of the first request from outside
}

// wantReview requests a review of the calls of the last assistant message, as the conversation is after the events. A
// review has no effect, so it happens within the step and needs no intent.
func (d *Step) wantReview(f *run.Frame, events []*agentv1.Event, effects agent.All) (bool, error) {
	message := chat.LastAssistant(f.Messages())
	for _, e := range events {
		if m := e.GetMessageAdded().GetContent(); m.GetRole() == modelv1.Role_ROLE_ASSISTANT {
			message = m
		}
	}
	if len(message.GetToolCalls()) == 0 {
		return true, d.fail(errors.New("the agent wants tools called, and the last answer calls none"))
	}
	if f.Calls != nil {
		return true, d.fail(fmt.Errorf("the agent %s wants tools called while those of another message are", f.Name()))
	}
	d.review = &Review{Key: f.Span, frame: f, events: events, effects: effects, Request: d.reviewOf(f, agent.PurposeAgent, message.GetToolCalls()...)}
	return false, nil
}

func (d *Step) reviewOf(f *run.Frame, purpose string, calls ...*toolv1.ToolCall) *toolv1.ReviewToolsRequest {
	return &toolv1.ReviewToolsRequest{
		Parent: d.s.Parent(), Attribution: f.Attribution(purpose, "", d.s.Answers), Tools: f.ToolRefs(), Calls: calls, Policies: d.s.Spec().GetApproval(),
	}
}

// Unreviewed continues without an answer to the review that was returned last: its agent waits, or the command that
// requests the call stays in the inbox. The same review is requested in a later step.
func (d *Step) Unreviewed() (*Review, error) {
	if d.review.outside {
		d.leave()
	} else {
		d.unreviewed = append(d.unreviewed, d.review.frame)
	}
	d.review = nil
	return d.next()
}

// Reviewed continues with the answer to the review that was returned last, or with the error by which it failed
// permanently.
func (d *Step) Reviewed(reviews []*toolv1.ToolReview, err error) (*Review, error) {
	asked := d.review
	d.review = nil
	if calls := len(asked.Request.GetCalls()); err == nil && len(reviews) != calls {
		err = rpcerr.Internal("%d calls have %d reviews", calls, len(reviews))
	}
	if asked.outside {
		err = d.outsideReviewed(asked, reviews, err)
	} else if err != nil {
		err = d.fail(err)
	} else if stopped, addErr := d.add(asked.frame, asked.events); addErr != nil || stopped {
		err = addErr
	} else if err = d.reviewed(asked.frame, reviews); err == nil {
		_, err = d.beginAll(asked.frame, asked.effects)
	}
	if err != nil {
		return nil, err
	}
	return d.next()
}

// reviewed journals the reviews of the last assistant message's calls.
func (d *Step) reviewed(f *run.Frame, reviews []*toolv1.ToolReview) error {
	message := chat.LastAssistant(f.Messages())
	reviewed := &agentv1.ToolsReviewed{MessageId: message.GetId(), Content: &agentv1.ToolsReviewedContent{Reviews: reviews}}
	for i, r := range reviews {
		if proto.Equal(r.GetCall(), message.GetToolCalls()[i]) {
			r.Call = nil // the message has it
		}
		reviewed.Decisions = append(reviewed.Decisions, &agentv1.ToolDecision{CallId: r.GetCallId(), Decision: r.GetDecision(), Approver: r.GetApprover(), Parallel: r.GetParallel()})
	}
	return d.emitIn(f, run.NewEvent(reviewed))
}

// calls continues the calls of a turn: it begins the next stage or, when all have ended, appends their results to the
// conversation.
func (d *Step) calls(f *run.Frame) (bool, error) {
	all := f.Calls
	switch {
	case all.Interrupted:
		return d.repair(f)
	case all.Done():
		return true, d.addResults(f)
	}
	stage := all.Next()
	if len(stage) == 0 {
		return false, nil
	}
	first := stage[0]
	switch first.Review.GetDecision() {
	case toolv1.ReviewDecision_REVIEW_DECISION_REJECT:
		return true, d.refuse(f, first, first.Review.GetError())
	case toolv1.ReviewDecision_REVIEW_DECISION_CALLER:
		return true, d.callOwn(f, first)
	case toolv1.ReviewDecision_REVIEW_DECISION_RUN:
		if all.Skips(first) {
			return true, d.refuse(f, first, toolcall.Skipped(first.Call.GetFunction()), toolcall.SkippedNote(first.Call.GetFunction()))
		}
		return true, d.begin(f, alike(f, stage))
	case toolv1.ReviewDecision_REVIEW_DECISION_TERMINATE:
		return true, d.terminate(first.Review)
	case toolv1.ReviewDecision_REVIEW_DECISION_ASK:
		return true, d.fail(rpcerr.NotBuiltYet("asking a person about a tool call"))
	default:
		return true, d.fail(rpcerr.Internal("the call %s has the review %s", first.Call.GetId(), first.Review.GetDecision()))
	}
}

// terminate ends the run, as the review of a call decides.
func (d *Step) terminate(r *toolv1.ToolReview) error {
	return d.hit(limit.Ended(cmp.Or(r.GetExplanation(), "an approver ended the run")))
}

// alike cuts a stage where the bound of results changes, since a request has a single bound.
func alike(f *run.Frame, stage []*run.Call) []*run.Call {
	bound, set := f.Machine.ToolBound(stage[0].Call.GetFunction())
	for i, c := range stage {
		if other, otherSet := f.Machine.ToolBound(c.Call.GetFunction()); other != bound || otherSet != set {
			return stage[:i]
		}
	}
	return stage
}

// begin journals the intents of a stage, which is one request.
func (d *Step) begin(f *run.Frame, stage []*run.Call) error {
	key := d.s.Key(d.s.Seq + 1)
	for _, c := range stage {
		err := d.emitIn(f, run.NewEvent(&agentv1.ToolIntent{
			CallId: c.Call.GetId(), Function: c.Call.GetFunction(), RequestId: key, MessageId: f.Calls.MessageID,
			ResultMessageId: d.messageID(d.s.Seq+1, 0), Content: c.Call,
		}))
		if err != nil {
			return err
		}
	}
	return nil
}

// callOwn runs a call of the agent's own tool; its intent and its outcome are one append.
func (d *Step) callOwn(f *run.Frame, c *run.Call) error {
	intent := &agentv1.ToolIntent{
		CallId: c.Call.GetId(), Function: c.Call.GetFunction(), RequestId: d.s.Key(d.s.Seq + 1), Caller: true, MessageId: f.Calls.MessageID,
		ResultMessageId: d.messageID(d.s.Seq+1, 0), Content: c.Call,
	}
	if err := d.emitIn(f, run.NewEvent(intent)); err != nil {
		return err
	}
	result := f.Machine.Call(f, c.Call)
	return d.emitIn(f, run.ToolOutcome(c.Intent, result))
}

// refuse sets the error of a call that never begins.
func (d *Step) refuse(f *run.Frame, c *run.Call, err *toolv1.ToolCallError, notes ...string) error {
	return d.emitIn(f, run.NewEvent(&agentv1.ToolOutcome{
		CallId: c.Call.GetId(), Function: c.Call.GetFunction(), ErrorType: err.GetType(), MessageId: d.messageID(d.s.Seq+1, 0),
		Content: &agentv1.ToolOutcomeContent{
			Call:   c.Call,
			Result: &toolv1.ToolResult{CallId: c.Call.GetId(), Function: c.Call.GetFunction(), Content: chat.TextContent(""), Error: err, Notes: notes},
		},
	}))
}

// addResults appends the results to the conversation, in the order of the calls: all of them or, if the limit forbids
// it, none.
func (d *Step) addResults(f *run.Frame) error {
	all := f.Calls.All
	if reached, of := d.grows(f, len(all)); reached != nil {
		return d.hitIn(of, reached)
	}
	for _, c := range all {
		m := journal.MessageOf(c.Outcome)
		e := &agentv1.Event{Kind: &agentv1.Event_MessageAdded{MessageAdded: &agentv1.MessageAdded{Role: m.GetRole(), Content: m}}}
		if err := d.emitIn(f, e); err != nil {
			return err
		}
		d.Entries[len(d.Entries)-1].Same = c.Outcome.GetSeq()
	}
	return nil
}

// askWorker journals the intent of a call.
func (d *Step) askWorker(f *run.Frame, ref *agentv1.WorkerRef, purpose string) error {
	return d.emitIn(f, run.NewEvent(&agentv1.WorkerIntent{Worker: ref, RequestId: d.s.Key(d.s.Seq + 1), Purpose: purpose}))
}

// askForAgent calls a worker for an agent, unless a limit of time forbids it. Other limits forbid model calls alone:
// the worker may end the agent.
func (d *Step) askForAgent(f *run.Frame, ref *agentv1.WorkerRef) error {
	if reached, of := d.late(f); reached != nil {
		return d.hitIn(of, reached)
	}
	return d.askWorker(f, ref, agent.PurposeAgent)
}
