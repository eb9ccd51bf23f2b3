package decide

import (
	"cmp"

	"google.golang.org/protobuf/proto"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/inbox"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/limit"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
)

// outside decides the next request for an effect from outside. If no effect may begin now, as in a held run, the
// command stays in the inbox. If none may ever begin, as in a stopping run, the event that takes the command records
// that. A tool call is reviewed first.
func (d *Step) outside() error {
	s, c := d.s, d.asked[0]
	r, _ := c.Request.(*agentv1.EffectRequest)
	f := s.At(r.GetSpan())
	switch {
	case s.Stopping() || s.StepsDone || s.Fault != nil || f == nil || f.Ending():
		return d.take(nil, true)
	case s.Step < 0 || s.Held || s.Pause != nil || d.facts.Unread || d.facts.Lack != "":
		d.leave()
		return nil
	}
	reached, of := d.forbidden(f)
	if asked := r.GetGenerate(); asked != nil && reached == nil {
		reached, of = f.Broken(func(b *limit.Set, u limit.Use) *agentv1.LimitReached {
			u.Messages = len(asked.GetMessages())
			return b.BeforeGenerate(u)
		})
	}
	if reached != nil {
		if err := d.take(f, true); err != nil {
			return err
		}
		return d.hitIn(of, reached)
	}
	if asked := r.GetToolCall().GetCall(); asked != nil {
		call := proto.CloneOf(asked)
		call.Id = cmp.Or(call.GetId(), r.GetClientKey())
		d.review = &Review{Key: c.ID, frame: f, outside: true, Request: d.reviewOf(f, run.PurposeOutside, call)}
		return nil
	}
	if err := d.take(f, false); err != nil {
		return err
	}
	intent := run.NewEvent(&agentv1.ExecIntent{
		Environment: r.GetExec().GetEnvironment(), RequestId: s.Key(s.Seq + 1), Purpose: run.PurposeOutside, Content: r.GetExec().GetSpec(), ClientKey: r.GetClientKey(),
	})
	if asked := r.GetGenerate(); asked != nil {
		content := &agentv1.ModelIntentContent{Messages: asked.GetMessages(), Tools: asked.GetTools()}
		call := d.modelIntent(run.PurposeOutside, asked.GetModel(), asked.GetConfig(), content, asked.GetToolChoice())
		call.Turn, call.ClientKey = int32(s.Answers+1), r.GetClientKey()
		intent = run.NewEvent(call)
	}
	return d.emitOutside(c, f, intent)
}

// leave leaves the next request in the inbox.
func (d *Step) leave() { d.asked, d.Left = d.asked[1:], true }

// take journals that the next request was taken, for an agent, and whether nothing begins.
func (d *Step) take(f *run.Frame, outdated bool) error {
	c := d.asked[0]
	r, _ := c.Request.(*agentv1.EffectRequest)
	d.asked, d.Took = d.asked[1:], append(d.Took, c.ID)
	received := &agentv1.CommandReceived{CommandId: c.ID, Type: agentv1.CommandType_COMMAND_TYPE_EFFECT, ClientKey: r.GetClientKey(), Outdated: outdated}
	return d.emitOutside(c, f, run.NewEvent(received))
}

// emitOutside is emit for an event that a request causes; f is nil if it is about no agent.
func (d *Step) emitOutside(c inbox.Command, f *run.Frame, e *agentv1.Event) error {
	if f != nil {
		e.Span = f.Span
	}
	return d.emitBy(c.Principal, e)
}

// outsideReviewed begins the tool call of the next request. A call that may not begin gets its outcome at once: the
// error of the review, or a failure, which is the asker's.
func (d *Step) outsideReviewed(asked *Review, reviews []*toolv1.ToolReview, failure error) error {
	c, f, call, review := d.asked[0], asked.frame, asked.Request.GetCalls()[0], &toolv1.ToolReview{}
	if failure == nil {
		review = reviews[0]
		call = cmp.Or(review.GetCall(), call)
	}
	ends := review.GetDecision() == toolv1.ReviewDecision_REVIEW_DECISION_TERMINATE
	if err := d.take(f, ends); err != nil {
		return err
	}
	if ends {
		return d.terminate(review)
	}
	r, _ := c.Request.(*agentv1.EffectRequest)
	intent := run.NewEvent(&agentv1.ToolIntent{
		CallId: call.GetId(), Function: call.GetFunction(), RequestId: d.s.Key(d.s.Seq + 1), Content: call, ClientKey: r.GetClientKey(),
	})
	if err := d.emitOutside(c, f, intent); err != nil {
		return err
	}
	result := &toolv1.ToolResult{CallId: call.GetId(), Function: call.GetFunction()}
	switch decision := review.GetDecision(); {
	case failure != nil:
		d.Faults = append(d.Faults, failure)
	case decision == toolv1.ReviewDecision_REVIEW_DECISION_RUN:
		return nil
	case decision == toolv1.ReviewDecision_REVIEW_DECISION_REJECT:
		result.Error = review.GetError()
	case decision == toolv1.ReviewDecision_REVIEW_DECISION_CALLER:
		failure = rpcerr.InvalidField("tool_call.call.function", "%s is a tool that the agent itself runs; ask for another", call.GetFunction())
	case decision == toolv1.ReviewDecision_REVIEW_DECISION_ASK:
		failure = rpcerr.NotBuiltYet("asking a person about a tool call")
	default:
		failure = rpcerr.Internal("the call %s has the review %s", call.GetId(), decision)
	}
	if failure != nil {
		as := run.ErrorOf(failure)
		result.Failure = &toolv1.ToolFailure{Reason: as.GetReason(), Message: as.GetMessage()}
	}
	return d.emitIn(f, run.ToolOutcome(intent, result))
}
