package turn

import (
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/limit"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
)

// Command is an operator's wish as it lies in a run's inbox: who wants it, and the request as it came.
type Command struct {
	// ID is unique in the inbox.
	ID string
	// Principal is who sent it, such as `user:ada`.
	Principal string
	// Request is a CancelRunRequest, RetuneLimitsRequest, PostMessageRequest, HoldRunRequest or ResumeRunRequest.
	Request proto.Message
}

// posted is the stored form of a command.
type posted struct {
	Principal string `json:"principal"`
	Type      string `json:"type"`
	Request   []byte `json:"request"`
}

// Pack gives the command the form in which it lies in the inbox.
func (c Command) Pack() (journal.Command, error) {
	request := &anypb.Any{}
	if err := anypb.MarshalFrom(request, c.Request, proto.MarshalOptions{Deterministic: true}); err != nil {
		return journal.Command{}, fmt.Errorf("turn: command: %w", err)
	}
	body, err := json.Marshal(posted{Principal: c.Principal, Type: request.GetTypeUrl(), Request: request.GetValue()})
	return journal.Command{ID: c.ID, Body: body}, err
}

// CommandText is what a command in an inbox says, in the clear as far as this version can read it, for who looks for names in it.
func CommandText(c journal.Command) []byte {
	var p posted
	if json.Unmarshal(c.Body, &p) != nil || len(p.Request) == 0 {
		return c.Body
	}
	return p.Request
}

// unpack reads a command. It fails on what this version does not know.
func unpack(c journal.Command) (Command, error) {
	var p posted
	if err := json.Unmarshal(c.Body, &p); err != nil {
		return Command{}, fmt.Errorf("turn: command %s: %w", c.ID, err)
	}
	request, err := (&anypb.Any{TypeUrl: p.Type, Value: p.Request}).UnmarshalNew()
	if err != nil {
		return Command{}, fmt.Errorf("turn: command %s: %w", c.ID, err)
	}
	switch request.(type) {
	case *agentv1.CancelRunRequest, *agentv1.RetuneLimitsRequest, *agentv1.PostMessageRequest, *agentv1.HoldRunRequest, *agentv1.ResumeRunRequest:
		return Command{ID: c.ID, Principal: p.Principal, Request: request}, nil
	}
	return Command{}, fmt.Errorf("turn: command %s is a %s", c.ID, p.Type)
}

// commands takes what lies in the inbox. What this version does not know stays there, and the run waits for one that does; those after it are taken, so that it can be cancelled.
func (d *driver) commands() error {
	pending, err := d.engine.deps.Store.Pending(d.ctx, d.head.Ref)
	if err != nil {
		return err
	}
	known := d.unread // It has been logged.
	d.unread = false
	for _, p := range pending {
		c, err := unpack(p)
		if err != nil {
			if !known && !d.unread {
				d.engine.deps.Logger.Warn("a command is left for a later version", "run", d.s.Name, "error", err)
			}
			d.unread = true
			continue
		}
		if err := d.command(c); err != nil {
			return err
		}
		d.took = append(d.took, c.ID)
	}
	return nil
}

// command journals a command and what follows from it at once.
func (d *driver) command(c Command) error {
	received := &agentv1.CommandReceived{CommandId: c.ID}
	var follows *agentv1.Event
	switch r := c.Request.(type) {
	case *agentv1.CancelRunRequest:
		received.Reason = r.GetReason()
		received.Type = "cancel"
		received.Mode, follows = d.cancel(r)
	case *agentv1.RetuneLimitsRequest:
		received.Type = "limits"
		follows = event(&agentv1.LimitsRetuned{Limits: limit.Overlay(d.s.Limits.Bounds(), r.GetLimits())})
	case *agentv1.PostMessageRequest:
		received.Type, received.Content = "message", &agentv1.CommandContent{Messages: r.GetMessages()}
		for _, m := range r.GetMessages() {
			m.Source = modelv1.MessageSource_MESSAGE_SOURCE_OPERATOR
		}
	case *agentv1.HoldRunRequest:
		received.Type, received.Reason = "hold", r.GetReason()
	case *agentv1.ResumeRunRequest:
		received.Type = "resume"
		if d.s.Phase == agentv1.RunState_RUN_STATE_WAITING && d.s.Wait.GetReason() == waitDecision {
			follows = d.wentOn()
		}
	default:
		return fmt.Errorf("turn: command %s is a %T", c.ID, r)
	}
	if err := d.emitBy(c.Principal, event(received)); err != nil || follows == nil {
		return err
	}
	return d.emitBy(c.Principal, follows)
}

// cancel returns the mode of the command that is journaled, and the event that says what becomes of the run, where it is not simply cancelled.
func (d *driver) cancel(r *agentv1.CancelRunRequest) (string, *agentv1.Event) {
	why := r.GetReason()
	if why == "" {
		why = "ended by an operator"
	}
	switch r.GetMode() {
	case "score":
		return run.CancelScore, event(&agentv1.LimitHit{Limit: limit.Ended(why), EndsRun: true})
	case "error":
		return run.CancelError, event(&agentv1.ErrorRaised{Error: &agentv1.RunError{Reason: reasonOperator, Message: why}})
	default:
		return run.CancelPlain, nil
	}
}
