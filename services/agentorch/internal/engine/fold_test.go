package engine_test

import (
	"iter"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
)

// form is the whole content of a state, for comparison.
type form struct {
	View     *agentv1.Run
	Open     []int64
	Calls    []string
	Stage    map[string]string
	Scoring  *run.Scoring
	Step     int
	Done     bool
	Cancel   *run.Cancel
	Answered int64
	Answers  int
	Machine  any
	Boxes    map[string]*run.Sandbox
	Tools    []*agentv1.NamedScore
}

func formOf(s *run.State) form {
	f := form{
		View: proto.CloneOf(s.View(true)), Step: s.Step, Done: s.StepsDone, Cancel: s.Cancel, Answered: s.Answered(), Answers: s.Answers,
		Boxes: s.Sandboxes, Tools: s.Scores(),
	}
	if s.Scoring != nil { // what it has of its frame is elsewhere
		scoring := *s.Scoring
		scoring.Frame, f.Scoring = nil, &scoring
	}
	for _, i := range s.Open {
		f.Open = append(f.Open, i.Seq())
	}
	if s.Calls != nil {
		for _, c := range s.Calls.All {
			f.Calls = append(f.Calls, c.Call.String()+c.Intent.String()+c.Outcome.String())
		}
		if s.Calls.Stage != nil {
			f.Stage = s.Calls.Stage.Store
		}
	}
	return f
}

var (
	inside  = cmp.Exporter(func(reflect.Type) bool { return true })
	noFuncs = cmp.FilterPath(func(p cmp.Path) bool { return p.Last().Type() != nil && p.Last().Type().Kind() == reflect.Func }, cmp.Ignore())
)

func fold(t *testing.T, f *fleet, name string, events []*agentv1.Event) *run.State {
	t.Helper()
	s := run.New(name, f.Agents)
	apply(t, s, slices.Values(events))
	return s
}

func apply(t *testing.T, s *run.State, events iter.Seq[*agentv1.Event]) {
	t.Helper()
	for e := range events {
		require.NoError(t, s.Apply(e))
	}
}

// TestFold folds the journal of a run that does everything: in one go, in two parts cut anywhere, and from events that
// went over a wire.
func TestFold(t *testing.T) {
	t.Parallel()
	f := newFleet(t).start()
	name := f.Create(wholeLife(f)).Name
	f.Finish(name)
	var events []*agentv1.Event
	for e, err := range f.Events(name) {
		require.NoError(t, err)
		events = append(events, e)
	}
	before := make([]*agentv1.Event, len(events))
	for i, e := range events {
		before[i] = proto.CloneOf(e)
	}
	for cut := range events {
		whole := fold(t, f, name, events[:cut+1])
		parts := fold(t, f, name, events[:cut/2])
		apply(t, parts, slices.Values(events[cut/2:cut+1]))
		wire := fold(t, f, name, before[:cut+1])
		for _, other := range []*run.State{parts, wire} {
			require.Empty(t, cmp.Diff(formOf(whole), formOf(other), protocmp.Transform()), "events up to %d", cut+1)
			require.Empty(t, cmp.Diff(whole.Machine, other.Machine, protocmp.Transform(), inside, noFuncs), "the agent after event %d", cut+1)
		}
	}
	for i := range events {
		assert.True(t, proto.Equal(before[i], events[i]), "folding changes no event: %v", events[i])
	}
}
