package eval

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// What passes between an end and a resumption is counted, of an evaluation that had begun.
func TestTimeBetweenAnEndAndAResumptionIsApart(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	created := &agentv1.EvalCreated{Samples: 1, Spec: &agentv1.EvalSpec{Models: []*agentv1.ModelRef{{Model: "a/a"}}}}
	cancelled := &agentv1.Event{Kind: &agentv1.Event_EvalStateChanged{EvalStateChanged: &agentv1.EvalStateChanged{State: agentv1.EvalState_EVAL_STATE_CANCELLED}}}
	resumed := &agentv1.Event{Kind: &agentv1.Event_EvalStateChanged{EvalStateChanged: &agentv1.EvalStateChanged{State: agentv1.EvalState_EVAL_STATE_RUNNING}}}
	admitted := &agentv1.Event{Kind: &agentv1.Event_SampleAdmitted{SampleAdmitted: &agentv1.SampleAdmitted{Run: "r", Epoch: 1}}}
	s := &State{}
	for i, step := range []struct {
		event *agentv1.Event
		after time.Duration
		want  time.Duration
	}{
		{&agentv1.Event{Kind: &agentv1.Event_EvalCreated{EvalCreated: created}}, 0, 0},
		{cancelled, time.Second, 0},
		{resumed, time.Hour, 0}, // It had not begun: nothing had been at work.
		{admitted, time.Second, 0},
		{cancelled, time.Second, 0},
		{resumed, 2 * time.Hour, 2 * time.Hour},
		{cancelled, time.Second, 2 * time.Hour},
		{resumed, time.Minute, 2*time.Hour + time.Minute},
	} {
		began = began.Add(step.after)
		e := proto.CloneOf(step.event)
		e.Seq, e.Time, e.Journal = int64(i+1), timestamppb.New(began), "projects/p/evals/e"
		s.Apply(e)
		assert.Equal(t, step.want, s.Eval.GetPausedTime().AsDuration(), i)
	}
}

// recount counts the progress from all slots, as the counts are defined.
func recount(s *State) *agentv1.EvalProgress {
	p := &agentv1.EvalProgress{Total: int32(len(s.Slots))}
	for _, slot := range s.Slots {
		switch {
		case slot.Run == "":
			p.Pending++
		case slot.Finished == nil:
			p.Running++
		case slot.Finished.GetState() == agentv1.RunState_RUN_STATE_SUCCEEDED:
			p.Succeeded++
			if slot.Finished.GetLimit() != nil {
				p.Limited++
			}
		case slot.Finished.GetState() == agentv1.RunState_RUN_STATE_CANCELLED:
			p.Cancelled++
		default:
			p.Failed++
		}
	}
	for _, u := range s.Eval.GetUsage() {
		p.TotalTokens += u.GetTotalTokens()
		if u.TotalCost != nil {
			p.TotalCost = new(p.GetTotalCost() + u.GetTotalCost())
		}
	}
	return p
}

// randomJournal yields events that a driver could journal, and more: unknown runs, missing slots, repeated ends.
type randomJournal struct {
	*rand.Rand
	seq  int64
	runs int
}

func (r *randomJournal) next() *agentv1.Event {
	r.seq++
	e := &agentv1.Event{Seq: r.seq, Journal: "projects/p/evals/e"}
	if r.seq == 1 {
		e.Kind = &agentv1.Event_EvalCreated{EvalCreated: &agentv1.EvalCreated{Samples: 5, Spec: &agentv1.EvalSpec{
			RetryOnError: 1, Epochs: &agentv1.Epochs{Count: new(int32(2))}, Models: []*agentv1.ModelRef{{Model: "a/a"}, {Model: "b/b"}},
		}}}
		return e
	}
	switch n := r.IntN(100); {
	case n < 45:
		r.runs++
		e.Kind = &agentv1.Event_SampleAdmitted{SampleAdmitted: &agentv1.SampleAdmitted{
			Run: fmt.Sprint(r.runs), Attempt: int32(1 + r.IntN(3)), Position: int32(r.IntN(6)), Epoch: int32(1 + r.IntN(3)), ModelIndex: int32(r.IntN(2)),
		}}
	case n < 90:
		f := &agentv1.SampleFinished{
			Run:   fmt.Sprint(1 + r.IntN(r.runs+2)),
			State: []agentv1.RunState{agentv1.RunState_RUN_STATE_SUCCEEDED, agentv1.RunState_RUN_STATE_FAILED, agentv1.RunState_RUN_STATE_CANCELLED}[r.IntN(3)],
			Usage: map[string]*modelv1.ModelUsage{[]string{"a/a", "b/b"}[r.IntN(2)]: {TotalTokens: int64(r.IntN(100)), TotalCost: new(float64(r.IntN(8)) / 4)}},
		}
		if r.IntN(3) == 0 {
			f.Limit = &agentv1.LimitReached{}
		}
		e.Kind = &agentv1.Event_SampleFinished{SampleFinished: f}
	case n < 97:
		states := []agentv1.EvalState{agentv1.EvalState_EVAL_STATE_CANCELLED, agentv1.EvalState_EVAL_STATE_RUNNING, agentv1.EvalState_EVAL_STATE_FAILED}
		e.Kind = &agentv1.Event_EvalStateChanged{EvalStateChanged: &agentv1.EvalStateChanged{State: states[r.IntN(3)]}}
	default:
		e.Kind = &agentv1.Event_EvalUpdated{EvalUpdated: &agentv1.EvalUpdated{ChangesJson: fmt.Sprintf(`{"max_samples": %d}`, 1+r.IntN(9))}}
	}
	return e
}

func sameState(t *testing.T, want, got *State) {
	t.Helper()
	require.Empty(t, cmp.Diff(want.Eval, got.Eval, protocmp.Transform()))
	require.Empty(t, cmp.Diff(want.Slots, got.Slots, protocmp.Transform()))
	sameAsAllSlots(t, got)
}

// sameAsAllSlots compares what a state keeps of its slots with a look at all of them.
func sameAsAllSlots(t *testing.T, s *State) {
	t.Helper()
	failures, waiting := 0, []*Slot(nil)
	for i := range s.Slots {
		slot := &s.Slots[i]
		if slot.failed() && !s.retries(slot) {
			failures++
		}
		if slot.pending() || s.retries(slot) {
			waiting = append(waiting, slot)
		}
	}
	require.Equal(t, failures, s.failures)
	require.Equal(t, waiting, slices.Collect(s.waiting()))
}

func TestProgressIsWhatACountOfAllSlotsGives(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		r := &randomJournal{Rand: rand.New(rand.NewPCG(seed, 0))}
		s := &State{}
		for range 200 {
			e := r.next()
			s.Apply(e)
			require.Empty(t, cmp.Diff(recount(s), s.Eval.GetProgress(), protocmp.Transform()), "seed %d after %v", seed, e)
			sameAsAllSlots(t, s)
		}
	}
}

func TestEventsThatDidNotBecomeDurableAreTakenBack(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		r := &randomJournal{Rand: rand.New(rand.NewPCG(seed, 1))}
		first := r.next()
		s, want := &State{}, &State{}
		s.Apply(first)
		want.Apply(first)
		for range 60 {
			lost := []*agentv1.Event{r.next(), r.next(), r.next()}
			s.attempt(lost)()
			sameState(t, want, s)
			kept := []*agentv1.Event{r.next(), r.next()}
			s.attempt(kept)
			for _, e := range kept {
				want.Apply(e)
			}
			sameState(t, want, s)
		}
	}
}

func TestAnEvaluationOfALaterFoldIsLeftAlone(t *testing.T) {
	t.Parallel()
	for says, tt := range map[string]struct {
		event  *agentv1.Event
		tooNew bool
	}{
		"this fold":     {&agentv1.Event{Kind: &agentv1.Event_EvalCreated{EvalCreated: &agentv1.EvalCreated{FoldVersion: FoldVersion}}}, false},
		"a later fold":  {&agentv1.Event{Kind: &agentv1.Event_EvalCreated{EvalCreated: &agentv1.EvalCreated{FoldVersion: FoldVersion + 1}}}, true},
		"a later event": {&agentv1.Event{Features: []string{"samples by turns"}, Kind: &agentv1.Event_ResultsComputed{}}, true},
	} {
		s := &State{}
		s.Apply(tt.event)
		assert.Equal(t, tt.tooNew, s.TooNew, says)
	}
}

func TestStatesShareASpecificationThatDoesNotChange(t *testing.T) {
	t.Parallel()
	s := &State{}
	s.Apply(&agentv1.Event{Kind: &agentv1.Event_EvalCreated{EvalCreated: &agentv1.EvalCreated{Samples: 1, Spec: &agentv1.EvalSpec{Task: "t", Models: []*agentv1.ModelRef{{Model: "a/a"}}}}}})
	before, updated := s.clone(), s.clone()
	updated.Apply(&agentv1.Event{Kind: &agentv1.Event_EvalUpdated{EvalUpdated: &agentv1.EvalUpdated{ChangesJson: `{"tags": ["x"]}`}}})
	assert.Same(t, s.Eval.GetSpec(), before.Eval.GetSpec(), "a copy does not hold the files of a task again")
	assert.Empty(t, s.Eval.GetSpec().GetTags())
	assert.Equal(t, []string{"x"}, updated.Eval.GetSpec().GetTags())
}

// The sum of an evaluation has the lost calls of all tries; a sample has those of its last one.
func TestLostModelCallsAreSummedUp(t *testing.T) {
	t.Parallel()
	s := &State{}
	for _, e := range []*agentv1.Event{
		{Kind: &agentv1.Event_EvalCreated{EvalCreated: &agentv1.EvalCreated{Samples: 1, Spec: &agentv1.EvalSpec{Models: []*agentv1.ModelRef{{Model: "a/a"}}}}}},
		{Kind: &agentv1.Event_SampleAdmitted{SampleAdmitted: &agentv1.SampleAdmitted{Run: "r1", Epoch: 1, Attempt: 1}}},
		{Kind: &agentv1.Event_SampleFinished{SampleFinished: &agentv1.SampleFinished{Run: "r1", LostModelCalls: 6, State: agentv1.RunState_RUN_STATE_FAILED}}},
		{Kind: &agentv1.Event_SampleAdmitted{SampleAdmitted: &agentv1.SampleAdmitted{Run: "r2", Epoch: 1, Attempt: 2}}},
		{Kind: &agentv1.Event_SampleFinished{SampleFinished: &agentv1.SampleFinished{Run: "r2", LostModelCalls: 1, State: agentv1.RunState_RUN_STATE_SUCCEEDED}}},
	} {
		s.Apply(e)
	}
	assert.EqualValues(t, 7, s.Eval.GetProgress().GetLostModelCalls())
	assert.EqualValues(t, 1, s.Resource(&s.Slots[0], &agentv1.Sample{}).GetLostModelCalls())
}
