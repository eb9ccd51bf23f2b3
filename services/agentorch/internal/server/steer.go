package server

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/limit"
)

// RetuneLimits sets and removes limits of an active run.
func (s *Runs) RetuneLimits(ctx context.Context, r *agentv1.RetuneLimitsRequest) (*agentv1.Run, error) {
	if _, err := limit.New(r.GetLimits()); err != nil {
		return nil, rpcerr.In("limits", err)
	}
	names, err := resource.Mask(r.GetUpdateMask(), r.GetLimits(), limit.Settable()...)
	if err != nil {
		return nil, err
	}
	if limits := r.GetLimits(); limits != nil && limits.Cost != nil {
		name, err := resource.Parse("run", r.GetName(), "runs")
		if err != nil {
			return nil, err
		}
		run, err := s.deps.Runs.View(ctx, r.GetName(), true)
		if err != nil {
			return nil, err
		}
		if err := s.deps.Runs.CheckCost(ctx, name.Project, run.GetSpec(), limits); err != nil {
			return nil, err
		}
	}
	request := &agentv1.RetuneLimitsRequest{
		Name: r.GetName(), Limits: r.GetLimits(), UpdateMask: &fieldmaskpb.FieldMask{Paths: names}, Etag: r.GetEtag(),
	}
	if _, err := s.steer(ctx, "name", r.GetName(), "limits", r.GetRequestId(), request); err != nil {
		return nil, err
	}
	return s.deps.Runs.View(ctx, r.GetName(), false)
}

// PostMessage puts an operator's message before the agent's next turn.
func (s *Runs) PostMessage(ctx context.Context, r *agentv1.PostMessageRequest) (*agentv1.PostMessageResponse, error) {
	messages, err := operators(r)
	if err != nil {
		return nil, err
	}
	if len(messages) == 0 {
		return nil, rpcerr.InvalidField("messages", "is empty; give a user message, or text")
	}
	request := &agentv1.PostMessageRequest{Name: r.GetName(), Messages: messages, Span: r.GetSpan()}
	seq, err := s.steer(ctx, "name", r.GetName(), "message", r.GetRequestId(), request)
	if err != nil {
		return nil, err
	}
	return &agentv1.PostMessageResponse{Seq: seq}, nil
}

// operators are the messages of a request, its text as one of them.
func operators(r interface {
	GetName() string
	GetRequestId() string
	GetMessages() []*modelv1.ChatMessage
	GetText() string
},
) ([]*modelv1.ChatMessage, error) {
	messages := r.GetMessages()
	if r.GetText() != "" {
		message := chat.User(r.GetText())
		if r.GetRequestId() != "" { // A repeated request has the same content.
			message.Id = resource.DerivedID("message", r.GetName(), r.GetRequestId())
		}
		messages = append(slices.Clip(messages), message)
	}
	for i, m := range messages {
		if m.GetRole() != modelv1.Role_ROLE_USER {
			return nil, rpcerr.InvalidField(fmt.Sprintf("messages[%d].role", i), "is %s; an operator speaks as the user", m.GetRole())
		}
	}
	return messages, nil
}

// InterruptRun cuts the turn of an agent.
func (s *Runs) InterruptRun(ctx context.Context, r *agentv1.InterruptRunRequest) (*agentv1.InterruptRunResponse, error) {
	messages, err := operators(r)
	if err != nil {
		return nil, err
	}
	request := &agentv1.InterruptRunRequest{Name: r.GetName(), Reason: r.GetReason(), Span: r.GetSpan(), Messages: messages}
	c, err := command(ctx, "name", r.GetName(), "interrupt", r.GetRequestId(), request)
	if err != nil {
		return nil, err
	}
	seq, interrupting, err := s.deps.Runs.Stop(ctx, c)
	if err != nil {
		return nil, err
	}
	return &agentv1.InterruptRunResponse{Seq: seq, Interrupting: interrupting}, nil
}

// CancelCall stops one tool call that runs.
func (s *Runs) CancelCall(ctx context.Context, r *agentv1.CancelCallRequest) (*agentv1.CancelCallResponse, error) {
	request := &agentv1.CancelCallRequest{Name: r.GetName(), CallId: r.GetCallId(), Index: r.Index, Span: r.GetSpan(), Reason: r.GetReason()}
	c, err := command(ctx, "name", r.GetName(), "cancel_call", r.GetRequestId(), request)
	if err != nil {
		return nil, err
	}
	seq, cancelling, err := s.deps.Runs.Stop(ctx, c)
	if err != nil {
		return nil, err
	}
	return &agentv1.CancelCallResponse{Seq: seq, Cancelling: cancelling}, nil
}

// HoldRun lets the current step end and starts no further step until the run is resumed.
func (s *Runs) HoldRun(ctx context.Context, r *agentv1.HoldRunRequest) (*agentv1.Run, error) {
	request := &agentv1.HoldRunRequest{Name: r.GetName(), Reason: r.GetReason()}
	if _, err := s.steer(ctx, "name", r.GetName(), "hold", r.GetRequestId(), request); err != nil {
		return nil, err
	}
	return s.deps.Runs.View(ctx, r.GetName(), false)
}

// ResumeRun resumes a held run.
func (s *Runs) ResumeRun(ctx context.Context, r *agentv1.ResumeRunRequest) (*agentv1.Run, error) {
	request := &agentv1.ResumeRunRequest{Name: r.GetName()}
	if _, err := s.steer(ctx, "name", r.GetName(), "resume", r.GetRequestId(), request); err != nil {
		return nil, err
	}
	return s.deps.Runs.View(ctx, r.GetName(), false)
}
