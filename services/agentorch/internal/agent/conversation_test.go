package agent_test

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
)

func texts(messages []*modelv1.ChatMessage) (all []string) {
	for _, m := range messages {
		all = append(all, m.GetId()+"="+chat.Text(m))
	}
	return all
}

func message(id int, text string) *modelv1.ChatMessage {
	m := chat.User(text)
	m.Id = "m" + strconv.Itoa(id)
	return m
}

// A replaced conversation names the messages that stay, and holds those that are new.
func TestAReplacedConversationHoldsWhatIsNew(t *testing.T) {
	t.Parallel()
	before := []*modelv1.ChatMessage{message(1, "a"), message(2, "b"), message(3, "c")}
	unnamed := chat.User("new")
	unnamed.Id = ""
	event := agent.Replace("trim", before, []*modelv1.ChatMessage{proto.CloneOf(before[2]), message(1, "changed"), unnamed})
	change := event.GetHistoryChanged()
	assert.Equal(t, []string{"m3", "", ""}, change.GetOrder())
	assert.Equal(t, []string{"m1=changed", "=new"}, texts(change.GetContent().GetMessages()))
	assert.Equal(t, []string{"m3=c", "m1=changed", "=new"}, texts(agent.Changed(before, change)))

	change.Content = nil
	assert.Equal(t, []string{"m3=c"}, texts(agent.Changed(before, change)), "without contents, what stays is known")
	assert.Empty(t, agent.Changed(before, agent.Replace("trim", before, nil).GetHistoryChanged()))
}

func TestAReplacedConversationIsTheOneThatWasMeant(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	some := func() (all []*modelv1.ChatMessage) {
		for range random.IntN(6) {
			all = append(all, message(random.IntN(5), strconv.Itoa(random.IntN(2)))) // ids repeat
		}
		return all
	}
	for range 2000 {
		before, after := some(), some()
		assert.Equal(t, texts(after), texts(agent.Changed(before, agent.Replace("trim", before, after).GetHistoryChanged())))
		assert.Equal(t, texts(after), texts(agent.Changed(before, agent.Shorten("trim", before, after).GetHistoryChanged())))
	}
}

func TestALongConversationChanges(t *testing.T) {
	t.Parallel()
	const count = 100_000
	var before []*modelv1.ChatMessage
	var removed []string
	for i := range count {
		before = append(before, message(i, "a"))
		removed = append(removed, "m"+strconv.Itoa(count-1-i))
	}
	begun := time.Now()
	assert.Empty(t, agent.Changed(before, agent.Edit("trim", nil, removed).GetHistoryChanged()))
	slices.Reverse(before)
	reversed := slices.Clone(before)
	slices.Reverse(reversed)
	assert.Equal(t, reversed, agent.Changed(before, agent.Replace("trim", before, reversed).GetHistoryChanged()))
	assert.Less(t, time.Since(begun), waittest.Bound)
}
