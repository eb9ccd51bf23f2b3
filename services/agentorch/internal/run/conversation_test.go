package run

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
)

// linksOf are the links of messages that no conversation had before.
func linksOf(t *testing.T, messages []*modelv1.ChatMessage) []Link {
	t.Helper()
	fresh := &Conversation{}
	fresh.Append(messages...)
	var all []Link
	for n := range len(messages) + 1 {
		link, err := fresh.Upto(n)
		require.NoError(t, err)
		all = append(all, link)
	}
	return all
}

// TestLinksAreThoseOfTheMessages changes a conversation in every way that a journal knows.
func TestLinksAreThoseOfTheMessages(t *testing.T) {
	t.Parallel()
	s := New("projects/p/runs/r", nil)
	holds := func(n int) {
		t.Helper()
		_, err := s.conversation.Upto(s.conversation.Len())
		require.NoError(t, err)
		assert.Equal(t, linksOf(t, s.Messages())[1:], s.conversation.links)
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

// TestALinkCountsBytesOnce asks for the same beginning again.
func TestALinkCountsBytesOnce(t *testing.T) {
	t.Parallel()
	c := &Conversation{}
	c.Append(chat.User("a text"), chat.User("a longer text"))
	whole, err := c.Upto(2)
	require.NoError(t, err)
	part, err := c.Upto(1)
	require.NoError(t, err)
	assert.Equal(t, 2, whole.Count)
	assert.Greater(t, whole.Bytes, 2*part.Bytes)
	before := c.links[0]
	_, err = c.Upto(2)
	require.NoError(t, err)
	assert.Equal(t, before, c.links[0])
}
