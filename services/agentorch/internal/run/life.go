package run

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/limit"
)

func (s *State) created(e *agentv1.Event, c *agentv1.RunCreated) error {
	if s.spec != nil {
		return fmt.Errorf("the run was created before")
	}
	s.TooNew = s.TooNew || c.GetFoldVersion() > FoldVersion
	s.spec, s.tools, s.Warnings = Join(c), c.GetTools(), c.GetWarnings()
	s.conversation.Append(s.spec.GetInput()...)
	for key, value := range s.spec.GetStore() {
		s.store[key] = value
	}
	set, err := limit.New(s.spec.GetLimits())
	if err != nil {
		return err
	}
	s.Limits, s.phase, s.Created = set, agentv1.RunState_RUN_STATE_PENDING, timeOf(e.GetTime())
	return nil
}

func (s *State) stateChanged(e *agentv1.Event, c *agentv1.RunStateChanged) {
	s.phase = c.GetState()
	if s.phase == agentv1.RunState_RUN_STATE_SCORING && s.Scored.IsZero() {
		s.Scored, s.Scoring, s.awayAtScoring = timeOf(e.GetTime()), &Scoring{Frame: s.Frame}, s.away
		s.Machine, s.lastScores = nil, nil
	}
}

// leftAlone notes how long no replica drove the run. Bounds of time do not count that.
func (s *State) leftAlone(away time.Duration) {
	if s.Started.IsZero() {
		return
	}
	s.away += away
	for _, i := range s.Open {
		i.Away += away
	}
}

// Uncounted reports whether the run waits for the server or its operator. Time limits do not count such a wait.
func (s *State) Uncounted() bool {
	if s.Phase != agentv1.RunState_RUN_STATE_WAITING {
		return false
	}
	switch s.Wait.GetReason() { //nolint:exhaustive // All others count.
	case agentv1.WaitReason_WAIT_REASON_DECISION, agentv1.WaitReason_WAIT_REASON_DISK, agentv1.WaitReason_WAIT_REASON_VERSION:
		return true
	}
	return false
}

// Elapsed is the time that has passed for the bound of wall time.
func (s *State) Elapsed(now time.Time) time.Duration { return now.Sub(s.Started) - s.away }

func (s *State) stepBegan(f *Frame, e *agentv1.Event, b *agentv1.StepBegan) error {
	if s.Started.IsZero() {
		s.Started = timeOf(e.GetTime())
	}
	s.Step = int(b.GetIndex())
	if s.Step < 0 || s.Step >= len(s.spec.GetSteps()) {
		return fmt.Errorf("the run has no step %d", s.Step)
	}
	f.answer, f.sent, f.ref = nil, nil, s.spec.GetSteps()[s.Step]
	f.Machine = s.machine(f.ref)
	return nil
}

func (s *State) stepEnded(f *Frame, e *agentv1.StepEnded) {
	f.Machine = nil
	s.StepsDone = e.GetCompleted() || s.Step == len(s.spec.GetSteps())-1
}

func (s *State) change(changes []*toolv1.StoreChange) {
	for _, c := range changes {
		if c.ValueJson == nil {
			delete(s.store, c.GetKey())
		} else {
			s.store[c.GetKey()] = c.GetValueJson()
		}
	}
}

// Split separates a specification into its public part and its content. The two share no memory.
func Split(spec *agentv1.RunSpec) (*agentv1.RunSpec, *agentv1.RunCreatedContent) {
	rest := proto.CloneOf(spec)
	content := &agentv1.RunCreatedContent{
		Input: rest.GetInput(), Target: rest.GetTarget(), Choices: rest.GetChoices(), MetadataJson: rest.GetMetadataJson(), Store: rest.GetStore(), Steps: rest.GetSteps(),
	}
	rest.Input, rest.Target, rest.Choices, rest.MetadataJson, rest.Store, rest.Steps = nil, nil, nil, "", nil, nil
	for _, step := range content.GetSteps() {
		rest.Steps = append(rest.Steps, &agentv1.AgentRef{Name: step.GetName(), DisplayName: step.GetDisplayName()})
	}
	return rest, content
}

// Join puts the two back together.
func Join(c *agentv1.RunCreated) *agentv1.RunSpec {
	spec, content := proto.CloneOf(c.GetSpec()), c.GetContent()
	if spec == nil {
		spec = &agentv1.RunSpec{}
	}
	if content != nil {
		spec.Input, spec.Target, spec.Choices = content.GetInput(), content.GetTarget(), content.GetChoices()
		spec.MetadataJson, spec.Store, spec.Steps = content.GetMetadataJson(), content.GetStore(), content.GetSteps()
	}
	return spec
}
