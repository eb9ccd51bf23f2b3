package prefixcache_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/prefix"
	"github.com/evalfleet/evalfleet/pkg/tokens"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/prefixcache"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/prepare"
)

func extend(t *testing.T, c prefixcache.Conversation, messages ...*modelv1.ChatMessage) prefixcache.Conversation {
	t.Helper()
	next, err := c.Extend(messages...)
	require.NoError(t, err)
	return next
}

func TestAPrefixStandsForTheMessagesOfItsProject(t *testing.T) {
	t.Parallel()
	s := prefixcache.New(1 << 20)
	one := extend(t, prefixcache.Conversation{}, chat.User("a"))
	two := extend(t, one, chat.Assistant("b"), chat.User("c"))
	s.Keep("p", one, two)
	for _, c := range []prefixcache.Conversation{one, two} {
		found, ok := s.Get("p", c.Prefix())
		require.True(t, ok)
		assert.Equal(t, c.Messages(), found.Messages())
		_, ok = s.Get("q", c.Prefix())
		assert.False(t, ok, "another project names it")
	}
	wrong := two.Prefix()
	wrong.Count--
	_, ok := s.Get("p", wrong)
	assert.False(t, ok, "the count is another")
	_, ok = s.Get("p", &modelv1.MessagePrefix{Hash: "9f", Count: 1})
	assert.False(t, ok, "a hash of another form")
}

// TestConversationsThatPartKeepTheirOwnMessages continues one conversation in two ways.
func TestConversationsThatPartKeepTheirOwnMessages(t *testing.T) {
	t.Parallel()
	base := extend(t, prefixcache.Conversation{}, chat.User("a"))
	left := extend(t, base, chat.User("left"))
	right := extend(t, base, chat.User("right"))
	further := extend(t, left, chat.User("further"))
	says := func(c prefixcache.Conversation) (texts []string) {
		for _, m := range c.Messages() {
			texts = append(texts, chat.Text(m))
		}
		return texts
	}
	assert.Equal(t, []string{"a"}, says(base))
	assert.Equal(t, []string{"a", "left"}, says(left))
	assert.Equal(t, []string{"a", "right"}, says(right))
	assert.Equal(t, []string{"a", "left", "further"}, says(further))
	assert.NotEqual(t, left.Prefix().GetHash(), right.Prefix().GetHash())
}

func TestWhatWasNotUsedForLongestIsForgotten(t *testing.T) {
	t.Parallel()
	s := prefixcache.New(100_000)
	var all []prefixcache.Conversation
	for i := range 12 {
		c := extend(t, prefixcache.Conversation{}, chat.User(fmt.Sprint(i)+strings.Repeat("x", 10_000)))
		longer := extend(t, c, chat.User("more"))
		s.Keep("p", c, longer)
		all = append(all, c)
		_, ok := s.Get("p", all[0].Prefix())
		assert.True(t, ok, "the first is used each time")
	}
	for i, c := range all {
		_, ok := s.Get("p", c.Prefix())
		assert.Equal(t, i == 0 || i >= 5, ok, i)
	}
	large := extend(t, prefixcache.Conversation{}, chat.User(strings.Repeat("x", 100_000)))
	s.Keep("p", large)
	_, ok := s.Get("p", large.Prefix())
	assert.False(t, ok, "it is larger than all that may be kept")
	_, ok = s.Get("p", all[0].Prefix())
	assert.True(t, ok, "and nothing went for it")
}

// TestWhatIsAddedToAKeptConversationCounts makes calls that continue kept conversations without keeping their
// additions, which are held as long as the conversation.
func TestWhatIsAddedToAKeptConversationCounts(t *testing.T) {
	t.Parallel()
	s := prefixcache.New(100_000)
	var all []prefixcache.Conversation
	for i := range 10 {
		c := extend(t, prefixcache.Conversation{}, chat.User(fmt.Sprint(i)))
		s.Keep("p", c)
		all = append(all, c)
	}
	for _, c := range all {
		s.Weigh(extend(t, c, chat.User(strings.Repeat("x", 30_000))))
	}
	var kept int
	for _, c := range all {
		if _, ok := s.Get("p", c.Prefix()); ok {
			kept++
		}
	}
	assert.Equal(t, 3, kept, "those that are held in 100,000 bytes")
	s.Weigh(extend(t, prefixcache.Conversation{}, chat.User("of none that is kept")))

	many := chat.User("")
	for range 300 {
		many.ToolCalls = append(many.ToolCalls, &toolv1.ToolCall{Id: "x"})
	}
	small := prefixcache.New(50_000)
	c := extend(t, prefixcache.Conversation{}, many)
	small.Keep("p", c)
	_, ok := small.Get("p", c.Prefix())
	assert.False(t, ok, "a part is more than its bytes")
}

// TestASummaryThatGrowsIsThatOfAllMessages compares one that grew by a message at a time with that of all of them.
func TestASummaryThatGrowsIsThatOfAllMessages(t *testing.T) {
	t.Parallel()
	thought := chat.Assistant("")
	thought.Content = chat.ListContent(chat.ReasoningPart("why"), chat.TextPart("x"), chat.ImagePart("data:image/png;base64,aGk="))
	messages := []*modelv1.ChatMessage{chat.System("s"), chat.User("u"), chat.User("v"), thought, {Role: modelv1.Role_ROLE_TOOL, Content: thought.GetContent()}}
	var c prefixcache.Conversation
	for i, m := range messages {
		c = extend(t, c, m)
		assert.Equal(t, prepare.SummaryOf(messages[:i+1]...), c.Summary())
		assert.Equal(t, tokens.Rough(messages[:i+1]), c.TokenCount().Tokens())
	}
}

// TestEachMessageIsDigestedOnceAsAConversationGrows counts the messages that are digested over 1,000 turns, and where
// two conversations part.
func TestEachMessageIsDigestedOnceAsAConversationGrows(t *testing.T) {
	t.Parallel()
	var digested []string
	digest := func(m *modelv1.ChatMessage) (prefix.Digest, error) {
		digested = append(digested, chat.Text(m))
		d, _, err := prefix.DigestOf(m)
		return d, err
	}
	content := func(c prefixcache.Conversation) prefix.Hash {
		h, err := c.Content(digest)
		require.NoError(t, err)
		return h
	}
	var c, base prefixcache.Conversation
	assert.Equal(t, prefix.Hash{}, content(c))
	for turn := range 1000 {
		c = extend(t, c, chat.User(fmt.Sprint("q", turn)), chat.Assistant(fmt.Sprint("a", turn)))
		if turn == 10 {
			base = c
		}
		before := len(digested)
		content(c)
		require.Len(t, digested[before:], 2, "turn %d", turn)
	}
	digested = nil
	assert.NotEqual(t, content(base), content(c))
	content(extend(t, base, chat.User("other")))
	content(extend(t, c, chat.User("more")))
	assert.Equal(t, []string{"other", "more"}, digested)

	all, err := prefix.Of(c.Messages(), digest)
	require.NoError(t, err)
	assert.Equal(t, all, content(c), "the same as of all messages at once")
	_, err = extend(t, c, chat.User("x")).Content(func(*modelv1.ChatMessage) (prefix.Digest, error) { return prefix.Digest{}, errors.New("no") })
	assert.EqualError(t, err, "no")
}
