package decide

import (
	"fmt"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/inbox"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/waits"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/limit"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
)

// commands applies the commands in the inbox.
func (d *Step) commands() error {
	for _, c := range d.facts.Commands {
		if _, effect := c.Request.(*agentv1.EffectRequest); effect {
			d.asked = append(d.asked, c) // After a cancel of the same batch no effect begins.
			continue
		}
		if err := d.command(c); err != nil {
			return err
		}
		d.Took = append(d.Took, c.ID)
	}
	return nil
}

// command journals a command and its immediate consequences.
func (d *Step) command(c inbox.Command) error {
	received, f := &agentv1.CommandReceived{CommandId: c.ID}, d.s.Frame
	var follows []*agentv1.Event
	to := func(span string) bool { // reports whether the agent that the command addresses is active
		if of := d.s.At(span); of != nil && !of.Ending() {
			f = of
		} else {
			received.Outdated = true
		}
		return !received.GetOutdated()
	}
	switch r := c.Request.(type) {
	case *agentv1.CancelRunRequest:
		received.Reason = r.GetReason()
		received.Type = agentv1.CommandType_COMMAND_TYPE_CANCEL
		var ends *agentv1.Event
		if received.Mode, ends = d.cancel(r); ends != nil {
			follows = append(follows, ends)
		}
	case *agentv1.RetuneLimitsRequest:
		received.Type = agentv1.CommandType_COMMAND_TYPE_LIMITS
		if received.Outdated = r.GetEtag() != "" && r.GetEtag() != d.s.Etag(); !received.GetOutdated() {
			follows = append(follows, run.NewEvent(&agentv1.LimitsRetuned{Limits: limit.Retune(d.s.Limits.Bounds(), r.GetLimits(), r.GetUpdateMask().GetPaths())}))
		}
	case *agentv1.PostMessageRequest:
		received.Type, received.Content = agentv1.CommandType_COMMAND_TYPE_MESSAGE, operators(r.GetMessages())
		to(r.GetSpan())
	case *agentv1.InterruptRunRequest:
		received.Type, received.Reason, received.Content = agentv1.CommandType_COMMAND_TYPE_INTERRUPT, r.GetReason(), operators(r.GetMessages())
		if to(r.GetSpan()) {
			cut := run.NewEvent(d.cut(f))
			cut.Span = f.Span
			follows = append(follows, cut)
		}
	case *agentv1.CancelCallRequest:
		received.Type, received.Reason = agentv1.CommandType_COMMAND_TYPE_CANCEL_CALL, r.GetReason()
		if to(r.GetSpan()) {
			received.Intent = openCall(d.s, f, r)
			received.Outdated = received.GetIntent() == 0
		}
	case *agentv1.HoldRunRequest:
		received.Type, received.Reason = agentv1.CommandType_COMMAND_TYPE_HOLD, r.GetReason()
	case *agentv1.ResumeRunRequest:
		received.Type = agentv1.CommandType_COMMAND_TYPE_RESUME
		d.s.Waits(func(wait *agentv1.RunWait, i *run.Intent, f *run.Frame) bool {
			if wait.GetReason() == waits.Decision {
				follows = append(follows, wentOn(i, f))
			}
			return true
		})
	default:
		return fmt.Errorf("decide: command %s is a %T", c.ID, r)
	}
	e := run.NewEvent(received)
	e.Span = f.Span
	if err := d.emitBy(c.Principal, e); err != nil {
		return err
	}
	for _, e := range follows {
		if err := d.emitBy(c.Principal, e); err != nil {
			return err
		}
	}
	return nil
}

// operators returns the content of a command with an operator's messages; nil if there are none.
func operators(messages []*modelv1.ChatMessage) *agentv1.CommandContent {
	for _, m := range messages {
		m.Source = modelv1.MessageSource_MESSAGE_SOURCE_OPERATOR
	}
	if len(messages) == 0 {
		return nil
	}
	return &agentv1.CommandContent{Messages: messages}
}

// cancel returns the mode of the journaled command, and the event with the outcome of the run if it is not plain
// cancellation.
func (d *Step) cancel(r *agentv1.CancelRunRequest) (agentv1.CancelMode, *agentv1.Event) {
	why := r.GetReason()
	if why == "" {
		why = "ended by an operator"
	}
	switch r.GetMode() {
	case agentv1.CancelMode_CANCEL_MODE_SCORE:
		return r.GetMode(), run.NewEvent(&agentv1.LimitHit{Limit: limit.Ended(why), EndsRun: true})
	case agentv1.CancelMode_CANCEL_MODE_ERROR:
		return r.GetMode(), run.NewEvent(&agentv1.ErrorRaised{Error: &agentv1.RunError{Reason: reasonOperator, Message: why}})
	default:
		return agentv1.CancelMode_CANCEL_MODE_CANCEL, nil
	}
}
