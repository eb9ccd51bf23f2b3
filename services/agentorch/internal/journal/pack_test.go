package journal_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
)

func answered(text, completion string) *agentv1.Event {
	output := chat.MessageOutput("m", chat.Assistant(text), modelv1.StopReason_STOP_REASON_STOP)
	output.Completion = completion
	return &agentv1.Event{Id: "1", Kind: &agentv1.Event_ModelOutcome{ModelOutcome: &agentv1.ModelOutcome{
		Intent: 3, Content: &agentv1.ModelOutcomeContent{Output: output, Warnings: []string{"w"}},
	}}}
}

func TestATextIsStoredOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		size       int
		completion string // empty is the text
		apart      bool
	}{
		"small": {size: 2000}, "large": {size: 9000, apart: true}, "with another completion": {size: 100, completion: "42"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := strings.Repeat("t", c.size)
			completion := c.completion
			if completion == "" {
				completion = text
			}
			event := answered(text, completion)
			before := proto.CloneOf(event)
			packed, err := journal.Pack("p", journal.Entry{Event: event})
			require.NoError(t, err)
			assert.True(t, proto.Equal(before, event), "the event stays as it is")
			assert.Less(t, len(packed.Body)+len(packed.Content), c.size+200)
			assert.Equal(t, c.apart, packed.Hash != nil)
			again, err := journal.Unpack(packed.Body)
			require.NoError(t, err)
			if packed.Hash != nil {
				require.NoError(t, journal.PutContent(again, packed.Content))
			}
			assert.True(t, proto.Equal(before, again), "%v", again)
		})
	}
}

func TestContentsOfProjectsNeverMeet(t *testing.T) {
	t.Parallel()
	entry := journal.Entry{Event: answered(strings.Repeat("t", 9000), "")}
	one, err := journal.Pack("one", entry)
	require.NoError(t, err)
	two, err := journal.Pack("two", entry)
	require.NoError(t, err)
	same, err := journal.Pack("one", entry)
	require.NoError(t, err)
	assert.NotEqual(t, one.Hash, two.Hash)
	assert.Equal(t, one.Hash, same.Hash)
}

func TestWhatCannotBeReadIsAnError(t *testing.T) {
	t.Parallel()
	_, err := journal.Unpack([]byte("\xff"))
	require.Error(t, err)
	require.Error(t, journal.PutContent(answered("a", ""), []byte("no zstd")))
}

// TestWhatIsAcceptedCanBeRead packs events around the bound: each is either refused or can be read again.
func TestWhatIsAcceptedCanBeRead(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("t", bound.JournalEventBytes)
	packed, err := journal.Pack("p", journal.Entry{Event: answered(text[:len(text)-1000], "")})
	require.NoError(t, err)
	event, err := journal.Unpack(packed.Body)
	require.NoError(t, err)
	require.NoError(t, journal.PutContent(event, packed.Content))
	assert.Len(t, chat.Completion(event.GetModelOutcome().GetContent().GetOutput()), len(text)-1000)
	inBody := &agentv1.Event{Kind: &agentv1.Event_ErrorRaised{ErrorRaised: &agentv1.ErrorRaised{Error: &agentv1.RunError{Message: text}}}}
	for _, event := range []*agentv1.Event{answered(text, ""), inBody} {
		_, err := journal.Pack("p", journal.Entry{Event: event})
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_REQUEST_TOO_LARGE), "%v", err)
	}
	require.ErrorIs(t, journal.PutContent(answered("", ""), []byte("no content")), journal.ErrUnreadable)
	_, err = journal.Unpack([]byte("no event"))
	assert.ErrorIs(t, err, journal.ErrUnreadable)
}

func TestRowsThatFitAPage(t *testing.T) {
	t.Parallel()
	of := func(sizes ...int) (rows []journal.Listed) {
		for _, size := range sizes {
			rows = append(rows, journal.Listed{Row: journal.Row{View: make([]byte, size)}})
		}
		return rows
	}
	assert.Equal(t, 2, journal.Fitting(of(1, 1, 1), 2))
	assert.Equal(t, 10, journal.Fitting(of(1, 1, 1), 10))
	assert.Equal(t, 1, journal.Fitting(of(journal.PageBytes+1, 1, 1), 2))
	assert.Equal(t, 2, journal.Fitting(of(journal.PageBytes-1, 1, 1), 10))
}
