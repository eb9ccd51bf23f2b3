package run

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/limit"
)

// linksOf are the links of messages that no conversation had before.
func linksOf(t *testing.T, messages []*modelv1.ChatMessage) []Link {
	t.Helper()
	fresh := &Conversation{}
	fresh.Append(messages...)
	all, err := fresh.Links(len(messages))
	require.NoError(t, err)
	return all
}

// TestLinksAreThoseOfTheMessages changes a conversation in every way that a journal knows.
func TestLinksAreThoseOfTheMessages(t *testing.T) {
	t.Parallel()
	s := New("projects/p/runs/r", nil)
	holds := func(n int) {
		t.Helper()
		links, err := s.conversation.Links(s.conversation.Len())
		require.NoError(t, err)
		assert.True(t, slices.Equal(linksOf(t, s.Messages()), links))
		assert.Equal(t, n, s.conversation.Len())
	}
	first := chat.User("first")
	s.conversation.Append(first)
	holds(1)
	s.messageAdded(agent.Add(chat.Assistant("second")).GetMessageAdded())
	s.messageAdded(agent.Add(chat.User("third")).GetMessageAdded())
	holds(3)
	s.messageAdded(agent.Insert(1, chat.System("between")).GetMessageAdded())
	holds(4)
	changed := chat.User("changed")
	changed.Id = s.Messages()[3].GetId()
	s.historyChanged(agent.Edit("test", []*modelv1.ChatMessage{changed}, nil).GetHistoryChanged())
	holds(4)
	s.historyChanged(agent.Replace("test", s.Messages(), s.Messages()[2:]).GetHistoryChanged())
	holds(2)
	s.historyChanged(agent.Replace("test", s.Messages(), nil).GetHistoryChanged())
	holds(0)
}

// TestLinksThatWereGivenStay changes the conversation after its links were given.
func TestLinksThatWereGivenStay(t *testing.T) {
	t.Parallel()
	s := New("projects/p/runs/r", nil)
	s.conversation.Append(chat.User("a text"), chat.User("a longer text"))
	given, err := s.conversation.Links(2)
	require.NoError(t, err)
	before := slices.Clone(given)
	assert.Equal(t, 2, given[1].Count)
	assert.Greater(t, given[1].Bytes, 2*given[0].Bytes)
	s.historyChanged(agent.Replace("test", s.Messages(), []*modelv1.ChatMessage{s.Messages()[0], chat.User("another")}).GetHistoryChanged())
	after, err := s.conversation.Links(2)
	require.NoError(t, err)
	assert.Equal(t, before, given)
	assert.Equal(t, given[0], after[0])
	assert.NotEqual(t, given[1], after[1])
}

// TestWhatAModelWasToldIsKnown has a model answer, and changes the conversation before and behind that.
func TestWhatAModelWasToldIsKnown(t *testing.T) {
	t.Parallel()
	asked := func() *State {
		s := New("projects/p/runs/r", nil)
		s.spec, s.Limits = &agentv1.RunSpec{}, &limit.Set{}
		s.conversation.Append(chat.System("s"), chat.User("u"))
		s.begin(s.Frame, &agentv1.Event{Seq: 1, Kind: &agentv1.Event_ModelIntent{ModelIntent: &agentv1.ModelIntent{Purpose: agent.PurposeAgent, MessageCount: 2}}})
		answer := chat.MessageOutput("m", chat.Assistant("a"), modelv1.StopReason_STOP_REASON_STOP)
		require.NoError(t, s.modelOutcome(s.Frame, &agentv1.Event{}, &agentv1.ModelOutcome{Intent: 1, Content: &agentv1.ModelOutcomeContent{Output: answer}}))
		return s
	}
	s := asked()
	assert.Equal(t, 2, s.Sent().Told())
	s.messageAdded(agent.Add(chat.FirstMessage(s.Answer())).GetMessageAdded())
	assert.Equal(t, 3, s.Sent().Told(), "the answer is a part of it")
	s.messageAdded(agent.Add(chat.User("more")).GetMessageAdded())
	assert.Equal(t, 3, s.Sent().Told())
	s.historyChanged(agent.Shorten("test", s.Messages(), s.Messages()[:3]).GetHistoryChanged())
	assert.Equal(t, 3, s.Sent().Told(), "what was told stays")
	s.historyChanged(agent.Shorten("test", s.Messages(), s.Messages()[1:]).GetHistoryChanged())
	assert.Zero(t, s.Sent().Told())

	s = asked()
	changed := chat.Assistant("changed")
	changed.Id = chat.FirstMessage(s.Answer()).GetId()
	s.messageAdded(agent.Add(changed).GetMessageAdded())
	assert.Equal(t, 2, s.Sent().Told(), "the conversation has the answer in another form")
}
