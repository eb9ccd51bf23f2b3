package retention

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/evalfleet/evalfleet/pkg/blob"
	"github.com/evalfleet/evalfleet/pkg/blob/disk"
	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/effect"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/sqlite"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/inbox"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	journalsqlite "github.com/evalfleet/evalfleet/services/agentorch/internal/journal/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a keeper over real stores.
type rig struct {
	t      *testing.T
	store  journal.Store
	bodies *disk.Store
	dir    string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "r.db"), sqlite.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	r := &rig{t: t, dir: t.TempDir()}
	r.store, err = journalsqlite.Open(t.Context(), db, nil)
	require.NoError(t, err)
	r.bodies, err = disk.Open(disk.Config{Dir: r.dir})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.bodies.Close()) })
	return r
}

// over is a keeper's rig with a database of its own over the bodies of another.
func (r *rig) over() *rig {
	other := newRig(r.t)
	other.bodies, other.dir = r.bodies, r.dir
	return other
}

// enrol has a process of the rig's database start.
func (r *rig) enrol(own bool) *Keeper {
	r.t.Helper()
	k := New(Config{Bodies: 24 * time.Hour}, Deps{Journals: r.store, Bodies: r.bodies, OwnBodies: own, Logger: slog.New(slog.DiscardHandler)})
	_, err := k.ownsAllBodies(r.t.Context())
	require.NoError(r.t, err)
	return k
}

func (r *rig) keeper(cfg Config) *Keeper {
	return New(cfg, Deps{Journals: r.store, Bodies: r.bodies, Logger: slog.New(slog.DiscardHandler)})
}

func (r *rig) make(name, parent, text string, kind journal.Kind, created, ended time.Time) {
	r.t.Helper()
	var end *timestamppb.Timestamp
	if !ended.IsZero() {
		end = timestamppb.New(ended)
	}
	view := proto.Message(&agentv1.Run{CreateTime: timestamppb.New(created), EndTime: end})
	if kind == journal.KindEval {
		view = &agentv1.Eval{CreateTime: timestamppb.New(created), EndTime: end}
	}
	b, err := proto.Marshal(view)
	require.NoError(r.t, err)
	_, _, err = r.store.Create(r.t.Context(), journal.Creation{
		Name: name, Owner: "r", Row: journal.Row{Kind: kind, Parent: parent, Done: !ended.IsZero(), View: b},
		Entries: []journal.Entry{{Event: &agentv1.Event{Seq: 1, Kind: &agentv1.Event_Info{Info: &agentv1.Info{Content: &agentv1.InfoContent{DataJson: text}}}}}},
	})
	require.NoError(r.t, err)
}

func (r *rig) names() []string {
	r.t.Helper()
	all, err := r.store.List(r.t.Context(), journal.Query{})
	require.NoError(r.t, err)
	var names []string
	for _, l := range all {
		names = append(names, strings.TrimPrefix(l.Name, "projects/p/"))
	}
	return names
}

func TestWhatHasReachedItsAgeIsDeleted(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ago := func(hours int) time.Time { return now.Add(-time.Duration(hours) * time.Hour) }
	for _, test := range []struct {
		cfg  Config
		want []string
	}{
		{Config{}, []string{"runs/new", "runs/late", "runs/part", "evals/old", "runs/open", "runs/old"}},
		{Config{Runs: 10 * time.Hour}, []string{"runs/new", "runs/late", "runs/part", "evals/old", "runs/open"}},
		{Config{Evals: 10 * time.Hour}, []string{"runs/new", "runs/late", "runs/open", "runs/old"}},
	} {
		r := newRig(t)
		r.make("projects/p/runs/old", "", "", journal.KindRun, ago(30), ago(20))
		r.make("projects/p/runs/open", "", "", journal.KindRun, ago(30), time.Time{})
		r.make("projects/p/evals/old", "", "", journal.KindEval, ago(30), ago(20))
		r.make("projects/p/runs/part", "projects/p/evals/old", "", journal.KindRun, ago(30), ago(29))
		r.make("projects/p/runs/late", "", "", journal.KindRun, ago(29), ago(1))
		r.make("projects/p/runs/new", "", "", journal.KindRun, ago(2), ago(1))
		k := r.keeper(test.cfg)
		require.NoError(t, k.Expire(t.Context(), now))
		_, err := k.purge(t.Context())
		require.NoError(t, err)
		assert.Equal(t, test.want, r.names(), "%+v", test.cfg)
	}
}

func (r *rig) put(text, mediaType string) string {
	r.t.Helper()
	ref, err := r.bodies.Put(r.t.Context(), "p", strings.NewReader(text), mediaType)
	require.NoError(r.t, err)
	return ref.Hash
}

// age makes all bodies look unused for that long.
func (r *rig) age(by time.Duration) {
	r.t.Helper()
	then := time.Now().Add(-by)
	require.NoError(r.t, filepath.WalkDir(r.dir, func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			err = os.Chtimes(name, then, then)
		}
		return err
	}))
}

func (r *rig) has(hash string) bool {
	_, err := r.bodies.Stat(r.t.Context(), "p", hash)
	return err == nil
}

func TestBodiesThatNothingNamesAreSwept(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.enrol(false)
	now := time.Now()
	picture, lost, read := r.put("a picture", "image/png"), r.put("lost", ""), r.put("read", "")
	samples := r.put(strings.Repeat("x", chunk-20)+picture+" and more", "")
	dataset := r.put("a dataset", "text/csv")
	r.age(48 * time.Hour)
	fresh := r.put("just uploaded", "")
	body, _, err := r.bodies.Get(t.Context(), "p", read, 0, 1)
	require.NoError(t, err)
	require.NoError(t, body.Close())
	r.make("projects/p/evals/e", "", "samples "+samples, journal.KindEval, now, now)
	r.make("projects/p/runs/r", "", strings.Repeat("a large content ", 1000)+dataset, journal.KindRun, now, now)

	k := r.keeper(Config{Bodies: 24 * time.Hour})
	require.NoError(t, k.Sweep(t.Context(), now))
	for hash, why := range map[string]string{
		samples: "a journal names it", picture: "a body that is kept names it, over two chunks", dataset: "a large content names it", fresh: "it is new", read: "it was read",
	} {
		assert.True(t, r.has(hash), why)
	}
	assert.False(t, r.has(lost))

	require.NoError(t, k.Delete(t.Context(), "projects/p/evals/e"))
	require.NoError(t, k.Delete(t.Context(), "projects/p/runs/r"))
	_, err = k.purge(t.Context())
	require.NoError(t, err)
	r.age(48 * time.Hour)
	require.NoError(t, r.keeper(Config{}).Sweep(t.Context(), now))
	assert.True(t, r.has(samples), "without an age all are kept")
	require.NoError(t, k.Sweep(t.Context(), now))
	for _, hash := range []string{samples, picture, dataset, fresh, read} {
		assert.False(t, r.has(hash))
	}
}

// A large value of an event is a body: it is kept as long as the event is, and one without an event is not.
func TestLargeValuesAreKeptAsLongAsTheirEvents(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.store = journal.Offloading(r.store, r.bodies)
	r.enrol(false)
	now, text := time.Now(), strings.Repeat("a large value ", 100_000)
	r.make("projects/p/runs/r", "", text, journal.KindRun, now, now)
	value := hashOf(text)
	lost := r.put("put before a process was killed, and named by no event", "")
	r.age(48 * time.Hour)
	k := r.keeper(Config{Bodies: 24 * time.Hour})
	require.NoError(t, k.Sweep(t.Context(), now))
	assert.True(t, r.has(value))
	assert.False(t, r.has(lost))

	require.NoError(t, k.Delete(t.Context(), "projects/p/runs/r"))
	_, err := k.purge(t.Context())
	require.NoError(t, err)
	require.NoError(t, k.Sweep(t.Context(), now))
	assert.False(t, r.has(value))
}

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// Bodies are swept by a database only where all of them are its own: another one may name them.
func TestBodiesOfOtherDatabasesAreKept(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, test := range map[string]struct {
		before func(r *rig) // what was there before the folder was marked
		own    bool
		sweeps bool
		others bool // another database is over the folder
	}{
		"a new folder":                                  {before: func(*rig) {}, sweeps: true},
		"an empty database beside bodies":               {before: func(r *rig) { r.put("old", "") }, own: true},
		"a database of before, in its own folder":       {before: func(r *rig) { r.put("old", ""); r.make("projects/p/runs/a", "", "", journal.KindRun, now, now) }, own: true, sweeps: true},
		"a database of before, in a folder for several": {before: func(r *rig) { r.put("old", ""); r.make("projects/p/runs/a", "", "", journal.KindRun, now, now) }},
		"two databases over one folder":                 {before: func(*rig) {}, others: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			test.before(r)
			keepers := []*Keeper{r.enrol(test.own)}
			if test.others {
				keepers = append(keepers, r.over().enrol(false))
			}
			lost := r.put("lost", "")
			r.age(48 * time.Hour)
			for _, k := range keepers {
				require.NoError(t, k.Sweep(t.Context(), now))
			}
			if r.names() == nil {
				assert.True(t, r.has(lost), "a database that never had a journal sweeps nothing")
			}
			r.make("projects/p/runs/r", "", "", journal.KindRun, now, now)
			for _, k := range append(keepers, r.enrol(test.own)) { // A process that comes later knows no better.
				require.NoError(t, k.Sweep(t.Context(), now))
			}
			assert.Equal(t, test.sweeps, !r.has(lost))
		})
	}
}

// meanwhile runs a function once while the journals are read.
type meanwhile struct {
	journal.Store
	once func()
}

func (m *meanwhile) Texts(ctx context.Context, after journal.Place, each func([]byte) error) (journal.Place, error) {
	place, err := m.Store.Texts(ctx, after, each)
	if do := m.once; do != nil {
		m.once = nil
		do()
	}
	return place, err
}

// What a command names that is still to be taken, and what is named while the journals are read, is kept.
func TestWhatIsAboutToBeNamedIsKept(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.enrol(false)
	now := time.Now()
	posted, late, deep, lost := r.put("posted", ""), r.put("late", ""), r.put("deep", ""), r.put("lost", "")
	r.make("projects/p/runs/open", "", "", journal.KindRun, now, time.Time{})
	request := &agentv1.PostMessageRequest{Messages: []*modelv1.ChatMessage{chat.User(posted)}}
	command, err := inbox.Command{ID: "m", Request: request}.Pack()
	require.NoError(t, err)
	require.NoError(t, r.store.Post(t.Context(), "projects/p/runs/open", command))
	r.age(48 * time.Hour)
	journals := &meanwhile{Store: r.store, once: func() {
		r.make("projects/p/evals/late", "", late, journal.KindEval, now, now)
		r.put("samples "+deep, "")
	}}
	k := New(Config{Bodies: 24 * time.Hour}, Deps{Journals: journals, Bodies: r.bodies, CommandText: inbox.Text, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, k.Sweep(t.Context(), now))
	assert.True(t, r.has(posted), "a command names it")
	assert.True(t, r.has(late), "a journal names it that was made meanwhile")
	assert.True(t, r.has(deep), "a body names it that was put meanwhile")
	assert.False(t, r.has(lost))
}

// unreadable is a store with rows that cannot be read, and some that cannot be deleted.
type unreadable struct{ journal.Store }

func (u unreadable) List(ctx context.Context, q journal.Query) ([]journal.Listed, error) {
	rows, err := u.Store.List(ctx, q)
	for i := range rows {
		if strings.HasSuffix(rows[i].Name, "/bad") {
			rows[i].View = []byte("no row")
		}
	}
	return rows, err
}

// An unreadable row keeps only its own journal, and a journal that was not deleted is not reported as deleted.
func TestARowThatCannotBeReadKeepsNoOther(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	now := time.Now()
	long := now.Add(-time.Hour)
	for _, id := range []string{"runs/bad", "runs/old", "evals/busy"} {
		kind := journal.KindRun
		if strings.HasPrefix(id, "evals") {
			kind = journal.KindEval
		}
		r.make("projects/p/"+id, "", "", kind, long, long)
	}
	r.make("projects/p/runs/left", "projects/p/evals/busy", "", journal.KindRun, long, time.Time{})
	var log strings.Builder
	k := New(Config{Runs: time.Minute, Evals: time.Minute}, Deps{Journals: unreadable{r.store}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.ErrorContains(t, k.Expire(t.Context(), now), "runs/bad")
	assert.Equal(t, []string{"runs/left", "evals/busy", "runs/bad"}, r.names())
	assert.Contains(t, log.String(), "runs/old")
	assert.NotContains(t, log.String(), "evals/busy")
	require.ErrorContains(t, k.Delete(t.Context(), "projects/p/evals/busy"), "let a server that can go on with it end it")
}

// A new database in the place of a lost one is not the database whose bodies are in the folder.
func TestANewDatabaseDoesNotSweepForALostOne(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	now := time.Now()
	r.enrol(true)
	named := r.put("named", "")
	r.make("projects/p/runs/r", "", named, journal.KindRun, now, now)
	r.age(48 * time.Hour)
	anew := r.over()
	k := anew.enrol(true)
	anew.make("projects/p/runs/s", "", "", journal.KindRun, now, now)
	require.NoError(t, k.Sweep(t.Context(), now))
	require.NoError(t, anew.enrol(true).Sweep(t.Context(), now))
	assert.True(t, r.has(named))
}

// A moved folder of bodies is detected at the start, before any run continues without it. Other cases are accepted: a
// new database, and one whose folder was marked, even without a body.
func TestAFolderOfBodiesThatIsGoneIsMissed(t *testing.T) {
	t.Parallel()
	now := time.Now()
	r := newRig(t)
	require.NoError(t, r.keeper(Config{}).Find(t.Context()), "a new database in a new folder")
	r.make("projects/p/runs/r", "", "", journal.KindRun, now, now)
	require.NoError(t, r.keeper(Config{}).Find(t.Context()), "the folder is its own and empty")

	anew := *r
	anew.dir = t.TempDir()
	var err error
	anew.bodies, err = disk.Open(disk.Config{Dir: anew.dir})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, anew.bodies.Close()) })
	for range 2 { // To start again changes nothing.
		lost, ok := errors.AsType[*LostBodiesError](anew.keeper(Config{}).Find(t.Context()))
		require.True(t, ok)
		id, _, err := r.store.Identity(t.Context())
		require.NoError(t, err)
		assert.Equal(t, id, lost.Database)
		assert.ErrorContains(t, lost, ".databases/"+id)
	}
	require.NoError(t, os.MkdirAll(filepath.Join(anew.dir, ".databases"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(anew.dir, ".databases", "its"), nil, 0o600))
	require.NoError(t, anew.keeper(Config{}).Find(t.Context()), "an operator's word")
}

// Deletions that come all the time do not put the sweep off.
func TestDeletionsPullTheSweepForward(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		journals, bodies := &stream{}, &sweeps{started: time.Now()}
		ctx, cancel := context.WithCancel(t.Context())
		k := New(Config{Bodies: 24 * time.Hour}, Deps{Journals: journals, Bodies: bodies, Logger: slog.New(slog.DiscardHandler)})
		done := make(chan struct{})
		go func() {
			defer close(done)
			k.Run(ctx)
		}()
		for range 60 {
			journals.more.Store(true)
			select {
			case k.wake <- struct{}{}:
			default:
			}
			time.Sleep(5 * time.Minute)
		}
		cancel()
		<-done
		require.NotEmpty(t, bodies.swept)
		assert.Equal(t, sweepSoon, bodies.swept[0])
		assert.Greater(t, len(bodies.swept), 10, "again and again")
	})
}

// stream is a store with frequent deletions.
type stream struct {
	Journals
	more atomic.Bool
}

func (s *stream) Purge(context.Context) (bool, error) { return s.more.Swap(false), nil }

func (s *stream) Identity(context.Context) (string, bool, error) { return "id", true, nil }

func (s *stream) Unreleased(context.Context, journal.Ref, int) ([]journal.Unreleased, error) {
	return nil, nil
}

// sweeps notes when bodies are swept.
type sweeps struct {
	Bodies
	started time.Time
	swept   []time.Duration
}

func (s *sweeps) Enrol(context.Context, string, bool) ([]string, error) { return nil, nil }

func (s *sweeps) List(context.Context) ([]blob.Kept, error) {
	s.swept = append(s.swept, time.Since(s.started))
	return nil, nil
}

// What was deleted before a crash is purged by the next process, and what is deleted then at once.
func TestTheKeeperPurges(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	now := time.Now()
	for i := range 3 {
		r.make(fmt.Sprintf("projects/p/runs/r%d", i), "", fmt.Sprint("text of ", i), journal.KindRun, now, now)
	}
	require.NoError(t, r.store.Delete(t.Context(), "projects/p/runs/r0"))
	k := r.keeper(Config{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		k.Run(t.Context())
	}()
	t.Cleanup(func() { waittest.For(t, done, "the keeper to end") })
	left := func() (n int) {
		_, err := r.store.Texts(t.Context(), journal.Place{}, func([]byte) error { n++; return nil })
		require.NoError(t, err)
		return n
	}
	require.Eventually(t, func() bool { return left() == 2 }, waittest.Bound, 5*time.Millisecond, "the start purges what was deleted")
	require.NoError(t, k.Delete(t.Context(), "projects/p/runs/r1"))
	require.Eventually(t, func() bool { return left() == 1 }, waittest.Bound, 5*time.Millisecond, "a deletion is purged")
	err := k.Delete(t.Context(), "projects/p/runs/r1")
	require.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_RESOURCE_NOT_FOUND), "%v", err)
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	require.NoError(t, (&Config{}).Validate())
	err := (&Config{Runs: -1, Evals: -1, Bodies: time.Minute}).Validate()
	for _, says := range []string{"runs:", "evals:", "bodies: want at least 1h"} {
		assert.ErrorContains(t, err, says)
	}
}

// The owners' results of a deleted run are released, even if an owner is unreachable for a time and the process ends in
// the meantime.
func TestOwnersReleaseWhatTheyKeepOfDeletedRuns(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	now := time.Now()
	r.make("projects/p/evals/e", "", "x", journal.KindEval, now, now)
	r.make("projects/p/runs/child", "projects/p/evals/e", "x", journal.KindRun, now, now)
	r.make("projects/p/runs/kept", "", "x", journal.KindRun, now, now)
	r.make("projects/q/runs/r", "", "x", journal.KindRun, now, now)
	released := map[string][]string{}
	away := true
	owner := func(name string) Owner {
		return func(_ context.Context, parent string, runs []string) error {
			if name == "slow" && away {
				return errors.New("away")
			}
			for _, run := range runs {
				assert.True(t, strings.HasPrefix(run, parent+"/runs/"), "%s of %s", run, parent)
			}
			released[name] = append(released[name], runs...)
			return nil
		}
	}
	begin := func() *Keeper {
		return New(Config{}, Deps{Journals: r.store, Logger: slog.New(slog.DiscardHandler), Owners: map[string]Owner{"quick": owner("quick"), "slow": owner("slow")}})
	}
	k := begin()
	require.NoError(t, k.Delete(t.Context(), "projects/p/evals/e"))
	require.NoError(t, k.Delete(t.Context(), "projects/q/runs/r"))
	_, err := k.purge(t.Context())
	require.NoError(t, err)
	want := []string{"projects/p/runs/child", "projects/q/runs/r"}
	require.ErrorContains(t, k.release(t.Context(), now), "slow: away")
	assert.ElementsMatch(t, want, released["quick"], "an owner that is away holds up no other")
	assert.Empty(t, released["slow"])
	away = false
	require.NoError(t, k.release(t.Context(), now))
	assert.Empty(t, released["slow"], "there is a pause after a failure")

	k = begin()
	require.NoError(t, k.release(t.Context(), now))
	assert.ElementsMatch(t, want, released["slow"])
	clear(released)
	require.NoError(t, k.release(t.Context(), now.Add(time.Hour)))
	assert.Empty(t, released, "once all have released them they are forgotten")
}

// What owners keep of a run is released once it has ended, also where the process that drove it was killed just then.
func TestOwnersReleaseWhatTheyKeepOfRunsThatHaveEnded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	now := time.Now()
	r.make("projects/p/runs/ends", "", "x", journal.KindRun, now, time.Time{})
	r.make("projects/p/runs/open", "", "x", journal.KindRun, now, time.Time{})
	head, err := r.store.Open(t.Context(), "projects/p/runs/ends")
	require.NoError(t, err)
	require.NoError(t, r.store.Append(t.Context(), journal.Append{
		Head: head, Row: &journal.Row{Kind: journal.KindRun, Done: true},
		Entries: []journal.Entry{{Event: &agentv1.Event{Seq: 2, Kind: &agentv1.Event_Info{Info: &agentv1.Info{}}}}},
	}))
	var released []string
	k := New(Config{}, Deps{Journals: r.store, Logger: slog.New(slog.DiscardHandler), Owners: map[string]Owner{
		"one": func(_ context.Context, _ string, runs []string) error {
			released = append(released, runs...)
			return nil
		},
	}})
	require.NoError(t, k.release(t.Context(), now))
	assert.Equal(t, []string{"projects/p/runs/ends"}, released)
	require.NoError(t, k.release(t.Context(), now))
	assert.Len(t, released, 1, "once")
}

// An owner that does not come back is not asked for ever: results expire there by themselves.
func TestAnOwnerThatStaysAwayIsNotAskedForEver(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	now := time.Now()
	r.make("projects/q/runs/r", "", "x", journal.KindRun, now, now)
	k := New(Config{}, Deps{Journals: r.store, Logger: slog.New(slog.DiscardHandler), Owners: map[string]Owner{
		"gone": func(context.Context, string, []string) error { return errors.New("away") },
	}})
	require.NoError(t, k.Delete(t.Context(), "projects/q/runs/r"))
	require.Error(t, k.release(t.Context(), now))
	require.Error(t, k.release(t.Context(), now.Add(effect.KeepResults+time.Hour)))
	left, err := r.store.Unreleased(t.Context(), 0, 10)
	require.NoError(t, err)
	assert.Empty(t, left)
}
