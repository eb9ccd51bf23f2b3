package run_test

import (
	"iter"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal/journaltest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
)

const name = "projects/p/runs/r"

var began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func journalOf(events ...*agentv1.Event) iter.Seq2[*agentv1.Event, error] {
	return func(yield func(*agentv1.Event, error) bool) {
		for i, e := range events {
			e.Seq, e.Epoch, e.Time = int64(i+1), 1, timestamppb.New(began.Add(time.Duration(i)*time.Second))
			if !yield(e, nil) {
				return
			}
		}
	}
}

func created(spec *agentv1.RunSpec) *agentv1.Event {
	bare, content := run.Split(spec)
	return &agentv1.Event{Critical: true, Kind: &agentv1.Event_RunCreated{RunCreated: &agentv1.RunCreated{Spec: bare, Content: content, FoldVersion: run.FoldVersion}}}
}

func state(to agentv1.RunState) *agentv1.Event {
	return &agentv1.Event{Kind: &agentv1.Event_RunStateChanged{RunStateChanged: &agentv1.RunStateChanged{State: to}}}
}

func TestSplitAndJoin(t *testing.T) {
	t.Parallel()
	spec := &agentv1.RunSpec{
		Input: []*modelv1.ChatMessage{chat.User("secret")}, Target: &agentv1.Target{Values: []string{"secret"}}, Choices: []string{"secret"}, MetadataJson: `"secret"`,
		Store: map[string]string{"k": `"secret"`}, Steps: []*agentv1.AgentRef{{Name: "react", DisplayName: "one", ParamsJson: `"secret"`}}, Labels: map[string]string{"a": "b"},
	}
	bare, content := run.Split(spec)
	text, err := proto.Marshal(bare)
	require.NoError(t, err)
	assert.NotContains(t, string(text), "secret")
	assert.True(t, proto.Equal(spec, run.Join(&agentv1.RunCreated{Spec: bare, Content: content})))
}

func TestAJournalThatCannotBeIsAnError(t *testing.T) {
	t.Parallel()
	outcome := &agentv1.Event{Kind: &agentv1.Event_ModelOutcome{ModelOutcome: &agentv1.ModelOutcome{Intent: 7}}}
	for says, events := range map[string][]*agentv1.Event{
		"creation":       {},
		"no step":        {created(&agentv1.RunSpec{}), {Kind: &agentv1.Event_StepBegan{StepBegan: &agentv1.StepBegan{Index: 3}}}},
		"no open intent": {created(&agentv1.RunSpec{}), outcome},
		"neither a score": {
			created(&agentv1.RunSpec{Scorers: []*agentv1.ScorerRef{{Name: "match"}}}),
			{Kind: &agentv1.Event_RunStateChanged{RunStateChanged: &agentv1.RunStateChanged{State: agentv1.RunState_RUN_STATE_SCORING}}},
			{Kind: &agentv1.Event_ScoreIntent{ScoreIntent: &agentv1.ScoreIntent{Name: "match"}}},
			{Kind: &agentv1.Event_ScoreOutcome{ScoreOutcome: &agentv1.ScoreOutcome{Intent: 3, Name: "match"}}},
		},
		"created before": {created(&agentv1.RunSpec{}), created(&agentv1.RunSpec{})},
	} {
		_, err := run.Fold(name, nil, journalOf(events...))
		assert.ErrorContains(t, err, says)
		assert.ErrorIs(t, err, journal.ErrUnreadable)
	}
	s := run.New(name, nil)
	err := s.Apply(&agentv1.Event{Seq: 2})
	require.ErrorContains(t, err, "does not follow", "events have no gaps")
	assert.ErrorIs(t, err, journal.ErrUnreadable)
}

func TestALaterVersionsRunIsLeftAlone(t *testing.T) {
	t.Parallel()
	later := created(&agentv1.RunSpec{})
	later.GetRunCreated().FoldVersion = run.FoldVersion + 1
	s, err := run.Fold(name, nil, journalOf(later))
	require.NoError(t, err, "it can be looked at")
	assert.True(t, s.TooNew)
	s, err = run.Fold(name, nil, journalOf(created(&agentv1.RunSpec{}), &agentv1.Event{Critical: true}))
	require.NoError(t, err)
	assert.True(t, s.TooNew, "an unknown kind that every owner must know")
	s, err = run.Fold(name, nil, journalOf(created(&agentv1.RunSpec{}), &agentv1.Event{}))
	require.NoError(t, err)
	assert.False(t, s.TooNew, "an unknown kind that can be passed over")
	s, err = run.Fold(name, nil, journalOf(created(&agentv1.RunSpec{}), &agentv1.Event{Features: []string{"conversations"}}))
	require.NoError(t, err)
	assert.True(t, s.TooNew, "an event may ask for what its kind does not")
}

// TestACriticalKindThatTheFoldDoesNotKnow adds kinds to the protocol that the fold does not know: each kind is folded,
// or marks the journal as written by a later version.
func TestACriticalKindThatTheFoldDoesNotKnow(t *testing.T) {
	t.Parallel()
	for says, e := range map[string]*agentv1.Event{
		"a branch":           {Kind: &agentv1.Event_Branched{Branched: &agentv1.Branched{}}},
		"an approval":        {Kind: &agentv1.Event_ApprovalRequested{ApprovalRequested: &agentv1.ApprovalRequested{}}},
		"a subtask":          {Kind: &agentv1.Event_SubtaskIntent{SubtaskIntent: &agentv1.SubtaskIntent{}}},
		"a question":         {Kind: &agentv1.Event_InputRequested{InputRequested: &agentv1.InputRequested{}}},
		"an unknown kind":    {},
		"one of evaluations": {Kind: &agentv1.Event_SampleAdmitted{SampleAdmitted: &agentv1.SampleAdmitted{}}},
	} {
		for _, critical := range []bool{true, false} {
			e := proto.CloneOf(e)
			e.Critical = critical
			s, err := run.Fold(name, nil, journalOf(created(&agentv1.RunSpec{}), e))
			require.NoError(t, err, says)
			assert.Equal(t, critical, s.TooNew, says)
		}
	}
}

// TestPostedMessagesStayUntilTheConversationHasThem adds an operator's messages one by one.
func TestPostedMessagesStayUntilTheConversationHasThem(t *testing.T) {
	t.Parallel()
	post := func(text string) *agentv1.Event {
		return &agentv1.Event{Kind: &agentv1.Event_CommandReceived{CommandReceived: &agentv1.CommandReceived{Type: agentv1.CommandType_COMMAND_TYPE_MESSAGE, Content: &agentv1.CommandContent{Messages: []*modelv1.ChatMessage{chat.User(text)}}}}}
	}
	add := func(text string) *agentv1.Event {
		m := chat.User(text)
		m.Source = modelv1.MessageSource_MESSAGE_SOURCE_OPERATOR
		return &agentv1.Event{Kind: &agentv1.Event_MessageAdded{MessageAdded: &agentv1.MessageAdded{Content: m}}}
	}
	for _, c := range []struct {
		added string
		left  []string
	}{{"one", []string{"two", "three"}}, {"one\n\ntwo", []string{"three"}}, {"one\n\ntwo\n\nthree", nil}, {"another", []string{"one", "two", "three"}}} {
		s, err := run.Fold(name, nil, journalOf(created(&agentv1.RunSpec{}), post("one"), post("two"), post("three"), add(c.added)))
		require.NoError(t, err)
		var left []string
		for _, m := range s.Posted {
			left = append(left, chat.Text(m))
		}
		assert.Equal(t, c.left, left)
	}
}

// Pictures that an operator posts come into the conversation with what was posted beside them, and each message is
// taken once.
func TestPostedPicturesAreKept(t *testing.T) {
	t.Parallel()
	parts := func(parts ...*contentv1.Content) *modelv1.ChatMessage {
		return &modelv1.ChatMessage{Role: modelv1.Role_ROLE_USER, Content: &contentv1.MessageContent{Form: &contentv1.MessageContent_List{List: &contentv1.ContentList{Parts: parts}}}}
	}
	posted := []*modelv1.ChatMessage{chat.User("look"), parts(chat.ImagePart("data:a"), chat.TextPart("here")), parts(chat.ImagePart("data:b"))}
	for n := 1; n <= len(posted); n++ {
		m := &modelv1.ChatMessage{Role: modelv1.Role_ROLE_USER, Content: run.PostedContent(posted[:n]), Source: modelv1.MessageSource_MESSAGE_SOURCE_OPERATOR}
		var want []*contentv1.Content
		for _, p := range posted[:n] {
			want = append(want, chat.Parts(p.GetContent())...)
		}
		assert.Empty(t, cmp.Diff(want, chat.Parts(m.GetContent()), protocmp.Transform()))
		s, err := run.Fold(name, nil, journalOf(created(&agentv1.RunSpec{}),
			&agentv1.Event{Kind: &agentv1.Event_CommandReceived{CommandReceived: &agentv1.CommandReceived{Type: agentv1.CommandType_COMMAND_TYPE_MESSAGE, Content: &agentv1.CommandContent{Messages: posted}}}},
			&agentv1.Event{Kind: &agentv1.Event_MessageAdded{MessageAdded: &agentv1.MessageAdded{Content: m}}},
		))
		require.NoError(t, err)
		assert.Len(t, s.Posted, len(posted)-n)
	}
}

// TestNoKindIsTooMuch folds an event of every kind after a creation: it may be refused, and never panics.
func TestNoKindIsTooMuch(t *testing.T) {
	t.Parallel()
	for _, e := range journaltest.Samples(10) {
		s := run.New(name, nil)
		first := created(&agentv1.RunSpec{Steps: []*agentv1.AgentRef{{Name: "react"}}})
		first.Seq, e.Seq = 1, 2
		require.NoError(t, s.Apply(first))
		if err := s.Apply(e); err == nil {
			_, err := s.Row()
			require.NoError(t, err)
		}
	}
}

func TestDeadlines(t *testing.T) {
	t.Parallel()
	spec := &agentv1.RunSpec{Steps: []*agentv1.AgentRef{{Name: "a"}}, Limits: &agentv1.RunLimits{Time: durationpb.New(time.Minute)}}
	step := &agentv1.Event{Kind: &agentv1.Event_StepBegan{StepBegan: &agentv1.StepBegan{}}}
	ended := &agentv1.Event{Kind: &agentv1.Event_StepEnded{StepEnded: &agentv1.StepEnded{}}}
	finished := &agentv1.Event{Kind: &agentv1.Event_RunFinished{RunFinished: &agentv1.RunFinished{State: agentv1.RunState_RUN_STATE_SUCCEEDED}}}
	running, scoring := state(agentv1.RunState_RUN_STATE_RUNNING), state(agentv1.RunState_RUN_STATE_SCORING)
	for _, c := range []struct {
		says   string
		events []*agentv1.Event
		want   time.Time
	}{
		{"time runs from the first step", []*agentv1.Event{created(spec), running}, time.Time{}},
		{"it is all of the bound", []*agentv1.Event{created(spec), running, step}, began.Add(2*time.Second + time.Minute)},
		{"what ended the steps stops it", []*agentv1.Event{created(spec), running, step, ended}, time.Time{}},
		{"scoring has half of it", []*agentv1.Event{created(spec), running, step, ended, scoring}, began.Add(4*time.Second + 30*time.Second)},
		{"nothing is bounded after the end", []*agentv1.Event{created(spec), running, step, ended, scoring, finished}, time.Time{}},
	} {
		s, err := run.Fold(name, nil, journalOf(c.events...))
		require.NoError(t, err)
		assert.Equal(t, c.want, s.Deadline(), c.says)
		assert.Equal(t, c.want, s.Wake(), c.says)
	}
}

// TestARunAtWorkSaysWhatItDoesAndHowOftenItTried folds model calls that were tried again, and effects that are open.
func TestARunAtWorkSaysWhatItDoesAndHowOftenItTried(t *testing.T) {
	t.Parallel()
	s, err := run.Fold(name, nil, journalOf(
		created(&agentv1.RunSpec{}),
		&agentv1.Event{Kind: &agentv1.Event_ModelIntent{ModelIntent: &agentv1.ModelIntent{Model: "openai/gpt-4o"}}},
		&agentv1.Event{Kind: &agentv1.Event_ModelOutcome{ModelOutcome: &agentv1.ModelOutcome{Intent: 2, Timing: &effectv1.Timing{Attempts: 3}}}},
		&agentv1.Event{Kind: &agentv1.Event_ModelIntent{ModelIntent: &agentv1.ModelIntent{Model: "openai/gpt-4o"}}},
		&agentv1.Event{Kind: &agentv1.Event_SandboxIntent{SandboxIntent: &agentv1.SandboxIntent{Environment: "default"}}},
	))
	require.NoError(t, err)
	view := s.View(false)
	assert.EqualValues(t, 2, view.GetRetries())
	assert.Equal(t, "model openai/gpt-4o, sandbox default", view.GetActivity())
}

// What a run does is a bounded text, however many effects are open.
func TestARunAtWorkNamesFewOfItsOpenEffects(t *testing.T) {
	t.Parallel()
	events := []*agentv1.Event{created(&agentv1.RunSpec{})}
	for range 100 {
		intent := &agentv1.ModelIntent{Model: "m/x"}
		events = append(events, &agentv1.Event{Kind: &agentv1.Event_ModelIntent{ModelIntent: intent}})
	}
	s, err := run.Fold(name, nil, journalOf(events...))
	require.NoError(t, err)
	assert.Equal(t, "model m/x, model m/x, model m/x, model m/x, model m/x, and 95 more", s.View(false).GetActivity())
}

// Each repeated call was lost before, and so was the last one if its end is unknown.
func TestLostModelCallsAreCounted(t *testing.T) {
	t.Parallel()
	intent := func() *agentv1.Event {
		return &agentv1.Event{Kind: &agentv1.Event_ModelIntent{ModelIntent: &agentv1.ModelIntent{}}}
	}
	outcome := func(intent int64, reissues int32, reason string) *agentv1.Event {
		o := &agentv1.ModelOutcome{Intent: intent, Timing: &effectv1.Timing{Reissued: reissues > 0, Reissues: reissues}}
		if reason != "" {
			o.Error = &agentv1.RunError{Reason: reason}
		}
		return &agentv1.Event{Kind: &agentv1.Event_ModelOutcome{ModelOutcome: o}}
	}
	s, err := run.Fold(name, nil, journalOf(created(&agentv1.RunSpec{}),
		intent(), outcome(2, 2, ""), intent(), outcome(4, 0, ""), intent(), outcome(6, 1, "PROVIDER_UNAVAILABLE"),
		intent(), outcome(8, 5, "EFFECT_INDETERMINATE")))
	require.NoError(t, err)
	assert.EqualValues(t, 2+1+6, s.View(false).GetLostModelCalls())
}
