// Package eval runs evaluations: samples × epochs × models, each a run. It admits runs as capacity allows, scores them,
// and computes the results.
//
// An evaluation is a journal of its own. It records which sample got which run and how that run ended; everything else
// is in the journals of the runs. State is its fold:
//
//	    eval_created
//	         │
//	      RUNNING ──────────────▶ SUCCEEDED     every sample is done
//	       │   ▲  │
//	cancel │   │  └─────────────▶ FAILED        errors of samples met the rule
//	       ▼   │ resume              │
//	   CANCELLED ◀───────────────────┘ resume continues the unfinished samples
//
// A driver goroutine exists only for an active evaluation. Each of its actions is either idempotent by key (creating or
// cancelling a run) or an append, so that a replica that adopts the evaluation after a crash continues from its
// journal.
package eval

import (
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// Slot is one sample in one epoch with one model.
type Slot struct {
	// Sample is the position of the sample; Epoch counts from 1; Model is the position of the model.
	Sample, Epoch, Model int
	// Attempts counts the runs that it got.
	Attempts int
	// Run is the last of them; empty before the first.
	Run string
	// Finished is how that run ended, or why the slot can have no run; nil before.
	Finished *agentv1.SampleFinished
}

// pending reports whether the slot waits for its first run.
func (s *Slot) pending() bool { return s.Run == "" && s.Finished == nil }

// FoldVersion is the version of the fold that new evaluations pin. A fold that reads events otherwise gets a new one,
// and old evaluations keep theirs.
const FoldVersion = 1

// State is an evaluation, folded from its journal.
type State struct {
	// Eval is the resource, updated by every event.
	Eval *agentv1.Eval
	// Slots are all samples of all epochs and models, by epoch, then model, then position.
	Slots []Slot
	// Dataset references the stored samples; Samples is their number.
	Dataset *contentv1.BlobRef
	Samples int
	// TooNew is set if a later version wrote the journal and has to continue it: this version does not know a critical
	// event.
	TooNew bool
	// Damaged is set if the journal cannot be read to its end: the state is that before the damage, as failed. Only
	// [Engine.State] returns such a state.
	Damaged bool
	// Cancel is the command that cancels the evaluation, until all active runs have ended; nil if there is none.
	Cancel *agentv1.CommandReceived
	// cancelledLate is set if the evaluation was failing when the cancel came. It fails.
	cancelledLate bool

	// failures counts the slots whose last allowed attempt ended with an error.
	failures int
	// first is the position before which no slot waits for a run.
	first int
	byRun map[string]int
	// changing is called with a slot before it changes; nil outside of attempt.
	changing func(i int)
}

// Apply folds one event. Kinds that are not an evaluation's are ignored, unless an owner must know them.
func (s *State) Apply(e *agentv1.Event) {
	if s.Eval == nil {
		s.Eval = &agentv1.Eval{Progress: &agentv1.EvalProgress{}}
		s.byRun = map[string]int{}
	}
	s.Eval.Head = e.GetSeq()
	s.TooNew = s.TooNew || len(e.GetFeatures()) > 0 // this version knows none
	switch k := e.GetKind().(type) {
	case *agentv1.Event_EvalCreated:
		s.created(e, k.EvalCreated)
	case *agentv1.Event_EvalStateChanged:
		s.stateChanged(e.GetTime(), k.EvalStateChanged)
	case *agentv1.Event_SampleAdmitted:
		s.admitted(e.GetTime(), k.SampleAdmitted)
	case *agentv1.Event_SampleFinished:
		s.finished(k.SampleFinished)
	case *agentv1.Event_ResultsComputed:
		s.Eval.Results = k.ResultsComputed.GetResults()
	case *agentv1.Event_CommandReceived:
		s.commanded(e, k.CommandReceived)
	case *agentv1.Event_EvalUpdated:
		s.Eval.Spec = updated(s.Eval.GetSpec(), k.EvalUpdated)
	default:
		s.TooNew = s.TooNew || e.GetCritical()
	}
	switch e.GetKind().(type) {
	case *agentv1.Event_EvalCreated, *agentv1.Event_EvalStateChanged, *agentv1.Event_EvalUpdated:
		s.Eval.Etag = etagOf(s.Eval)
	}
}

// clone copies the state, so that the copy may be changed. The specification and the ends of slots are immutable and
// stay shared.
func (s *State) clone() *State {
	c := *s
	c.Eval, c.Slots, c.byRun = cloneEval(s.Eval), slices.Clone(s.Slots), maps.Clone(s.byRun)
	return &c
}

// cloneEval copies an evaluation. The specification, which may hold files of samples, is shared.
func cloneEval(e *agentv1.Eval) *agentv1.Eval {
	if e == nil {
		return nil
	}
	rest := &agentv1.Eval{}
	e.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		if field.Number() != specField {
			rest.ProtoReflect().Set(field, value)
		}
		return true
	})
	rest = proto.CloneOf(rest)
	rest.Spec = e.GetSpec()
	return rest
}

var specField = (&agentv1.Eval{}).ProtoReflect().Descriptor().Fields().ByName("spec").Number()

// attempt folds events that may still fail to become durable, and returns the function that undoes them. Its cost
// depends on the changes, not on the size of the evaluation.
func (s *State) attempt(events []*agentv1.Event) (undo func()) {
	eval, cancel, late, failures, slots := cloneEval(s.Eval), s.Cancel, s.cancelledLate, s.failures, map[int]Slot{}
	s.changing = func(i int) {
		if _, ok := slots[i]; !ok {
			slots[i] = s.Slots[i]
		}
	}
	for _, e := range events {
		s.Apply(e)
	}
	s.changing = nil
	return func() {
		s.Eval, s.Cancel, s.cancelledLate, s.failures = eval, cancel, late, failures
		for i, slot := range slots {
			s.Slots[i], s.first = slot, min(s.first, i)
		}
		for _, e := range events {
			if run := e.GetSampleAdmitted().GetRun(); run != "" {
				delete(s.byRun, run)
			}
		}
	}
}

func (s *State) created(e *agentv1.Event, c *agentv1.EvalCreated) {
	s.TooNew = s.TooNew || c.GetFoldVersion() > FoldVersion
	s.Eval.Name = e.GetJournal()
	s.Eval.Spec = proto.CloneOf(c.GetSpec())
	s.Eval.CreateTime, s.Eval.Warnings = e.GetTime(), c.GetWarnings()
	s.Eval.State = agentv1.EvalState_EVAL_STATE_RUNNING
	s.Dataset, s.Samples = c.GetDataset(), int(c.GetSamples())
	epochs := max(1, int(c.GetSpec().GetEpochs().GetCount()))
	s.Slots = make([]Slot, 0, epochs*len(c.GetSpec().GetModels())*s.Samples) // bound.EvalRuns at most
	for epoch := range epochs {
		for model := range c.GetSpec().GetModels() {
			for sample := range s.Samples {
				s.Slots = append(s.Slots, Slot{Sample: sample, Epoch: epoch + 1, Model: model})
			}
		}
	}
	s.Eval.Progress.Total, s.Eval.Progress.Pending = int32(len(s.Slots)), int32(len(s.Slots))
}

// change edits a slot, which leaves one count of the progress and enters another: an event costs the same however many
// slots there are.
func (s *State) change(i int, edit func(*Slot)) {
	if s.changing != nil {
		s.changing(i)
	}
	slot := &s.Slots[i]
	s.count(slot, -1)
	edit(slot)
	s.count(slot, 1)
	if s.waits(slot) {
		s.first = min(s.first, i)
	}
}

// waits reports whether a slot waits for a run.
func (s *State) waits(slot *Slot) bool { return slot.pending() || s.retries(slot) }

// waiting yields the slots that wait for a run, in order. Slots may change meanwhile. Positions that no slot waits at
// are passed once, however often the slots are asked for.
func (s *State) waiting() iter.Seq[*Slot] {
	return func(yield func(*Slot) bool) {
		for ; s.first < len(s.Slots) && !s.waits(&s.Slots[s.first]); s.first++ {
		}
		for i := s.first; i < len(s.Slots); i++ {
			if s.waits(&s.Slots[i]) && !yield(&s.Slots[i]) {
				return
			}
		}
	}
}

// count adds n to the counts that a slot belongs to.
func (s *State) count(slot *Slot, n int32) {
	p := s.Eval.Progress
	if slot.Finished.GetSandboxFault() != "" {
		p.SandboxFaults += n
	}
	if slot.failed() && !s.retries(slot) {
		s.failures += int(n)
	}
	switch {
	case slot.pending():
		p.Pending += n
	case slot.Finished == nil:
		p.Running += n
	case slot.Finished.GetState() == agentv1.RunState_RUN_STATE_SUCCEEDED:
		p.Succeeded += n
		if slot.Finished.GetLimit() != nil {
			p.Limited += n
		}
	case slot.Finished.GetState() == agentv1.RunState_RUN_STATE_CANCELLED:
		p.Cancelled += n
	default:
		p.Failed += n
	}
}

// commanded folds a command. A cancel shows at once, and is over when the state changes: active runs may take long to
// end.
func (s *State) commanded(e *agentv1.Event, c *agentv1.CommandReceived) {
	if c.GetType() != agentv1.CommandType_COMMAND_TYPE_CANCEL {
		s.TooNew = s.TooNew || e.GetCritical()
		return
	}
	if s.Ended() || s.Cancel != nil {
		return
	}
	s.Cancel, s.cancelledLate = c, s.failing()
	if s.Eval.StateReason = "cancelling"; c.GetReason() != "" {
		s.Eval.StateReason += ": " + c.GetReason()
	}
}

// cancelling returns the evaluation as being cancelled, while the command is still in its inbox.
func (s *State) cancelling(reason string) *State {
	if s.Cancel != nil {
		return s
	}
	s = s.clone()
	s.commanded(nil, &agentv1.CommandReceived{Type: agentv1.CommandType_COMMAND_TYPE_CANCEL, Reason: reason})
	return s
}

func (s *State) stateChanged(at *timestamppb.Timestamp, c *agentv1.EvalStateChanged) {
	s.Cancel, s.cancelledLate = nil, false
	s.Eval.State, s.Eval.StateReason, s.Eval.Error = c.GetState(), c.GetReason(), c.GetError()
	if s.Ended() {
		s.Eval.EndTime = at
		return
	}
	// Resumed: samples that did not succeed are run again.
	s.paused(s.Eval.GetEndTime(), at)
	s.Eval.EndTime, s.Eval.Results = nil, nil
	for i := range s.Slots {
		if s.Slots[i].undone() {
			s.change(i, func(slot *Slot) { slot.Finished, slot.Run = nil, "" })
		}
	}
}

// paused counts the time between an end and the resumption, if the evaluation had begun before.
func (s *State) paused(end, resumed *timestamppb.Timestamp) {
	if s.Eval.StartTime == nil || end == nil {
		return
	}
	if pause := resumed.AsTime().Sub(end.AsTime()); pause > 0 {
		s.Eval.PausedTime = durationpb.New(s.Eval.GetPausedTime().AsDuration() + pause)
	}
}

// placed is an event that names a slot.
type placed interface {
	GetEpoch() int32
	GetModelIndex() int32
	GetPosition() int32
}

// at is the index of the slot that an event is about.
func (s *State) at(e placed) (i int, ok bool) {
	models := len(s.Eval.GetSpec().GetModels())
	i = ((int(e.GetEpoch())-1)*models+int(e.GetModelIndex()))*s.Samples + int(e.GetPosition())
	return i, i >= 0 && i < len(s.Slots)
}

func (s *State) admitted(at *timestamppb.Timestamp, a *agentv1.SampleAdmitted) {
	i, ok := s.at(a)
	if !ok {
		return
	}
	s.change(i, func(slot *Slot) { slot.Run, slot.Attempts, slot.Finished = a.GetRun(), int(a.GetAttempt()), nil })
	s.byRun[a.GetRun()] = i
	if s.Eval.StartTime == nil {
		s.Eval.StartTime = at
	}
}

func (s *State) finished(f *agentv1.SampleFinished) {
	if f.GetRun() == "" {
		if i, ok := s.at(f); ok {
			s.change(i, func(slot *Slot) { slot.Run, slot.Finished = "", f })
		}
		return
	}
	if s.ByRun(f.GetRun()) == nil {
		return
	}
	s.change(s.byRun[f.GetRun()], func(slot *Slot) { slot.Finished = f })
	s.Eval.Progress.LostModelCalls += f.GetLostModelCalls()
	AddUsage(s.Eval, f.GetUsage(), f.GetRoleUsage())
}

// AddUsage adds a run's usage, by model and by role, to the usage of its evaluation.
func AddUsage(e *agentv1.Eval, models, roles map[string]*modelv1.ModelUsage) {
	addUsage(&e.Usage, models)
	addUsage(&e.RoleUsage, roles)
	sumUsage(e)
}

// sumUsage sums the usage of all models. It sums in the order of names, since sums of fractions depend on the order,
// and every fold must give the same result.
func sumUsage(e *agentv1.Eval) {
	p := e.Progress
	p.TotalTokens, p.TotalCost = 0, nil
	for _, name := range slices.Sorted(maps.Keys(e.GetUsage())) {
		u := e.GetUsage()[name]
		p.TotalTokens = chat.SumTokens(p.GetTotalTokens(), u.GetTotalTokens())
		if u.TotalCost != nil {
			p.TotalCost = new(chat.SumCost(p.GetTotalCost(), u.GetTotalCost()))
		}
	}
	p.CostPartial = chat.CostPartial(slices.Collect(maps.Values(e.GetUsage()))...)
}

// failing reports whether errors of samples met the evaluation's rule, so that it ends.
func (s *State) failing() bool {
	return !s.Eval.GetSpec().GetContinueOnFail() && float64(s.failures) >= s.tolerated()
}

// tolerated is the number of errors at which the evaluation fails.
func (s *State) tolerated() float64 {
	rule := s.Eval.GetSpec().GetFailOnError()
	switch r := rule.GetRule().(type) {
	case *agentv1.FailOnError_Enabled:
		if !r.Enabled {
			return math.Inf(1)
		}
	case *agentv1.FailOnError_Threshold:
		if r.Threshold > 0 && r.Threshold < 1 {
			return r.Threshold * float64(len(s.Slots))
		}
		return max(1, r.Threshold)
	}
	return 1
}

func (s *Slot) failed() bool {
	return s.Finished.GetState() == agentv1.RunState_RUN_STATE_FAILED || s.Finished.GetError() != nil
}

var reasonTooLarge = rpcerr.ReasonName(errorsv1.ErrorReason_ERROR_REASON_REQUEST_TOO_LARGE)

// retries reports whether a failed slot gets another attempt. A slot that could have no run gets none, since its sample
// and the task do not change. Neither does a slot with too large an event or scores, which another full run would most
// likely repeat.
func (s *State) retries(slot *Slot) bool {
	return slot.failed() && slot.Run != "" && slot.Finished.GetState() == agentv1.RunState_RUN_STATE_FAILED &&
		slot.Finished.GetError().GetReason() != reasonTooLarge && slot.Attempts <= int(s.Eval.GetSpec().GetRetryOnError())
}

// Ended reports whether the evaluation is not active.
func (s *State) Ended() bool { return final(s.Eval.GetState()) }

// Ends reports whether an event ends its evaluation. It is the journal's last event, unless the evaluation is resumed.
func Ends(e *agentv1.Event) bool { return final(e.GetEvalStateChanged().GetState()) }

func final(state agentv1.EvalState) bool {
	switch state {
	case agentv1.EvalState_EVAL_STATE_SUCCEEDED, agentv1.EvalState_EVAL_STATE_FAILED, agentv1.EvalState_EVAL_STATE_CANCELLED:
		return true
	case agentv1.EvalState_EVAL_STATE_UNSPECIFIED, agentv1.EvalState_EVAL_STATE_PENDING, agentv1.EvalState_EVAL_STATE_RUNNING, agentv1.EvalState_EVAL_STATE_PAUSED:
	}
	return false
}

// undone reports whether a slot's run has ended without success, so that a resume repeats it.
func (s *Slot) undone() bool {
	return s.Finished != nil && s.Finished.GetState() != agentv1.RunState_RUN_STATE_SUCCEEDED
}

// ByRun returns the slot whose last run has a name; nil if there is none.
func (s *State) ByRun(run string) *Slot {
	if i, ok := s.byRun[run]; ok && s.Slots[i].Run == run {
		return &s.Slots[i]
	}
	return nil
}

// addUsage adds usage by name.
func addUsage(to *map[string]*modelv1.ModelUsage, more map[string]*modelv1.ModelUsage) {
	for name, u := range more {
		if *to == nil {
			*to = map[string]*modelv1.ModelUsage{}
		}
		(*to)[name] = chat.AddUsage((*to)[name], u)
	}
}

// slotID is the last part of a slot's resource name: position from 1, epoch and, if there are several models, the model
// from 1.
func slotID(spec *agentv1.EvalSpec, slot *Slot) string {
	id := fmt.Sprintf("%d.%d", slot.Sample+1, slot.Epoch)
	if len(spec.GetModels()) > 1 {
		id += fmt.Sprintf(".%d", slot.Model+1)
	}
	return id
}

// Find returns the slot with an id, the last part of a resource name; nil if there is none.
func (s *State) Find(id string) *Slot {
	for i := range s.Slots {
		if slotID(s.Eval.GetSpec(), &s.Slots[i]) == id {
			return &s.Slots[i]
		}
	}
	return nil
}

// Resource returns the resource of a slot. Sample is the sample at the slot's position.
func (s *State) Resource(slot *Slot, sample *agentv1.Sample) *agentv1.EvalSample {
	f := slot.Finished
	r := &agentv1.EvalSample{
		Name: s.Eval.GetName() + "/samples/" + slotID(s.Eval.GetSpec(), slot),
		Id:   sample.GetId(), IntegerId: sample.GetIntegerId(), Epoch: int32(slot.Epoch),
		Model: s.Eval.GetSpec().GetModels()[slot.Model].GetModel(), Run: slot.Run, State: agentv1.RunState_RUN_STATE_PENDING,
		Scores: f.GetContent().GetScores(), Limit: f.GetLimit(), Error: f.GetError(), Attempts: int32(slot.Attempts),
		TotalTime: f.GetTotalTime(), WorkingTime: f.GetWorkingTime(), SandboxFault: f.GetSandboxFault(), Turns: f.GetTurns(), Retries: f.GetRetries(),
		LostModelCalls: f.GetLostModelCalls(),
	}
	switch {
	case f != nil:
		r.State = f.GetState()
	case slot.Run != "":
		r.State = agentv1.RunState_RUN_STATE_RUNNING
	}
	for _, u := range f.GetUsage() {
		r.Usage = chat.AddUsage(r.Usage, u)
	}
	return r
}

// runTitle is the name of a slot in messages for people. The sample may be unknown.
func runTitle(sample *agentv1.Sample, slot *Slot) string {
	id := sample.GetId()
	if sample == nil {
		id = fmt.Sprintf("at position %d", slot.Sample+1)
	}
	return strings.TrimSpace(fmt.Sprintf("sample %s, epoch %d", id, slot.Epoch))
}
