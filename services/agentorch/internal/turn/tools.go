package turn

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/limit"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
)

const (
	// reviewTimeout bounds a review, which has no effect and can be asked again.
	reviewTimeout = 30 * time.Second
	// reviewAgain is when it is asked again after a failure that may pass.
	reviewAgain = 500 * time.Millisecond
)

// review has the calls of the assistant message reviewed that stands last once the events are in the conversation. A review has no effect, so it is asked within the step and needs no intent.
// Later says that toolexec is away for now.
func (d *driver) review(events []*agentv1.Event) (reviews []*toolv1.ToolReview, later bool, err error) {
	s := d.s
	message := chat.LastAssistant(s.Messages())
	for _, e := range events {
		if m := e.GetMessageAdded().GetContent(); m.GetRole() == modelv1.Role_ROLE_ASSISTANT {
			message = m
		}
	}
	if len(message.GetToolCalls()) == 0 {
		return nil, false, errors.New("the agent wants tools called, and the last answer calls none")
	}
	ctx, cancel := withTimeout(d.ctx, d.engine.flights, reviewTimeout)
	defer cancel()
	answer, err := d.engine.deps.Tools.ReviewTools(ctx, &toolv1.ReviewToolsRequest{
		Parent: s.Parent(), Attribution: d.attribution(run.PurposeAgent, "", s.Answers), Tools: s.ToolRefs(), Calls: message.GetToolCalls(), Policies: s.Spec().GetApproval(),
	})
	switch {
	case err != nil && (rpcerr.Transient(err) || ctx.Err() != nil):
		d.again = d.now.Add(max(reviewAgain, rpcerr.RetryAfter(err)))
		return nil, true, nil
	case err != nil:
		return nil, false, err
	case len(answer.GetReviews()) != len(message.GetToolCalls()):
		return nil, false, rpcerr.Internal("%d calls have %d reviews", len(message.GetToolCalls()), len(answer.GetReviews()))
	}
	return answer.GetReviews(), false, nil
}

// reviewed journals the reviews of the last assistant message's calls.
func (d *driver) reviewed(reviews []*toolv1.ToolReview) error {
	message := chat.LastAssistant(d.s.Messages())
	reviewed := &agentv1.ToolsReviewed{MessageId: message.GetId(), Content: &agentv1.ToolsReviewedContent{Reviews: reviews}}
	for i, r := range reviews {
		if proto.Equal(r.GetCall(), message.GetToolCalls()[i]) {
			r.Call = nil // the message has it
		}
		reviewed.Decisions = append(reviewed.Decisions, &agentv1.ToolDecision{CallId: r.GetCallId(), Decision: r.GetDecision(), Approver: r.GetApprover(), Parallel: r.GetParallel()})
	}
	return d.emit(event(reviewed))
}

// calls goes on with the calls at hand: the next stage, or, when all have ended, their results into the conversation.
func (d *driver) calls() (bool, error) {
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
		if d.skipped(first) {
			return true, d.refuse(first, &toolv1.ToolCallError{
				Type: toolv1.ToolErrorType_TOOL_ERROR_TYPE_CANCELLED, Message: "not executed, since an earlier call of " + first.Call.GetFunction() + " failed",
			})
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
func (d *driver) alike(stage []*run.Call) []*run.Call {
	bound, set := d.s.Machine.ToolBound(stage[0].Call.GetFunction())
	for i, c := range stage {
		if other, otherSet := d.s.Machine.ToolBound(c.Call.GetFunction()); other != bound || otherSet != set {
			return stage[:i]
		}
	}
	return stage
}

// begin journals the intents of a stage, which is one request.
func (d *driver) begin(stage []*run.Call) error {
	key := d.s.Key(d.s.Seq + 1)
	for _, c := range stage {
		err := d.emit(event(&agentv1.ToolIntent{
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
func (d *driver) callOwn(c *run.Call) error {
	intent := &agentv1.ToolIntent{
		CallId: c.Call.GetId(), Function: c.Call.GetFunction(), RequestId: d.s.Key(d.s.Seq + 1), Caller: true, MessageId: d.s.Calls.MessageID,
		ResultMessageId: d.messageID(d.s.Seq+1, 0), Content: c.Call,
	}
	if err := d.emit(event(intent)); err != nil {
		return err
	}
	result := d.s.Machine.Call(d.s, c.Call)
	return d.emit(toolOutcome(c.Intent, result))
}

// refuse gives a call that never begins its error.
func (d *driver) refuse(c *run.Call, err *toolv1.ToolCallError) error {
	return d.emit(event(&agentv1.ToolOutcome{
		CallId: c.Call.GetId(), Function: c.Call.GetFunction(), ErrorType: err.GetType(), MessageId: d.messageID(d.s.Seq+1, 0),
		Content: &agentv1.ToolOutcomeContent{
			Call:   c.Call,
			Result: &toolv1.ToolResult{CallId: c.Call.GetId(), Function: c.Call.GetFunction(), Content: chat.TextContent(""), Error: err},
		},
	}))
}

// skipped reports whether an earlier call of a tool that is to fail fast has failed.
func (d *driver) skipped(c *run.Call) bool {
	if !slices.Contains(d.failFast(), c.Call.GetFunction()) {
		return false
	}
	return slices.ContainsFunc(d.s.Calls.All, func(other *run.Call) bool {
		return other.Call.GetFunction() == c.Call.GetFunction() && other.Outcome.GetToolOutcome().GetErrorType() != toolv1.ToolErrorType_TOOL_ERROR_TYPE_UNSPECIFIED
	})
}

// failFast returns the tools whose calls the assistant message wants to stop at the first failure.
func (a *actor) failFast() []string {
	var metadata struct {
		Tools []string `json:"tool_calls_fail_fast"`
	}
	for _, m := range slices.Backward(a.state.Messages()) {
		if m.GetId() == a.state.Calls.MessageID && m.GetMetadataJson() != "" {
			_ = json.Unmarshal([]byte(m.GetMetadataJson()), &metadata) // metadata of another form says nothing
		}
	}
	return metadata.Tools
}

// addResults puts the results into the conversation, in the order of the calls, all or, where the bound forbids it, none.
func (d *driver) addResults() error {
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
		d.entries[len(d.entries)-1].Same = c.Outcome.GetSeq()
	}
	return nil
}
