// Package journaltest is the suite that every journal store passes.
package journaltest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
)

// Run checks a store. Open returns an empty one each time.
func Run(t *testing.T, open func(*testing.T) journal.Store) {
	for name, test := range map[string]func(*testing.T, journal.Store){
		"create":        create,
		"create once":   createOnce,
		"fence":         fence,
		"under":         under,
		"one winner":    oneWinner,
		"every kind":    everyKind,
		"stored once":   storedOnce,
		"ranges":        ranges,
		"wake":          wake,
		"resume":        resume,
		"claim":         claim,
		"claims":        claimsAtOnce,
		"take":          takes,
		"inbox":         inbox,
		"list":          list,
		"list labels":   listLabels,
		"letters":       letters,
		"list waits":    listWaits,
		"waits":         waits,
		"row is atomic": rowIsAtomic,
		"delete":        deletes,
		"delete all of": deletesChildren,
		"base":          base,
		"base deleted":  baseDeleted,
		"roots":         roots,
		"changes":       changes,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

func name(id string) string { return "projects/p/runs/" + id }

// note is an event with a text.
func note(seq int64, text string) journal.Entry {
	return journal.Entry{Event: &agentv1.Event{Seq: seq, Actor: "system", Kind: &agentv1.Event_Info{Info: &agentv1.Info{
		Code: "note", Content: &agentv1.InfoContent{DataJson: text},
	}}}}
}

func notes(from int64, texts ...string) []journal.Entry {
	var entries []journal.Entry
	for i, text := range texts {
		entries = append(entries, note(from+int64(i), text))
	}
	return entries
}

func row() journal.Row { return journal.Row{Kind: journal.KindRun, State: 1} }

// mustCreateFree makes a journal that no replica owns.
func mustCreateFree(t *testing.T, s journal.Store, name string) {
	t.Helper()
	head, _, err := s.Create(t.Context(), journal.Creation{Name: name, Entries: notes(1, "first"), Row: row()})
	require.NoError(t, err)
	require.Empty(t, head.Owner)
}

func mustCreate(t *testing.T, s journal.Store, c journal.Creation) journal.Head {
	t.Helper()
	if c.Owner == "" {
		c.Owner = "r1"
	}
	if c.Entries == nil {
		c.Entries = notes(1, "first")
	}
	if c.Row.Kind == 0 {
		c.Row = row()
	}
	head, created, err := s.Create(t.Context(), c)
	require.NoError(t, err)
	require.True(t, created)
	return head
}

func mustAppend(t *testing.T, s journal.Store, head journal.Head, entries ...journal.Entry) journal.Head {
	t.Helper()
	require.NoError(t, s.Append(t.Context(), journal.Append{Head: head, Entries: entries}))
	head.Seq += int64(len(entries))
	return head
}

func texts(t *testing.T, s journal.Store, ref journal.Ref, r journal.Range) []string {
	t.Helper()
	events, err := s.Read(t.Context(), ref, r)
	require.NoError(t, err)
	var all []string
	for _, e := range events {
		all = append(all, e.GetInfo().GetContent().GetDataJson())
	}
	return all
}

func create(t *testing.T, s journal.Store) {
	head := mustCreate(t, s, journal.Creation{Name: name("a"), Owner: "r1", Entries: notes(1, "one", "two")})
	assert.Equal(t, journal.Head{Ref: head.Ref, Name: name("a"), Seq: 2, Epoch: 1, Owner: "r1"}, head)
	opened, err := s.Open(t.Context(), name("a"))
	require.NoError(t, err)
	assert.Equal(t, head, opened)

	events, err := s.Read(t.Context(), head.Ref, journal.Range{})
	require.NoError(t, err)
	require.Len(t, events, 2)
	for i, e := range events {
		assert.Equal(t, int64(i+1), e.GetSeq())
		assert.Equal(t, name("a"), e.GetJournal())
		assert.Equal(t, int64(1), e.GetEpoch())
	}
	_, err = s.Open(t.Context(), name("b"))
	assert.ErrorIs(t, err, journal.ErrNotFound)
	_, _, err = s.Create(t.Context(), journal.Creation{Name: name("c"), Entries: notes(2, "late"), Row: row()})
	assert.Error(t, err, "the first event has number 1")
}

func createOnce(t *testing.T, s journal.Store) {
	c := journal.Creation{Name: name("a"), Request: "p/CreateRun/key", Digest: []byte{1}}
	head := mustCreate(t, s, c)

	c.Name, c.Owner, c.Entries, c.Row = name("b"), "r1", notes(1, "again"), row()
	again, created, err := s.Create(t.Context(), c)
	require.NoError(t, err)
	assert.False(t, created)
	assert.Equal(t, head, again)
	_, err = s.Open(t.Context(), name("b"))
	require.ErrorIs(t, err, journal.ErrNotFound)

	c.Digest = []byte{2}
	_, _, err = s.Create(t.Context(), c)
	require.ErrorIs(t, err, journal.ErrReused)

	c.Digest = nil
	again, created, err = s.Create(t.Context(), c)
	require.NoError(t, err, "without a digest the key alone says what is asked for")
	assert.False(t, created)
	assert.Equal(t, head, again)
	listed, err := s.List(t.Context(), journal.Query{})
	require.NoError(t, err)
	require.Len(t, listed, 1)
	assert.Equal(t, c.Request, listed[0].Request)
}

func fence(t *testing.T, s journal.Store) {
	head := mustCreate(t, s, journal.Creation{Name: name("a")})
	head = mustAppend(t, s, head, note(2, "two"))

	behind, ahead, older := head, head, head
	behind.Seq, ahead.Seq, older.Epoch = 1, 3, 0
	for _, stale := range []journal.Head{behind, ahead, older} {
		err := s.Append(t.Context(), journal.Append{Head: stale, Entries: []journal.Entry{note(stale.Seq+1, "stale")}})
		fenced, ok := errors.AsType[*journal.FencedError](err)
		require.True(t, ok, "%v", err)
		assert.Equal(t, head, fenced.Now, "where it stands")
		require.ErrorIs(t, err, journal.ErrFenced)
	}
	assert.Equal(t, []string{"first", "two"}, texts(t, s, head.Ref, journal.Range{}))
	err := s.Append(t.Context(), journal.Append{Head: head, Entries: []journal.Entry{note(4, "gap")}})
	assert.Error(t, err, "numbers are dense")
}

func oneWinner(t *testing.T, s journal.Store) {
	head := mustCreate(t, s, journal.Creation{Name: name("a")})
	var (
		won atomic.Int32
		wg  sync.WaitGroup
	)
	for i := range 16 {
		wg.Go(func() {
			err := s.Append(t.Context(), journal.Append{Head: head, Entries: []journal.Entry{note(2, fmt.Sprint(i))}})
			if err == nil {
				won.Add(1)
			} else {
				assert.ErrorIs(t, err, journal.ErrFenced)
			}
		})
	}
	waittest.Return(t, wg.Wait, "every append to return")
	assert.Equal(t, int32(1), won.Load())
	assert.Len(t, texts(t, s, head.Ref, journal.Range{}), 2)
}

func everyKind(t *testing.T, s journal.Store) {
	for _, size := range []int{0, 5000} {
		id := fmt.Sprint("size", size)
		samples := Samples(size)
		var entries []journal.Entry
		for i, e := range samples {
			e.Seq, e.Offloaded = int64(i+1), nil // References are Offloading's.
			entries = append(entries, journal.Entry{Event: proto.CloneOf(e)})
		}
		head := mustCreate(t, s, journal.Creation{Name: name(id), Entries: entries[:1]})
		for _, e := range entries[1:] {
			head = mustAppend(t, s, head, e)
		}
		for i, e := range entries {
			require.True(t, proto.Equal(samples[i], e.Event), "appending changes no event: %T", e.Event.GetKind())
		}
		i := 0
		for got, err := range journal.All(t.Context(), s, head.Ref, 0) {
			require.NoError(t, err)
			want := samples[i]
			want.Journal, want.Epoch = name(id), 1
			assert.Empty(t, cmp.Diff(want, got, protocmp.Transform()), "%T", want.GetKind())
			i++
		}
		assert.Len(t, samples, i)
	}
}

// storedOnce adds messages that outcomes hold, in the same append and in a later one.
func storedOnce(t *testing.T, s journal.Store) {
	for _, size := range []int{10, 10_000} {
		said := strings.Repeat("word ", size)
		answer := &modelv1.ChatMessage{
			Id: "m1", Role: modelv1.Role_ROLE_ASSISTANT, Content: text(said), ToolCalls: []*toolv1.ToolCall{{Id: "c0"}, {Id: "c1", ArgumentsJson: `{"cmd": "ls"}`}},
		}
		outcome := &agentv1.Event{Seq: 2, Kind: &agentv1.Event_ModelOutcome{ModelOutcome: &agentv1.ModelOutcome{
			Intent:  1,
			Content: &agentv1.ModelOutcomeContent{Output: &modelv1.ModelOutput{Choices: []*modelv1.Choice{{Message: answer}}}},
		}}}
		result := &agentv1.Event{Seq: 4, Kind: &agentv1.Event_ToolOutcome{ToolOutcome: &agentv1.ToolOutcome{
			CallId: "c1", Function: "bash", MessageId: "m2",
			Content: &agentv1.ToolOutcomeContent{Result: &toolv1.ToolResult{CallId: "c1", Function: "bash", Content: text(said + "!")}},
		}}}
		added := func(seq int64, source *agentv1.Event) journal.Entry {
			m := journal.MessageOf(source)
			return journal.Entry{Same: source.GetSeq(), Event: &agentv1.Event{Seq: seq, Kind: &agentv1.Event_MessageAdded{MessageAdded: &agentv1.MessageAdded{
				Role: m.GetRole(), Content: m,
			}}}}
		}
		head := mustCreate(t, s, journal.Creation{Name: name(fmt.Sprint("n", size))})
		head = mustAppend(t, s, head, journal.Entry{Event: outcome}, added(3, outcome))
		head = mustAppend(t, s, head, journal.Entry{Event: result})
		head = mustAppend(t, s, head, added(5, result))
		head = mustAppend(t, s, head, journal.Entry{Same: 2, Event: &agentv1.Event{Seq: 6, Kind: &agentv1.Event_ToolIntent{ToolIntent: &agentv1.ToolIntent{
			CallId: "c1", Content: answer.GetToolCalls()[1],
		}}}})

		whole, err := s.Read(t.Context(), head.Ref, journal.Range{})
		require.NoError(t, err)
		tail, err := s.Read(t.Context(), head.Ref, journal.Range{After: 4})
		require.NoError(t, err)
		assert.Empty(t, cmp.Diff(answer, whole[2].GetMessageAdded().GetContent(), protocmp.Transform()))
		assert.Empty(t, cmp.Diff(answer.GetToolCalls()[1], whole[5].GetToolIntent().GetContent(), protocmp.Transform()))
		for _, e := range []*agentv1.Event{whole[4], tail[0]} {
			m := e.GetMessageAdded().GetContent()
			assert.Equal(t, "m2", m.GetId())
			assert.Equal(t, said+"!", m.GetContent().GetText())
			assert.Equal(t, []string{"c1"}, m.GetToolCallIds())
		}
		bare, err := s.Read(t.Context(), head.Ref, journal.Range{Bare: true})
		require.NoError(t, err)
		assert.Nil(t, bare[2].GetMessageAdded().GetContent())
		assert.Equal(t, modelv1.Role_ROLE_ASSISTANT, bare[2].GetMessageAdded().GetRole())
	}
}

func text(s string) *contentv1.MessageContent {
	return &contentv1.MessageContent{Form: &contentv1.MessageContent_Text{Text: s}}
}

func ranges(t *testing.T, s journal.Store) {
	head := mustCreate(t, s, journal.Creation{Name: name("a"), Entries: notes(1, "1", "2", "3", "4", "5")})
	assert.Equal(t, []string{"3", "4"}, texts(t, s, head.Ref, journal.Range{After: 2, Limit: 2}))
	assert.Empty(t, texts(t, s, head.Ref, journal.Range{After: 5}))

	var got []string
	for e, err := range journal.All(t.Context(), s, head.Ref, 1) {
		require.NoError(t, err)
		got = append(got, e.GetInfo().GetContent().GetDataJson())
	}
	assert.Equal(t, []string{"2", "3", "4", "5"}, got)
	assert.Len(t, texts(t, s, head.Ref, journal.Range{Bytes: 1}), 1, "one event always fits")

	even := strings.Repeat("x", 1<<20)
	head = mustCreate(t, s, journal.Creation{Name: name("even"), Entries: notes(1, even, even, even)})
	assert.Len(t, texts(t, s, head.Ref, journal.Range{Bytes: 1<<20 + 1<<10}), 1, "an event weighs what it is, not what it is stored in")
}

func wake(t *testing.T, s journal.Store) {
	eval := "projects/p/evals/e"
	run, parent := s.Subscribe(name("a")), s.Subscribe(eval)
	defer run.Close()
	defer parent.Close()
	r := row()
	r.Parent = eval
	head := mustCreate(t, s, journal.Creation{Name: name("a"), Row: r})
	waittest.For(t, run.C, "the wake of who follows the run, when it is created")
	waittest.For(t, parent.C, "the wake of who follows the parent, when a run is created")

	head = mustAppend(t, s, head, note(2, "two"))
	waittest.For(t, run.C, "the wake of who follows the run, when it grows")
	select {
	case <-parent.C:
		t.Error("the row did not change")
	default:
	}
	require.NoError(t, s.Append(t.Context(), journal.Append{Head: head, Entries: notes(3, "three"), Row: &r}))
	waittest.For(t, run.C, "the wake of who follows the run, when its row changes")
	waittest.For(t, parent.C, "the wake of who follows the parent, when a run's row changes")
	run.Close()
	head.Seq = 3
	mustAppend(t, s, head, note(4, "four"))
	select {
	case <-run.C:
		t.Error("closed")
	default:
	}
}

func resume(t *testing.T, s journal.Store) {
	var heads []journal.Head
	for i := range 5 {
		heads = append(heads, mustCreate(t, s, journal.Creation{Name: name(fmt.Sprint("n", i))}))
	}
	done := row()
	done.Done = true
	require.NoError(t, s.Append(t.Context(), journal.Append{Head: heads[2], Entries: notes(2, "end"), Row: &done}))

	mustCreate(t, s, journal.Creation{Name: name("other"), Owner: "r2"})
	waits := row()
	waits.Waiting = true
	require.NoError(t, s.Append(t.Context(), journal.Append{Head: heads[3], Entries: notes(2, "waits"), Row: &waits}))
	require.NoError(t, s.Post(t.Context(), name("n4"), journal.Command{ID: "k"}))
	require.NoError(t, s.Post(t.Context(), name("other"), journal.Command{ID: "k"}))

	newest, err := s.Resume(t.Context(), "r1")
	require.NoError(t, err)
	later := mustCreate(t, s, journal.Creation{Name: name("later"), Owner: "r1"})
	assert.Greater(t, later.Ref, newest)
	listed := func(waiting *bool) (names []string) {
		for q := (journal.Query{Owner: "r1", Waiting: waiting, Before: newest + 1, Limit: 2}); ; {
			page, err := s.List(t.Context(), q)
			require.NoError(t, err)
			for _, l := range page {
				assert.Equal(t, int64(2), l.Epoch)
				assert.Equal(t, "r1", l.Owner)
				names, q.Before = append(names, l.Name), l.Ref
			}
			if len(page) == 0 {
				return names
			}
		}
	}
	assert.Equal(t, []string{name("n4"), name("n3"), name("n1"), name("n0")}, listed(nil), "what is done, new or another's is left alone")
	assert.Equal(t, []string{name("n4"), name("n1"), name("n0")}, listed(new(false)))
	assert.Equal(t, []string{name("n3")}, listed(new(true)))
	open, err := s.List(t.Context(), journal.Query{Open: true, Parent: row().Parent, Limit: 3})
	require.NoError(t, err)
	require.Len(t, open, 3)
	assert.Equal(t, []string{name("n0"), name("n1"), name("n3")}, []string{open[0].Name, open[1].Name, open[2].Name}, "what is open, the oldest first")
	owned, err := s.Owned(t.Context(), "r1")
	require.NoError(t, err)
	assert.Equal(t, []journal.Ref{heads[0].Ref, heads[1].Ref, heads[3].Ref, heads[4].Ref, later.Ref}, owned)
	none, err := s.Owned(t.Context(), "r3")
	require.NoError(t, err)
	assert.Empty(t, none)
	some, err := s.List(t.Context(), journal.Query{Refs: []journal.Ref{heads[1].Ref, later.Ref}})
	require.NoError(t, err)
	require.Len(t, some, 2)
	assert.Equal(t, []string{name("later"), name("n1")}, []string{some[0].Name, some[1].Name})
	mail, err := s.Mail(t.Context(), "r1")
	require.NoError(t, err)
	require.Len(t, mail, 1)
	assert.Equal(t, name("n4"), mail[0].Name)
	require.NoError(t, s.Post(t.Context(), name("n4"), journal.Command{ID: "k2"}))
	more, err := s.Mail(t.Context(), "r1")
	require.NoError(t, err)
	require.Len(t, more, 1)
	assert.Greater(t, more[0].Newest, mail[0].Newest, "a newer command")

	err = s.Append(t.Context(), journal.Append{Head: heads[0], Entries: notes(2, "zombie")})
	require.ErrorIs(t, err, journal.ErrFenced)
	renewed := heads[0]
	renewed.Epoch = 2
	mustAppend(t, s, renewed, note(2, "owner"))
}

func claim(t *testing.T, s journal.Store) {
	mustCreate(t, s, journal.Creation{Name: name("of-dead"), Owner: "dead"})
	mustCreateFree(t, s, name("of-"))
	for _, owner := range []string{"alive", "unheard-of", "r2"} {
		mustCreate(t, s, journal.Creation{Name: name("of-" + owner), Owner: owner})
	}
	over := row()
	over.Done = true
	mustCreate(t, s, journal.Creation{Name: name("over"), Owner: "dead", Row: over})
	load := func() map[string]int {
		t.Helper()
		load, err := s.Load(t.Context())
		require.NoError(t, err)
		return load
	}
	assert.Equal(t, map[string]int{"dead": 1, "": 1, "alive": 1, "unheard-of": 1, "r2": 1}, load(), "what is done is no load")
	take := func(replica string, limit int) (got []string) {
		t.Helper()
		claimed, err := s.Claim(t.Context(), journal.Claim{Replica: replica, Living: []string{"alive", "r2", "r3"}, Limit: limit})
		require.NoError(t, err)
		for _, l := range claimed {
			assert.Equal(t, replica, l.Owner)
			assert.EqualValues(t, 2, l.Epoch)
			assert.Equal(t, name("of-"+l.Before), l.Name)
			assert.Equal(t, journal.KindRun, l.Kind, "with its row")
			got = append(got, l.Before)
		}
		return got
	}
	assert.Equal(t, []string{"dead", ""}, take("r2", 2), "the oldest, no more than asked for")
	assert.Equal(t, []string{"unheard-of"}, take("r3", 2))
	assert.Empty(t, take("r2", 2))
	assert.Equal(t, map[string]int{"alive": 1, "r2": 3, "r3": 1}, load())
}

// claimsAtOnce: concurrent claims get different journals, and together all of them.
func claimsAtOnce(t *testing.T, s journal.Store) {
	const journals, replicas, limit = 30, 3, 4
	for i := range journals {
		mustCreateFree(t, s, name(fmt.Sprint("n", i)))
	}
	claimed := make(chan journal.Listed, journals*replicas)
	var working sync.WaitGroup
	for i := range replicas {
		working.Go(func() {
			for {
				page, err := s.Claim(t.Context(), journal.Claim{Replica: fmt.Sprint("r", i), Living: []string{"r0", "r1", "r2"}, Limit: limit})
				if !assert.NoError(t, err) || len(page) == 0 {
					return
				}
				for _, l := range page {
					claimed <- l
				}
			}
		})
	}
	working.Wait()
	close(claimed)
	owners := map[string]string{}
	for l := range claimed {
		assert.Empty(t, owners[l.Name], l.Name)
		owners[l.Name] = l.Owner
	}
	assert.Len(t, owners, journals)
}

func takes(t *testing.T, s journal.Store) {
	head := mustCreate(t, s, journal.Creation{Name: name("a"), Owner: "r1"})
	taken, err := s.Take(t.Context(), head, "r2", 0)
	require.NoError(t, err)
	assert.Equal(t, journal.Head{Ref: head.Ref, Name: head.Name, Seq: head.Seq, Epoch: 2, Owner: "r2"}, taken)
	_, err = s.Take(t.Context(), head, "r3", 0)
	fenced, ok := errors.AsType[*journal.FencedError](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, taken, fenced.Now, "another was faster")
	require.ErrorIs(t, s.Append(t.Context(), journal.Append{Head: head, Entries: notes(2, "zombie")}), journal.ErrFenced)

	taken, err = s.Take(t.Context(), taken, "r2", 41)
	require.NoError(t, err)
	assert.EqualValues(t, 42, taken.Epoch, "above that of another store")
	over := row()
	over.Done = true
	require.NoError(t, s.Append(t.Context(), journal.Append{Head: taken, Entries: notes(2, "end"), Row: &over}))
	taken, err = s.Take(t.Context(), taken, "r3", 7)
	require.NoError(t, err, "one that is done too")
	assert.EqualValues(t, 43, taken.Epoch)
	require.NoError(t, s.Delete(t.Context(), head.Name))
	_, err = s.Take(t.Context(), taken, "r3", 0)
	require.ErrorIs(t, err, journal.ErrFenced)
}

func inbox(t *testing.T, s journal.Store) {
	head := mustCreate(t, s, journal.Creation{Name: name("a")})
	post := func(id, body string) error {
		return s.Post(t.Context(), name("a"), journal.Command{ID: id, Body: []byte(body)})
	}
	require.NoError(t, post("k2", "two"))
	require.NoError(t, post("k1", "one"))
	require.NoError(t, post("k2", "two"), "the same command")
	require.ErrorIs(t, post("k2", "other"), journal.ErrReused)
	require.ErrorIs(t, s.Post(t.Context(), name("b"), journal.Command{ID: "k"}), journal.ErrNotFound)

	pending, err := s.Pending(t.Context(), head.Ref)
	require.NoError(t, err)
	assert.Equal(t, []journal.Command{{ID: "k2", Body: []byte("two")}, {ID: "k1", Body: []byte("one")}}, pending, "in the order of arrival")

	require.NoError(t, s.Append(t.Context(), journal.Append{Head: head, Entries: notes(2, "got k2"), Took: []string{"k2"}}))
	pending, err = s.Pending(t.Context(), head.Ref)
	require.NoError(t, err)
	assert.Len(t, pending, 1)
	require.NoError(t, post("k2", "two"), "still the same command")
	for id, want := range map[string]int64{"k1": 0, "k2": 2} {
		seq, err := s.Taken(t.Context(), name("a"), id)
		require.NoError(t, err)
		assert.Equal(t, want, seq)
	}
	_, err = s.Taken(t.Context(), name("a"), "k3")
	assert.ErrorIs(t, err, journal.ErrNotFound)
}

func listed(t *testing.T, s journal.Store, q journal.Query) []string {
	t.Helper()
	all, err := s.List(t.Context(), q)
	require.NoError(t, err)
	var names []string
	for _, l := range all {
		names = append(names, l.Name[strings.LastIndexByte(l.Name, '/')+1:])
	}
	return names
}

func list(t *testing.T, s journal.Store) {
	eval := "projects/p/evals/e"
	refs := map[string]journal.Ref{}
	for _, c := range []struct {
		name string
		row  journal.Row
	}{
		{name: name("a"), row: journal.Row{Kind: journal.KindRun, State: 1, Parent: eval}},
		{name: name("b"), row: journal.Row{Kind: journal.KindRun, State: 2, Parent: eval, View: []byte("seen")}},
		{name: eval, row: journal.Row{Kind: journal.KindEval, State: 2}},
		{name: "projects/q/runs/c", row: journal.Row{Kind: journal.KindRun, State: 2}},
		{name: name("d"), row: journal.Row{Kind: journal.KindRun, State: 3, Waiting: true, Wake: time.UnixMilli(5004).UTC()}},
	} {
		refs[c.name] = mustCreate(t, s, journal.Creation{Name: c.name, Row: c.row}).Ref
	}
	assert.Equal(t, []string{"d", "c", "e", "b", "a"}, listed(t, s, journal.Query{}))
	assert.Equal(t, []string{"d", "b", "a"}, listed(t, s, journal.Query{Project: "p", Kind: journal.KindRun}))
	assert.Equal(t, []string{"d", "b"}, listed(t, s, journal.Query{Project: "p", Kind: journal.KindRun, States: []int32{2, 3}}))
	assert.Equal(t, []string{"b", "a"}, listed(t, s, journal.Query{Parent: eval}))
	assert.Equal(t, []string{"d", "c"}, listed(t, s, journal.Query{Limit: 2}))
	assert.Equal(t, []string{"b", "a"}, listed(t, s, journal.Query{Before: refs[eval]}))

	all, err := s.List(t.Context(), journal.Query{Project: "p", Kind: journal.KindRun})
	require.NoError(t, err)
	assert.Equal(t, time.UnixMilli(5004).UTC(), all[0].Wake)
	assert.True(t, all[0].Waiting)
	assert.False(t, all[0].Done)
	assert.Equal(t, []byte("seen"), all[1].View)
	assert.Equal(t, eval, all[1].Parent)
	assert.Equal(t, int64(1), all[1].Seq)
}

func listLabels(t *testing.T, s journal.Store) {
	labelled := func(labels map[string]string) journal.Row {
		r := row()
		r.Labels = labels
		return r
	}
	mustCreate(t, s, journal.Creation{Name: name("a"), Row: labelled(map[string]string{"team": "x", "kind": "1"})})
	mustCreate(t, s, journal.Creation{Name: name("b"), Row: labelled(map[string]string{"team": "x", "kind": "2"})})
	mustCreate(t, s, journal.Creation{Name: name("c")})
	assert.Equal(t, []string{"b", "a"}, listed(t, s, journal.Query{Labels: map[string]string{"team": "x"}}))
	assert.Equal(t, []string{"a"}, listed(t, s, journal.Query{Labels: map[string]string{"team": "x", "kind": "1"}}))
	assert.Empty(t, listed(t, s, journal.Query{Labels: map[string]string{"team": "y"}}))
}

func waiting(reason string, since int64) journal.Row {
	return journal.Row{
		Kind: journal.KindRun, State: 3, Parent: "projects/p/evals/e", Waiting: true, WaitReason: reason, WaitSince: time.UnixMilli(since).UTC(), View: fmt.Append(nil, reason, since),
	}
}

func listWaits(t *testing.T, s journal.Store) {
	mustCreate(t, s, journal.Creation{Name: name("a"), Row: waiting("worker", 7)})
	mustCreate(t, s, journal.Creation{Name: name("b"), Row: waiting("quota", 8)})
	mustCreate(t, s, journal.Creation{Name: name("c")})
	all, err := s.List(t.Context(), journal.Query{WaitReason: "worker"})
	require.NoError(t, err)
	require.Len(t, all, 1)
	assert.Equal(t, name("a"), all[0].Name)
	assert.Equal(t, "worker", all[0].WaitReason)
	assert.Equal(t, time.UnixMilli(7).UTC(), all[0].WaitSince)
}

func waits(t *testing.T, s journal.Store) {
	const many = 1500 // more than a list gives at once
	for i := range int64(many) {
		mustCreate(t, s, journal.Creation{Name: name(fmt.Sprint("w", i)), Row: waiting("worker", 10+(i+many/2)%many)})
	}
	quota := mustCreate(t, s, journal.Creation{Name: name("q"), Row: waiting("quota", 3)})
	over := mustCreate(t, s, journal.Creation{Name: name("over"), Row: waiting("worker", 1)})
	other := waiting("worker", 2)
	other.Parent = "projects/p/evals/other"
	mustCreate(t, s, journal.Creation{Name: name("other"), Row: other})
	r := row()
	require.NoError(t, s.Append(t.Context(), journal.Append{Head: over, Entries: notes(2, "two"), Row: &r}))

	got, err := s.Waits(t.Context(), "projects/p/evals/e")
	require.NoError(t, err)
	assert.Equal(t, []journal.Wait{{Reason: "quota", Count: 1, View: []byte("quota3")}, {Reason: "worker", Count: many, View: []byte("worker10")}}, got)
	require.NoError(t, s.Append(t.Context(), journal.Append{Head: quota, Entries: notes(2, "two"), Row: &r}))
	got, err = s.Waits(t.Context(), "projects/p/evals/none")
	require.NoError(t, err)
	assert.Empty(t, got)
}

// letters are durable with the append that sends them, and never without it.
func letters(t *testing.T, s journal.Store) {
	const eval = "projects/p/evals/e"
	parent := mustCreate(t, s, journal.Creation{Name: eval})
	child := mustCreate(t, s, journal.Creation{Name: name("a"), Row: journal.Row{Kind: journal.KindRun, Parent: eval}})
	woken := s.Subscribe(eval)
	defer woken.Close()
	pending := func() []journal.Command {
		t.Helper()
		all, err := s.Pending(t.Context(), parent.Ref)
		require.NoError(t, err)
		return all
	}
	tell := []journal.Letter{journal.Ended(eval, child.Ref), {To: name("none"), Command: journal.Command{ID: "k"}}}
	stale := child
	stale.Epoch++
	require.ErrorIs(t, s.Append(t.Context(), journal.Append{Head: stale, Entries: notes(2, "stale"), Tell: tell}), journal.ErrFenced)
	assert.Empty(t, pending())
	require.NoError(t, s.Append(t.Context(), journal.Append{Head: child, Entries: notes(2, "end"), Tell: tell}), "a letter to none is dropped")
	<-woken.C
	got := pending()
	require.Len(t, got, 1)
	ref, is := journal.HasEnded(got[0])
	assert.True(t, is)
	assert.Equal(t, child.Ref, ref)
	_, is = journal.HasEnded(journal.Command{ID: "c", Body: []byte(`{"type":"cancel"}`)})
	assert.False(t, is)

	child.Seq = 2
	require.NoError(t, s.Append(t.Context(), journal.Append{Head: child, Entries: notes(3, "again"), Tell: tell[:1]}))
	assert.Len(t, pending(), 1, "the same letter")
	require.NoError(t, s.Append(t.Context(), journal.Append{Head: parent, Entries: notes(2, "read"), Took: []string{got[0].ID}}))
	assert.Empty(t, pending())
}

// changedAfter lists the changes in project p after a change, and the newest.
func changedAfter(t *testing.T, s journal.Store, q journal.ChangeQuery) (names []string, last, newest journal.Change) {
	t.Helper()
	q.Project = "p"
	rows, newest, err := s.Changed(t.Context(), q)
	require.NoError(t, err)
	last = q.After
	for _, row := range rows {
		assert.Greater(t, row.Change, last, "in order")
		last = row.Change
		names = append(names, strings.TrimPrefix(row.Name, "projects/p/"))
	}
	assert.LessOrEqual(t, last, newest)
	return names, last, newest
}

// A journal's position is that of the last change of its state or its wait.
func changes(t *testing.T, s journal.Store) {
	_, _, before := changedAfter(t, s, journal.ChangeQuery{})
	project := s.Subscribe("projects/p")
	defer project.Close()
	eval := row()
	eval.Kind = journal.KindEval
	mustCreate(t, s, journal.Creation{Name: "projects/p/evals/e", Row: eval})
	waittest.For(t, project.C, "the wake of who follows the project, when an evaluation is made")
	sample := row()
	sample.Parent = "projects/p/evals/e"
	a := mustCreate(t, s, journal.Creation{Name: name("a"), Row: sample})
	b := mustCreate(t, s, journal.Creation{Name: name("b")})
	mustCreate(t, s, journal.Creation{Name: "projects/other/runs/c"})
	waittest.For(t, project.C, "the wake of who follows the project, when runs are made")
	names, last, newest := changedAfter(t, s, journal.ChangeQuery{After: before})
	assert.Equal(t, []string{"evals/e", "runs/a", "runs/b"}, names)
	assert.Greater(t, newest, last, "another project changed later")
	names, _, _ = changedAfter(t, s, journal.ChangeQuery{Roots: true})
	assert.Equal(t, []string{"evals/e", "runs/b"}, names)
	names, first, _ := changedAfter(t, s, journal.ChangeQuery{Limit: 1})
	assert.Equal(t, []string{"evals/e"}, names)
	names, _, _ = changedAfter(t, s, journal.ChangeQuery{After: first, Bytes: 1})
	assert.Equal(t, []string{"runs/a", "runs/b"}, names, "views that are empty need no space")

	a = mustAppend(t, s, a, note(2, "no row"))
	require.NoError(t, s.Append(t.Context(), journal.Append{Head: a, Entries: notes(3, "the same state"), Row: &sample}))
	a.Seq = 3
	select {
	case <-project.C:
		t.Error("no state changed")
	default:
	}
	names, _, same := changedAfter(t, s, journal.ChangeQuery{After: newest})
	assert.Empty(t, names)
	assert.Equal(t, newest, same)
	sample.Waiting, sample.WaitReason = true, "approval"
	require.NoError(t, s.Append(t.Context(), journal.Append{Head: a, Entries: notes(4, "it waits"), Row: &sample}))
	waittest.For(t, project.C, "the wake of who follows the project, when a run waits")
	done := doneRow()
	done.State, done.View = 5, []byte("view")
	require.NoError(t, s.Append(t.Context(), journal.Append{Head: b, Entries: notes(b.Seq+1, "it ends"), Row: &done}))
	names, last, newest = changedAfter(t, s, journal.ChangeQuery{After: newest})
	assert.Equal(t, []string{"runs/a", "runs/b"}, names)
	assert.Equal(t, newest, last)

	require.NoError(t, s.Delete(t.Context(), name("b")))
	purgeAll(t, s)
	mustCreate(t, s, journal.Creation{Name: name("d")})
	names, _, _ = changedAfter(t, s, journal.ChangeQuery{After: newest})
	assert.Equal(t, []string{"runs/d"}, names, "a number is not used again")
}

func rowIsAtomic(t *testing.T, s journal.Store) {
	head := mustCreate(t, s, journal.Creation{Name: name("a")})
	stale := head
	stale.Epoch = 9
	r := row()
	r.State = 9
	require.ErrorIs(t, s.Append(t.Context(), journal.Append{Head: stale, Entries: notes(2, "x"), Row: &r}), journal.ErrFenced)
	all, err := s.List(t.Context(), journal.Query{})
	require.NoError(t, err)
	assert.Equal(t, int32(1), all[0].State)
}

func doneRow() journal.Row {
	r := row()
	r.Done = true
	return r
}

func deletes(t *testing.T, s journal.Store) {
	large := strings.Repeat("a large content ", 1000)
	open := mustCreate(t, s, journal.Creation{Name: name("open"), Entries: notes(1, large)})
	_, err := s.Purge(t.Context())
	require.NoError(t, err)
	require.ErrorIs(t, s.Delete(t.Context(), name("none")), journal.ErrNotFound)
	require.ErrorIs(t, s.Delete(t.Context(), name("open")), journal.ErrOpen)

	gone := mustCreate(t, s, journal.Creation{
		Name: name("gone"), Row: journal.Row{Kind: journal.KindRun, Done: true, Labels: map[string]string{"a": "b"}}, Entries: notes(1, large, "own"),
		Request: "p/request", Digest: []byte("d"),
	})
	require.NoError(t, s.Post(t.Context(), name("gone"), journal.Command{ID: "k"}))
	require.NoError(t, s.Delete(t.Context(), name("gone")))
	_, err = s.Open(t.Context(), name("gone"))
	require.ErrorIs(t, err, journal.ErrNotFound)
	_, err = s.Read(t.Context(), gone.Ref, journal.Range{})
	require.ErrorIs(t, err, journal.ErrNotFound)
	require.ErrorIs(t, s.Delete(t.Context(), name("gone")), journal.ErrNotFound)
	require.ErrorIs(t, s.Post(t.Context(), name("gone"), journal.Command{ID: "l"}), journal.ErrNotFound)
	err = s.Append(t.Context(), journal.Append{Head: gone, Entries: notes(3, "late")})
	fenced, ok := errors.AsType[*journal.FencedError](err)
	require.True(t, ok, "%v", err)
	assert.Zero(t, fenced.Now, "there is none")
	all, err := s.List(t.Context(), journal.Query{})
	require.NoError(t, err)
	require.Len(t, all, 1)
	all, err = s.List(t.Context(), journal.Query{Labels: map[string]string{"a": "b"}})
	require.NoError(t, err)
	assert.Empty(t, all)

	unreleased, err := s.Unreleased(t.Context(), 0, 10)
	require.NoError(t, err)
	require.Len(t, unreleased, 1, "what others keep of it is to be released")
	assert.Equal(t, journal.Unreleased{Ref: gone.Ref, Name: name("gone"), At: unreleased[0].At}, unreleased[0])
	assert.WithinDuration(t, time.Now(), unreleased[0].At, time.Hour)

	purgeAll(t, s)
	left := heldBy(t, s)
	assert.Contains(t, left, "a large content", "another journal has it too")
	assert.NotContains(t, left, "own")
	require.NoError(t, s.Append(t.Context(), journal.Append{Head: open, Entries: notes(2, "more"), Row: new(doneRow())}))
	events, err := s.Read(t.Context(), open.Ref, journal.Range{})
	require.NoError(t, err)
	assert.Equal(t, large, events[0].GetInfo().GetContent().GetDataJson())

	later, created, err := s.Create(t.Context(), journal.Creation{Name: name("later"), Owner: "r1", Entries: notes(1, "x"), Row: doneRow(), Request: "p/request", Digest: []byte("other")})
	require.NoError(t, err)
	assert.True(t, created, "the request is forgotten")
	assert.Greater(t, later.Ref, gone.Ref, "no number is given twice")
	require.NoError(t, s.Delete(t.Context(), name("open")))
	purgeAll(t, s)
	assert.NotContains(t, heldBy(t, s), "a large content")
}

func deletesChildren(t *testing.T, s journal.Store) {
	const eval, children = "projects/p/evals/e", 250
	mustCreate(t, s, journal.Creation{Name: eval, Row: journal.Row{Kind: journal.KindEval, Done: true}})
	var last journal.Head
	for i := range children {
		last = mustCreate(t, s, journal.Creation{Name: name(fmt.Sprint("c", i)), Row: journal.Row{Kind: journal.KindRun, Parent: eval, Done: i < children-1}})
	}
	other := mustCreate(t, s, journal.Creation{Name: name("other"), Row: doneRow()})
	require.ErrorIs(t, s.Delete(t.Context(), name("c0")), journal.ErrPart)
	err := s.Delete(t.Context(), eval)
	require.ErrorIs(t, err, journal.ErrOpen)
	require.ErrorContains(t, err, last.Name)
	require.NoError(t, s.Append(t.Context(), journal.Append{Head: last, Entries: notes(2, "end"), Row: &journal.Row{Kind: journal.KindRun, Parent: eval, Done: true}}))
	require.NoError(t, s.Delete(t.Context(), eval))
	_, err = s.Open(t.Context(), eval)
	require.ErrorIs(t, err, journal.ErrNotFound, "at once, before its runs are gone")
	purgeAll(t, s)
	all, err := s.List(t.Context(), journal.Query{Limit: children})
	require.NoError(t, err)
	require.Len(t, all, 1)
	assert.Equal(t, other.Name, all[0].Name)

	first, err := s.Unreleased(t.Context(), 0, 200)
	require.NoError(t, err)
	require.Len(t, first, 200, "the runs, without the evaluation")
	rest, err := s.Unreleased(t.Context(), first[199].Ref, 200)
	require.NoError(t, err)
	require.Len(t, rest, children-200)
	require.NoError(t, s.Released(t.Context(), first[0].Ref, 1<<40))
	left, err := s.Unreleased(t.Context(), 0, 1000)
	require.NoError(t, err)
	assert.Len(t, left, children-1)
}

func roots(t *testing.T, s journal.Store) {
	for _, id := range []string{"a", "b", "c"} {
		mustCreate(t, s, journal.Creation{Name: name(id)})
	}
	mustCreate(t, s, journal.Creation{Name: name("child"), Row: journal.Row{Kind: journal.KindRun, Parent: "projects/p/evals/e"}})
	mustCreate(t, s, journal.Creation{Name: "projects/q/runs/d"})
	mustCreate(t, s, journal.Creation{Name: "projects/p/evals/e", Row: journal.Row{Kind: journal.KindEval}})
	var got []string
	for q := (journal.Query{Kind: journal.KindRun, Roots: true, Limit: 2}); ; {
		page, err := s.List(t.Context(), q)
		require.NoError(t, err)
		for _, l := range page {
			got, q.After = append(got, l.Name), l.Ref
		}
		if len(page) == 0 {
			break
		}
	}
	assert.Equal(t, []string{name("a"), name("b"), name("c"), "projects/q/runs/d"}, got)
}

func purgeAll(t *testing.T, s journal.Store) {
	t.Helper()
	for more := true; more; {
		var err error
		more, err = s.Purge(t.Context())
		require.NoError(t, err)
	}
}

func heldBy(t *testing.T, s journal.Store) string {
	t.Helper()
	var all strings.Builder
	write := func(text []byte) error { _, _ = all.Write(text); return nil }
	place, err := s.Texts(t.Context(), journal.Place{}, write)
	require.NoError(t, err)
	before := all.Len()
	again, err := s.Texts(t.Context(), place, write)
	require.NoError(t, err)
	assert.Equal(t, place, again)
	assert.Equal(t, before, all.Len(), "nothing came since")
	return all.String()
}
