package sqlite

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/blob/disk"
	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal/journaltest"
)

// offloading is a store whose large values are in a folder of bodies.
func offloading(t *testing.T) (journal.Store, *Store, *disk.Store) {
	t.Helper()
	blobs, err := disk.Open(disk.Config{Dir: filepath.Join(t.TempDir(), "blobs")})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, blobs.Close()) })
	rows := openStore(t, openDB(t))
	return journal.Offloading(rows, blobs), rows, blobs
}

func TestTheSuiteHoldsWithValuesThatStandApart(t *testing.T) {
	t.Parallel()
	journaltest.Run(t, func(t *testing.T) journal.Store { s, _, _ := offloading(t); return s })
}

const runName = "projects/p/runs/a"

// largeEvents are an answer with a call, a call's result, and the events that share their contents.
func largeEvents() []journal.Entry {
	text := func(letter string) string { return strings.Repeat(letter, 5<<20) }
	answer := chat.Assistant(text("a"))
	answer.ToolCalls = []*toolv1.ToolCall{{Id: "c0", Function: "f"}, {Id: "c1", Function: "f", ArgumentsJson: text("b")}}
	answered := &agentv1.Event{Seq: 1, Kind: &agentv1.Event_ModelOutcome{ModelOutcome: &agentv1.ModelOutcome{
		Content: &agentv1.ModelOutcomeContent{Output: chat.MessageOutput("m", answer, modelv1.StopReason_STOP_REASON_STOP)},
	}}}
	ended := &agentv1.Event{Seq: 4, Kind: &agentv1.Event_ToolOutcome{ToolOutcome: &agentv1.ToolOutcome{
		CallId: "c1", MessageId: "m1", Function: "f",
		Content: &agentv1.ToolOutcomeContent{Result: &toolv1.ToolResult{
			CallId: "c1", Content: &contentv1.MessageContent{Form: &contentv1.MessageContent_Text{Text: text("r")}}, Error: &toolv1.ToolCallError{Message: text("e")},
		}},
	}}}
	added := func(seq int64, source *agentv1.Event) *agentv1.Event {
		return &agentv1.Event{Seq: seq, Kind: &agentv1.Event_MessageAdded{MessageAdded: &agentv1.MessageAdded{Content: journal.MessageOf(source)}}}
	}
	return []journal.Entry{
		{Event: answered},
		{Event: added(2, answered), Same: 1},
		{Event: &agentv1.Event{Seq: 3, Kind: &agentv1.Event_ToolIntent{ToolIntent: &agentv1.ToolIntent{CallId: "c1", Content: answer.GetToolCalls()[1]}}}, Same: 1},
		{Event: ended},
		{Event: added(5, ended), Same: 4},
	}
}

func TestLargeValuesStandApartOfTheirEvents(t *testing.T) {
	t.Parallel()
	s, rows, blobs := offloading(t)
	entries := largeEvents()
	var before []*agentv1.Event
	for _, e := range entries {
		before = append(before, proto.CloneOf(e.Event))
	}
	head, _, err := s.Create(t.Context(), journal.Creation{Name: runName, Owner: "r", Entries: entries, Row: journal.Row{Kind: journal.KindRun, State: 1}})
	require.NoError(t, err)
	for i, e := range entries {
		assert.True(t, proto.Equal(before[i], e.Event), "the caller's event stays as it is")
	}
	bare, err := rows.Read(t.Context(), head.Ref, journal.Range{})
	require.NoError(t, err)
	require.Len(t, bare, len(entries), "all are one page")
	for _, e := range bare {
		assert.Less(t, proto.Size(e), 4<<10)
	}
	kept, err := blobs.List(t.Context())
	require.NoError(t, err)
	assert.Len(t, kept, 4, "each text once")

	// From the beginning, and from each event on, so that its source is in no page.
	for from := range entries {
		after := int64(from)
		for after < int64(len(entries)) {
			page, err := s.Read(t.Context(), head.Ref, journal.Range{After: after})
			require.NoError(t, err)
			require.Len(t, page, 1, "a page has the bytes that it may have")
			want := proto.CloneOf(before[after])
			want.Journal, want.Epoch = runName, 1
			assert.True(t, proto.Equal(want, page[0]), "event %d from %d", after+1, from)
			after++
		}
	}
	page, err := s.Read(t.Context(), head.Ref, journal.Range{Bytes: 1 << 30})
	require.NoError(t, err)
	assert.Len(t, page, len(entries))
}

func TestAnEventIsBoundedWithItsValues(t *testing.T) {
	t.Parallel()
	s, _, _ := offloading(t)
	head, _, err := s.Create(t.Context(), journal.Creation{Name: runName, Owner: "r", Row: journal.Row{Kind: journal.KindRun, State: 1}, Entries: []journal.Entry{{Event: &agentv1.Event{Seq: 1}}}})
	require.NoError(t, err)
	said := func(text string) journal.Entry {
		return journal.Entry{Event: &agentv1.Event{Seq: 2, Kind: &agentv1.Event_MessageAdded{MessageAdded: &agentv1.MessageAdded{Content: chat.System(text)}}}}
	}
	err = s.Append(t.Context(), journal.Append{Head: head, Entries: []journal.Entry{said(strings.Repeat("a", bound.JournalValuesBytes))}})
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_REQUEST_TOO_LARGE), "%v", err)
	require.NoError(t, s.Append(t.Context(), journal.Append{Head: head, Entries: []journal.Entry{said(strings.Repeat("a", bound.JournalValuesBytes-1000))}}))
	page, err := s.Read(t.Context(), head.Ref, journal.Range{After: 1})
	require.NoError(t, err)
	require.Len(t, page, 1)
}

// torn ends before an append, as a process does that is killed between the body and its event.
type torn struct{ journal.Store }

func (torn) Append(context.Context, journal.Append) error { return context.Canceled }

func TestAnEndBetweenBodyAndEventLosesNothing(t *testing.T) {
	t.Parallel()
	_, rows, blobs := offloading(t)
	entries := largeEvents()[:1]
	head, _, err := rows.Create(t.Context(), journal.Creation{Name: runName, Owner: "r", Row: journal.Row{Kind: journal.KindRun, State: 1}, Entries: []journal.Entry{{Event: &agentv1.Event{Seq: 1}}}})
	require.NoError(t, err)
	entries[0].Event.Seq = 2
	killed := journal.Offloading(torn{rows}, blobs)
	require.Error(t, killed.Append(t.Context(), journal.Append{Head: head, Entries: entries}))
	kept, err := blobs.List(t.Context())
	require.NoError(t, err)
	assert.Len(t, kept, 2, "bodies that no event names")

	s := journal.Offloading(rows, blobs)
	require.NoError(t, s.Append(t.Context(), journal.Append{Head: head, Entries: entries}))
	page, err := s.Read(t.Context(), head.Ref, journal.Range{After: 1})
	require.NoError(t, err)
	assert.Len(t, chat.Completion(page[0].GetModelOutcome().GetContent().GetOutput()), 5<<20)
}

func TestAnEventWhoseValueIsGoneIsUnreadable(t *testing.T) {
	t.Parallel()
	s, _, blobs := offloading(t)
	head, _, err := s.Create(t.Context(), journal.Creation{Name: runName, Owner: "r", Row: journal.Row{Kind: journal.KindRun, State: 1}, Entries: append([]journal.Entry{{Event: &agentv1.Event{Seq: 1}}}, shifted(largeEvents()[:1], 1)...)})
	require.NoError(t, err)
	kept, err := blobs.List(t.Context())
	require.NoError(t, err)
	for _, body := range kept {
		require.NoError(t, blobs.Delete(t.Context(), body.Project, body.Hash))
	}
	page, err := s.Read(t.Context(), head.Ref, journal.Range{Bytes: 1 << 30})
	require.NoError(t, err)
	assert.Len(t, page, 1, "what is before it can be read")
	_, err = s.Read(t.Context(), head.Ref, journal.Range{After: 1})
	require.ErrorIs(t, err, journal.ErrUnreadable)
	bare, err := s.Read(t.Context(), head.Ref, journal.Range{After: 1, Bare: true})
	require.NoError(t, err)
	assert.Len(t, bare, 1)
}

func shifted(entries []journal.Entry, by int64) []journal.Entry {
	for _, e := range entries {
		e.Event.Seq += by
	}
	return entries
}
