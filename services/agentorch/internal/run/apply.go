package run

import (
	"fmt"
	"iter"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/limit"
)

// Fold makes the state of a run from all its events.
func Fold(name string, agents Agents, events iter.Seq2[*agentv1.Event, error]) (*State, error) {
	s := New(name, agents)
	if err := s.fold(events); err != nil {
		return nil, err
	}
	return s, nil
}

// fold folds the events of a whole journal into a new state.
func (s *State) fold(events iter.Seq2[*agentv1.Event, error]) error {
	for event, err := range events {
		if err == nil {
			err = s.Apply(event)
		}
		if err != nil {
			return fmt.Errorf("run %s: %w", s.Name, err)
		}
	}
	if s.spec == nil {
		return fmt.Errorf("run %s: %w: the journal does not begin with the run's creation", s.Name, journal.ErrUnreadable)
	}
	return nil
}

// Apply folds the next event. It retains parts of the event, which must not change afterwards. It fails with
// [journal.ErrUnreadable] if the event cannot follow; the state must then not be used.
func (s *State) Apply(e *agentv1.Event) error {
	if e.GetSeq() != s.Seq+1 {
		return fmt.Errorf("%w: event %d does not follow %d", journal.ErrUnreadable, e.GetSeq(), s.Seq)
	}
	s.Seq, s.Epoch = e.GetSeq(), e.GetEpoch()
	s.TooNew = s.TooNew || len(e.GetFeatures()) > 0 // this version knows none
	f := s.At(e.GetSpan())
	if f == nil {
		if !e.GetCritical() {
			return nil // a note about something that is no agent, or has ended
		}
		return fmt.Errorf("%w: event %d: no agent %q is at work", journal.ErrUnreadable, e.GetSeq(), e.GetSpan())
	}
	foreign := s.foreign(e)
	if err := s.apply(f, e); err != nil {
		return fmt.Errorf("%w: event %d: %w", journal.ErrUnreadable, e.GetSeq(), err)
	}
	s.settle(e)
	if f.Machine != nil && !foreign {
		f.Machine.Apply(e)
	}
	return nil
}

// foreign reports whether an event concerns an effect that was requested from outside or by a scorer, which the agent
// does not see.
func (s *State) foreign(e *agentv1.Event) bool {
	if i := s.OpenIntent(journal.IntentOf(e)); i != nil {
		e = i.Event
	}
	return e.GetInterrupted().GetOutside() || journal.ClientKey(e) != "" || purposeOf(e) == PurposeScore
}

// apply folds an event of a frame.
func (s *State) apply(f *Frame, e *agentv1.Event) error {
	switch k := e.GetKind().(type) {
	case *agentv1.Event_RunCreated:
		return s.created(e, k.RunCreated)
	case *agentv1.Event_RunStateChanged:
		s.stateChanged(e, k.RunStateChanged)
	case *agentv1.Event_WaitChanged:
		return s.waitChanged(f, k.WaitChanged)
	case *agentv1.Event_OwnerChanged:
		s.Owner = k.OwnerChanged.GetOwner()
		s.leftAlone(k.OwnerChanged.GetAway().AsDuration())
	case *agentv1.Event_RunFinished:
		s.phase, s.Finished, s.Ended = k.RunFinished.GetState(), true, timeOf(e.GetTime())
		s.Scoring, f.Calls = nil, nil
	case *agentv1.Event_StepBegan:
		return s.stepBegan(f, e, k.StepBegan)
	case *agentv1.Event_StepEnded:
		s.stepEnded(f, k.StepEnded)

	case *agentv1.Event_MessageAdded:
		f.messageAdded(k.MessageAdded)
		f.follow(e)
	case *agentv1.Event_HistoryChanged:
		f.historyChanged(k.HistoryChanged)
		f.follow(e)
	case *agentv1.Event_InputAdded, *agentv1.Event_Compacted:
		f.follow(e)
	case *agentv1.Event_OutputSet:
		f.outputSet(k.OutputSet)
	case *agentv1.Event_StoreChanged:
		s.change(k.StoreChanged.GetContent().GetChanges())

	case *agentv1.Event_ModelIntent, *agentv1.Event_SandboxIntent, *agentv1.Event_ExecIntent, *agentv1.Event_WorkerIntent:
		s.begin(f, e)
	case *agentv1.Event_ModelOutcome:
		return s.modelOutcome(f, e, k.ModelOutcome)
	case *agentv1.Event_SandboxOutcome:
		return s.sandboxOutcome(k.SandboxOutcome)
	case *agentv1.Event_SandboxRemoved:
		if box := s.Sandboxes[k.SandboxRemoved.GetEnvironment()]; box != nil {
			s.Sandboxes[k.SandboxRemoved.GetEnvironment()] = &Sandbox{Name: box.Name, Removed: true}
		}
	case *agentv1.Event_ToolsReviewed:
		return f.toolsReviewed(k.ToolsReviewed)
	case *agentv1.Event_ToolIntent:
		return s.toolIntent(f, e, k.ToolIntent)
	case *agentv1.Event_ToolOutcome:
		return s.toolOutcome(f, e, k.ToolOutcome)
	case *agentv1.Event_ExecOutcome:
		return s.execOutcome(k.ExecOutcome)
	case *agentv1.Event_WorkerOutcome:
		return s.workerOutcome(k.WorkerOutcome)
	case *agentv1.Event_AgentBegan:
		return s.agentBegan(f, e, k.AgentBegan)
	case *agentv1.Event_AgentEnded:
		return s.agentEnded(k.AgentEnded)
	case *agentv1.Event_ScoreIntent:
		return s.scoreIntent(f, e, k.ScoreIntent)
	case *agentv1.Event_ScoreOutcome:
		return s.scoreOutcome(k.ScoreOutcome)

	case *agentv1.Event_LimitHit:
		switch {
		case !k.LimitHit.GetEndsRun():
			f.Reached = k.LimitHit.GetLimit()
		case s.Limit == nil:
			s.Limit = k.LimitHit.GetLimit()
			s.drop()
		}
	case *agentv1.Event_LimitsRetuned:
		set, err := limit.New(k.LimitsRetuned.GetLimits())
		if err != nil {
			return err
		}
		s.Limits = set
	case *agentv1.Event_ErrorRaised:
		s.Fault = nil
		if s.Error == nil {
			s.Error = k.ErrorRaised.GetError()
		}
		s.cutScoring()
		s.drop()
	case *agentv1.Event_CommandReceived:
		s.command(f, k.CommandReceived)
	case *agentv1.Event_Interrupted:
		s.interrupted(f, k.Interrupted)
	case *agentv1.Event_CancelAcknowledged:
		if s.Cancel != nil {
			s.Cancel = &Cancel{Command: s.Cancel.Command, Mode: s.Cancel.Mode, Acknowledged: true}
		}

	default: // A kind that the protocol of this version may know, and its fold does not.
		s.TooNew = s.TooNew || e.GetCritical()
	}
	return nil
}

// drop discards the agent's pending work: the run is ending.
func (s *State) drop() {
	s.Fault = nil
	for _, f := range s.frames {
		f.Posted = nil
	}
	if s.Scoring != nil && s.Scoring.Intermediate {
		s.Scoring = nil
	}
}

// cutScoring records that the event that ended the run came during scoring, and so ends the scoring too.
func (s *State) cutScoring() {
	s.scoringCut = s.scoringCut || s.Judging()
}

func (s *State) command(f *Frame, c *agentv1.CommandReceived) {
	if c.GetOutdated() {
		return
	}
	switch c.GetType() { //nolint:exhaustive // The others change nothing of the state.
	case agentv1.CommandType_COMMAND_TYPE_MESSAGE, agentv1.CommandType_COMMAND_TYPE_INTERRUPT:
		f.Posted = append(f.Posted[:len(f.Posted):len(f.Posted)], c.GetContent().GetMessages()...)
	case agentv1.CommandType_COMMAND_TYPE_HOLD:
		s.Held = true
	case agentv1.CommandType_COMMAND_TYPE_RESUME:
		s.Held = false
	case agentv1.CommandType_COMMAND_TYPE_CANCEL_CALL:
		if i := s.OpenIntent(c.GetIntent()); i != nil && i.Stopped == 0 {
			i.Stopped = StopCall
		}
	case agentv1.CommandType_COMMAND_TYPE_CANCEL:
		if s.Cancel == nil {
			s.Cancel = &Cancel{Command: c.GetCommandId(), Mode: c.GetMode()}
			if c.GetMode() != agentv1.CancelMode_CANCEL_MODE_SCORE {
				s.cutScoring()
			}
			s.drop()
		}
	}
}
