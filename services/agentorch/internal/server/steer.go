package server

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/limit"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/turn"
)

// steer sends a command that a run which has ended refuses, and returns the number of the event that took it.
func (s *Runs) steer(ctx context.Context, name, id string, c turn.Command) (int64, error) {
	var seq int64
	state, err := s.send(ctx, name, id, c, func(_ *run.State, taken int64) bool { seq = taken; return taken > 0 })
	switch {
	case err != nil:
		return 0, err
	case seq == 0:
		return 0, finished(state)
	}
	return seq, nil
}

// RetuneLimits changes limits of a run that goes on.
func (s *Runs) RetuneLimits(ctx context.Context, r *agentv1.RetuneLimitsRequest) (*agentv1.Run, error) {
	if _, err := limit.New(r.GetLimits()); err != nil {
		return nil, rpcerr.InvalidField("limits", "%v", err)
	}
	if limits := r.GetLimits(); limits != nil && limits.Cost != nil {
		run, err := s.view(ctx, r.GetRun(), true)
		if err != nil {
			return nil, err
		}
		name, err := resource.Parse("run", r.GetRun(), "runs")
		if err != nil {
			return nil, err
		}
		if err := s.deps.Launcher.CheckCost(ctx, name.Project, run.GetSpec(), limits); err != nil {
			return nil, err
		}
	}
	command := turn.Command{ID: "limits", Request: &agentv1.RetuneLimitsRequest{Run: r.GetRun(), Limits: r.GetLimits()}}
	if _, err := s.steer(ctx, r.GetRun(), r.GetRequestId(), command); err != nil {
		return nil, err
	}
	return s.view(ctx, r.GetRun(), false)
}

// PostMessage puts an operator's message before the agent's next turn.
func (s *Runs) PostMessage(ctx context.Context, r *agentv1.PostMessageRequest) (*agentv1.PostMessageResponse, error) {
	if r.GetText() != "" {
		r = proto.CloneOf(r)
		r.Messages, r.Text = append(r.GetMessages(), chat.User(r.GetText())), ""
	}
	if len(r.GetMessages()) == 0 {
		return nil, rpcerr.InvalidField("messages", "is empty; give a user message, or text")
	}
	for i, m := range r.GetMessages() {
		if m.GetRole() != modelv1.Role_ROLE_USER {
			return nil, rpcerr.InvalidField(fmt.Sprintf("messages[%d].role", i), "is %s; an operator speaks as the user", m.GetRole())
		}
	}
	command := turn.Command{ID: "message", Request: &agentv1.PostMessageRequest{Run: r.GetRun(), Messages: r.GetMessages()}}
	seq, err := s.steer(ctx, r.GetRun(), r.GetRequestId(), command)
	return &agentv1.PostMessageResponse{Seq: seq}, err
}

// HoldRun lets the current step end and starts no other until the run is resumed.
func (s *Runs) HoldRun(ctx context.Context, r *agentv1.HoldRunRequest) (*agentv1.Run, error) {
	command := turn.Command{ID: "hold", Request: &agentv1.HoldRunRequest{Name: r.GetName(), Reason: r.GetReason()}}
	if _, err := s.steer(ctx, r.GetName(), r.GetRequestId(), command); err != nil {
		return nil, err
	}
	return s.view(ctx, r.GetName(), false)
}

// ResumeRun lets a held run go on.
func (s *Runs) ResumeRun(ctx context.Context, r *agentv1.ResumeRunRequest) (*agentv1.Run, error) {
	command := turn.Command{ID: "resume", Request: &agentv1.ResumeRunRequest{Name: r.GetName()}}
	if _, err := s.steer(ctx, r.GetName(), r.GetRequestId(), command); err != nil {
		return nil, err
	}
	return s.view(ctx, r.GetName(), false)
}
