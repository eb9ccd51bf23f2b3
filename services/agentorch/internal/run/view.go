package run

import (
	"fmt"
	"iter"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/evalfleet/evalfleet/pkg/enum"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/limit"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/redact"
)

// View returns the run as a resource. Full holds the specification, the conversation, the output and the store too. The
// answer shares with the state, so it must not be changed.
func (s *State) View(full bool) *agentv1.Run {
	r := &agentv1.Run{
		Name: s.Name, State: s.Phase, Wait: s.Wait, Waits: s.allWaits(), Head: s.Seq, Epoch: s.Epoch, Etag: s.Etag(), Owner: s.Owner,
		CreateTime: timestamp(s.Created), StartTime: timestamp(s.Started), EndTime: timestamp(s.Ended),
		Limit: s.Limit, Error: s.Error, Scores: s.scores, Usage: s.Usage, RoleUsage: s.RoleUsage,
		Turns: int32(s.Turns), MessageCount: int32(s.conversation.Len()), WorkingTime: durationpb.New(s.Working),
		SandboxFault: s.SandboxFault, Retries: int32(s.Retries), Activity: s.activity(),
		LostModelCalls: int32(s.LostModelCalls), Cancelling: s.Cancel != nil && !s.Finished, Warnings: s.Warnings,
		Limits: s.Limits.Bounds(), Used: s.used(),
	}
	for environment, box := range s.Sandboxes {
		if r.Sandboxes == nil {
			r.Sandboxes = map[string]string{}
		}
		if !box.Removed {
			r.Sandboxes[environment] = box.Name
		}
	}
	if full {
		r.Spec, r.Messages, r.Output, r.Store = s.spec, s.Messages(), s.output, s.store
		return r
	}
	r = redact.Content(r)
	if s.plainSpec == nil {
		s.plainSpec = redact.Content(s.spec)
	}
	r.Spec = s.plainSpec
	return r
}

// used returns the run's usage of each limit. Wall time is known only of a run that has ended.
func (s *State) used() *agentv1.RunLimits {
	u := s.Use()
	used := &agentv1.RunLimits{
		Messages: new(int32(u.Messages)), Tokens: new(s.Limits.Metered(u.Usage)), Turns: new(int32(u.Turns)), Cost: new(u.Usage.GetTotalCost()),
		WorkingTime: durationpb.New(s.Working),
	}
	if s.Finished && !s.Started.IsZero() {
		used.Time = durationpb.New(max(0, s.Elapsed(s.Ended)))
	}
	return used
}

// maxActivities bounds the open effects that are named. The rest is counted.
const maxActivities = 5

// activity names the open effects for people, the oldest first.
func (s *State) activity() string {
	var open []string
	for _, i := range s.Open {
		switch k := i.Event.GetKind().(type) {
		case *agentv1.Event_ModelIntent:
			open = append(open, "model "+k.ModelIntent.GetModel())
		case *agentv1.Event_ToolIntent:
			open = append(open, "tool "+k.ToolIntent.GetFunction())
		case *agentv1.Event_SandboxIntent:
			open = append(open, "sandbox "+k.SandboxIntent.GetEnvironment())
		case *agentv1.Event_ExecIntent:
			open = append(open, "command in sandbox "+k.ExecIntent.GetEnvironment())
		case *agentv1.Event_WorkerIntent:
			open = append(open, "worker's "+k.WorkerIntent.GetWorker().GetKind()+" "+k.WorkerIntent.GetWorker().GetName())
		}
	}
	if more := len(open) - maxActivities; more > 0 {
		return fmt.Sprintf("%s, and %d more", strings.Join(open[:maxActivities], ", "), more)
	}
	return strings.Join(open, ", ")
}

// Etag returns the run's etag: that of its limits in force, and of whether it is at work, is scored, or how it ended.
func (s *State) Etag() string {
	stage := s.Phase
	if stage == agentv1.RunState_RUN_STATE_PENDING || stage == agentv1.RunState_RUN_STATE_WAITING {
		stage = agentv1.RunState_RUN_STATE_RUNNING // It changes by itself, and limits mean the same.
	}
	return resource.EtagOf(s.Limits.Bounds(), limit.Settable(), stage)
}

// Row returns the run's row in lists.
func (s *State) Row() (journal.Row, error) {
	view, err := proto.Marshal(s.View(false))
	if err != nil {
		return journal.Row{}, err
	}
	row := journal.Row{
		Kind: journal.KindRun, State: int32(s.Phase), Done: s.Finished, Parent: s.spec.GetAttribution().GetEval(), Labels: s.spec.GetLabels(),
		Waiting: s.Phase == agentv1.RunState_RUN_STATE_WAITING, Wake: s.Wake(), View: view,
	}
	if row.Waiting {
		row.WaitReason, row.WaitSince = enum.Word(s.Wait.GetReason()), timeOf(s.Wait.GetSince())
	}
	return row, nil
}

// FoldRow returns the row of a run from its journal alone. If the journal cannot be read, it returns the row of a
// failed run with the error.
func FoldRow(head journal.Head, events iter.Seq2[*agentv1.Event, error]) (journal.Row, error) {
	s := New(head.Name, nil)
	err := s.fold(events)
	if err == nil {
		return s.Row()
	}
	view, _ := proto.Marshal(&agentv1.Run{ // A message of ours always marshals.
		Name: head.Name, State: agentv1.RunState_RUN_STATE_FAILED, CreateTime: timestamp(s.Created), Error: journal.RowError(),
	})
	return journal.Row{
		Kind: journal.KindRun, State: int32(agentv1.RunState_RUN_STATE_FAILED), Parent: s.spec.GetAttribution().GetEval(), Labels: s.spec.GetLabels(), View: view,
	}, err
}

// Wake returns when a waiting run is to be looked at without a new event: when it is to be retried or its time limit is
// reached. Zero means never.
func (s *State) Wake() time.Time {
	wake := s.retryTime()
	if deadline := s.Deadline(); !deadline.IsZero() && (wake.IsZero() || deadline.Before(wake)) {
		wake = deadline
	}
	return wake
}

// Deadline returns when the limit of wall time is reached: the whole limit while steps run, half of it while scorers
// judge. It is zero if no limit applies.
func (s *State) Deadline() time.Time {
	bound := s.Limits.Bounds().GetTime()
	switch {
	case bound == nil || s.Finished || s.Uncounted():
	case s.Judging():
		if s.Error == nil {
			return s.Scored.Add(s.away - s.awayAtScoring + bound.AsDuration()/2)
		}
	case !s.Started.IsZero() && !s.Stopping() && !s.StepsDone:
		return s.Started.Add(s.away + bound.AsDuration())
	}
	return time.Time{}
}

func timestamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
