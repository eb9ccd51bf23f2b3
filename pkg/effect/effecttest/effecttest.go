// Package effecttest is the suite that every effect ledger passes.
package effecttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/effect"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

// Harness describes how to get the ledger under test.
type Harness struct {
	// New returns an empty ledger.
	New func(t *testing.T) effect.Ledger
	// AfterCrash returns a ledger with the state that a ledger made by New would have if its process were killed now.
	// Nil for a ledger that does not survive a crash.
	AfterCrash func(t *testing.T, l effect.Ledger) effect.Ledger
}

// Names that the tests use.
const (
	owner   = "host-a/1"
	another = "host-b/2"
)

var (
	key     = effect.Key{Project: "p", ID: "run/1"}
	content = effect.Hash{1}
	altered = effect.Hash{2}
	done    = effect.Outcome{State: effect.Done, Body: []byte("result")}
)

// Run runs the suite.
func Run(t *testing.T, h Harness) {
	tests := []struct {
		name string
		run  func(*testing.T, effect.Ledger)
	}{
		{"ClaimTellsWhatIsThere", claimTellsWhatIsThere},
		{"OneOfManyClaimersStarts", oneOfManyClaimersStarts},
		{"OneOfManyReclaimersWins", oneOfManyReclaimersWins},
		{"CancelOrFinishWinsNeverBoth", cancelOrFinishWinsNeverBoth},
		{"BodiesAreKeptAsTheyAre", bodiesAreKeptAsTheyAre},
		{"ProjectsNeverMeet", projectsNeverMeet},
		{"InvalidKeysAreRefused", invalidKeysAreRefused},
		{"ReissuesAreCountedThroughADrop", reissuesAreCountedThroughADrop},
		{"YieldsCountNoReissue", yieldsCountNoReissue},
		{"CancelTellsWhatWasThere", cancelTellsWhatWasThere},
		{"OpenListsRunningClaims", openListsRunningClaims},
		{"ReleaseTakesManyKeys", releaseTakesManyKeys},
		{"ReleaseRunsTakesAllOfARun", releaseRunsTakesAllOfARun},
		{"AnOlderEpochIsRefused", anOlderEpochIsRefused},
		{"ExpireForgetsWhatIsOver", expireForgetsWhatIsOver},
		{"EndedContextChangesNothing", endedContextChangesNothing},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.run(t, h.New(t))
		})
	}
	t.Run("EveryMoveFromEveryState", func(t *testing.T) {
		t.Parallel()
		everyMove(t, h)
	})
	if h.AfterCrash != nil {
		t.Run("CrashLosesNothingAnswered", func(t *testing.T) {
			t.Parallel()
			crashLosesNothingAnswered(t, h)
		})
	}
}

func claim(t *testing.T, l effect.Ledger, k effect.Key) {
	t.Helper()
	_, started, err := l.Claim(t.Context(), k, content, owner, 0)
	require.NoError(t, err)
	require.True(t, started, k.String())
}

func finish(t *testing.T, l effect.Ledger, k effect.Key) {
	t.Helper()
	claim(t, l, k)
	require.NoError(t, l.Finish(t.Context(), k, owner, done))
}

func keyed(id string) effect.Key { return effect.Key{Project: "p", ID: id} }

func claimTellsWhatIsThere(t *testing.T, l effect.Ledger) {
	before := time.Now()
	rec, started, err := l.Claim(t.Context(), key, content, owner, 0)
	require.NoError(t, err)
	require.True(t, started)
	assert.Equal(t, effect.Record{
		Key: key, Hash: content, State: effect.Running, Owner: owner, Claimed: rec.Claimed, Changed: rec.Changed,
	}, rec)
	assert.WithinRange(t, rec.Claimed, before, time.Now())

	rec, started, err = l.Claim(t.Context(), key, content, another, 0)
	require.NoError(t, err)
	assert.False(t, started)
	assert.Equal(t, effect.Running, rec.State)
	assert.Equal(t, owner, rec.Owner, "the claim stays with the first")

	require.NoError(t, l.Finish(t.Context(), key, owner, done))
	rec, started, err = l.Claim(t.Context(), key, content, another, 0)
	require.NoError(t, err)
	assert.False(t, started)
	assert.Equal(t, effect.Done, rec.State)
	assert.Equal(t, done.Body, rec.Body)

	found, err := l.Lookup(t.Context(), key)
	require.NoError(t, err)
	assert.True(t, rec.Claimed.Equal(found.Claimed) && rec.Changed.Equal(found.Changed))
	found.Claimed, found.Changed = rec.Claimed, rec.Changed
	assert.Equal(t, rec, found, "Lookup and Claim tell the same")
}

func oneOfManyClaimersStarts(t *testing.T, l effect.Ledger) {
	const claimers = 32
	for round := range 5 {
		k := keyed(fmt.Sprint(round))
		var starts atomic.Int32
		winner := make(chan string, claimers)
		owners := make(chan string, claimers)
		var wg sync.WaitGroup
		for i := range claimers {
			wg.Go(func() {
				me := fmt.Sprint("owner-", i)
				rec, started, err := l.Claim(t.Context(), k, content, me, 0)
				assert.NoError(t, err)
				owners <- rec.Owner
				if started {
					starts.Add(1)
					winner <- me
				}
			})
		}
		waittest.Return(t, wg.Wait, "every claim to return")
		require.EqualValues(t, 1, starts.Load())
		w := waittest.For(t, winner, "a claimer that won")
		close(owners)
		for o := range owners {
			assert.Equal(t, w, o, "everyone is told of the winner")
		}
	}
}

func oneOfManyReclaimersWins(t *testing.T, l effect.Ledger) {
	claim(t, l, key)
	var wins atomic.Int32
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			rec, err := l.Reclaim(t.Context(), key, owner, fmt.Sprint("heir-", i))
			if err != nil {
				assert.ErrorIs(t, err, effect.ErrNotOwner)
				return
			}
			wins.Add(1)
			assert.Equal(t, 1, rec.Reissues)
			assert.Equal(t, fmt.Sprint("heir-", i), rec.Owner)
			assert.Equal(t, content, rec.Hash)
		})
	}
	waittest.Return(t, wg.Wait, "every reclaim to return")
	assert.EqualValues(t, 1, wins.Load())
	assert.ErrorIs(t, l.Finish(t.Context(), key, owner, done), effect.ErrNotOwner, "the old owner has lost it")
}

func cancelOrFinishWinsNeverBoth(t *testing.T, l effect.Ledger) {
	for round := range 20 {
		k := keyed(fmt.Sprint(round))
		claim(t, l, k)
		var finished error
		var before effect.Record
		var wg sync.WaitGroup
		wg.Go(func() { finished = l.Finish(t.Context(), k, owner, done) })
		wg.Go(func() {
			var err error
			before, err = l.Cancel(t.Context(), k)
			assert.NoError(t, err)
		})
		waittest.Return(t, wg.Wait, "the cancel and the finish to return")
		rec, err := l.Lookup(t.Context(), k)
		require.NoError(t, err)
		if finished == nil {
			assert.Equal(t, effect.Done, rec.State)
			assert.Equal(t, effect.Done, before.State)
			assert.Equal(t, done.Body, before.Body)
		} else {
			require.ErrorIs(t, finished, effect.ErrCancelled)
			assert.Equal(t, effect.Cancelled, rec.State)
			assert.Equal(t, effect.Running, before.State)
		}
	}
}

func bodiesAreKeptAsTheyAre(t *testing.T, l effect.Ledger) {
	bodies := map[string][]byte{
		"none":   nil,
		"binary": {0, 255, '\'', '"', 0xc3, 0x28},
		"large":  bytes.Repeat([]byte("0123456789abcdef"), 256<<10/16),
	}
	for id, body := range bodies {
		claim(t, l, keyed(id))
		given := bytes.Clone(body)
		require.NoError(t, l.Finish(t.Context(), keyed(id), owner, effect.Outcome{State: effect.Failed, Body: given}))
		clear(given) // the ledger holds a copy
	}
	for id, body := range bodies {
		rec, err := l.Lookup(t.Context(), keyed(id))
		require.NoError(t, err)
		assert.Equal(t, effect.Failed, rec.State)
		assert.True(t, bytes.Equal(body, rec.Body), id)
	}
}

func projectsNeverMeet(t *testing.T, l effect.Ledger) {
	other := effect.Key{Project: "q", ID: key.ID}
	finish(t, l, key)
	_, err := l.Lookup(t.Context(), other)
	require.ErrorIs(t, err, effect.ErrUnknown)
	_, started, err := l.Claim(t.Context(), other, altered, another, 0)
	require.NoError(t, err)
	assert.True(t, started)
	_, err = l.Cancel(t.Context(), other)
	require.NoError(t, err)
	rec, err := l.Lookup(t.Context(), key)
	require.NoError(t, err)
	assert.Equal(t, effect.Done, rec.State)

	// The boundary between a project and an id must be unambiguous.
	claim(t, l, effect.Key{Project: "a/b", ID: "c"})
	claim(t, l, effect.Key{Project: "a", ID: "b/c"})
}

func invalidKeysAreRefused(t *testing.T, l effect.Ledger) {
	longest := effect.Key{Project: "p", ID: strings.Repeat("x", effect.MaxIDBytes)}
	claim(t, l, longest)
	for name, k := range map[string]effect.Key{
		"zero": {}, "no project": {ID: "x"}, "no id": {Project: "p"}, "long": {Project: "p", ID: longest.ID + "x"},
	} {
		_, _, err := l.Claim(t.Context(), k, content, owner, 0)
		assert.ErrorIs(t, err, effect.ErrInvalidKey, name)
		_, err = l.Cancel(t.Context(), k)
		assert.ErrorIs(t, err, effect.ErrInvalidKey, name)
		_, err = l.Lookup(t.Context(), k)
		assert.ErrorIs(t, err, effect.ErrInvalidKey, name)
		assert.ErrorIs(t, l.Finish(t.Context(), k, owner, done), effect.ErrInvalidKey, name)
	}
}

func reissuesAreCountedThroughADrop(t *testing.T, l effect.Ledger) {
	claim(t, l, key)
	for n := 1; n <= 2; n++ {
		rec, err := l.Reclaim(t.Context(), key, owner, owner)
		require.NoError(t, err)
		assert.Equal(t, n, rec.Reissues)
	}
	require.NoError(t, l.Drop(t.Context(), key, owner))
	rec, started, err := l.Claim(t.Context(), key, content, another, 0)
	require.NoError(t, err)
	assert.True(t, started)
	assert.Equal(t, 2, rec.Reissues, "what was lost before is not forgotten")
	assert.Equal(t, another, rec.Owner)
	require.NoError(t, l.Finish(t.Context(), key, another, done))
	rec, err = l.Lookup(t.Context(), key)
	require.NoError(t, err)
	assert.Equal(t, 2, rec.Reissues)
}

func yieldsCountNoReissue(t *testing.T, l effect.Ledger) {
	claim(t, l, key)
	claim(t, l, keyed("other"))
	_, err := l.Reclaim(t.Context(), key, owner, owner)
	require.NoError(t, err)
	for n := 1; n <= 2; n++ {
		require.NoError(t, l.Yield(t.Context(), owner, key, keyed("other"), keyed("unknown")))
		rec, started, err := l.Claim(t.Context(), key, content, owner, 0)
		require.NoError(t, err)
		assert.True(t, started)
		assert.Equal(t, 1, rec.Reissues, "only the loss counts")
		assert.Equal(t, n, rec.Yields)
		assert.Equal(t, 1+n, rec.Lost())
		found, err := l.Lookup(t.Context(), key)
		require.NoError(t, err)
		assert.Equal(t, n, found.Yields)
	}
	require.NoError(t, l.Yield(t.Context(), another, key), "held by another owner, so left alone")
	require.NoError(t, l.Finish(t.Context(), key, owner, done))
	rec, err := l.Lookup(t.Context(), key)
	require.NoError(t, err)
	assert.Equal(t, 2, rec.Yields, "kept with the result")
	open, err := l.Open(t.Context(), "")
	require.NoError(t, err)
	assert.Empty(t, open, "a yielded claim is nobody's")
}

func cancelTellsWhatWasThere(t *testing.T, l effect.Ledger) {
	before, err := l.Cancel(t.Context(), key)
	require.NoError(t, err)
	assert.Zero(t, before.State, "never seen")
	before, err = l.Cancel(t.Context(), key)
	require.NoError(t, err)
	assert.Equal(t, effect.Cancelled, before.State)
	for _, hash := range []effect.Hash{content, altered} {
		rec, started, err := l.Claim(t.Context(), key, hash, owner, 0)
		require.NoError(t, err, "a tombstone has no content to differ from")
		assert.False(t, started)
		assert.Equal(t, effect.Cancelled, rec.State)
	}

	claim(t, l, keyed("running"))
	before, err = l.Cancel(t.Context(), keyed("running"))
	require.NoError(t, err)
	assert.Equal(t, effect.Running, before.State)
	assert.Equal(t, owner, before.Owner)

	finish(t, l, keyed("done"))
	before, err = l.Cancel(t.Context(), keyed("done"))
	require.NoError(t, err)
	assert.Equal(t, effect.Done, before.State)
	assert.Equal(t, done.Body, before.Body)
}

func openListsRunningClaims(t *testing.T, l effect.Ledger) {
	ids := func(owner string) (got []string) {
		recs, err := l.Open(t.Context(), owner)
		require.NoError(t, err)
		for _, rec := range recs {
			assert.Equal(t, effect.Running, rec.State)
			assert.Equal(t, content, rec.Hash)
			got = append(got, rec.Key.ID)
		}
		return got
	}
	assert.Empty(t, ids(""))
	for _, id := range []string{"c", "a", "b", "done", "dropped", "cancelled"} {
		claim(t, l, keyed(id))
	}
	require.NoError(t, l.Finish(t.Context(), keyed("done"), owner, done))
	require.NoError(t, l.Drop(t.Context(), keyed("dropped"), owner))
	_, err := l.Cancel(t.Context(), keyed("cancelled"))
	require.NoError(t, err)
	_, err = l.Reclaim(t.Context(), keyed("a"), owner, another)
	require.NoError(t, err)

	assert.Equal(t, []string{"c", "b"}, ids(owner))
	assert.Equal(t, []string{"a"}, ids(another))
	assert.Equal(t, []string{"c", "a", "b"}, ids(""))
}

func releaseTakesManyKeys(t *testing.T, l effect.Ledger) {
	finish(t, l, keyed("a"))
	finish(t, l, keyed("b"))
	claim(t, l, keyed("running"))
	require.NoError(t, l.Release(t.Context(), keyed("a"), keyed("b"), keyed("running"), keyed("unknown")))
	require.NoError(t, l.Release(t.Context()))
	for _, id := range []string{"a", "b"} {
		rec, err := l.Lookup(t.Context(), keyed(id))
		require.NoError(t, err)
		assert.Equal(t, effect.Released, rec.State)
		assert.Empty(t, rec.Body)
	}
	require.NoError(t, l.Finish(t.Context(), keyed("running"), owner, done), "left alone")
}

func releaseRunsTakesAllOfARun(t *testing.T, l effect.Ledger) {
	other := effect.Key{Project: "q", ID: "r/1"}
	for _, k := range []effect.Key{keyed("r/1"), keyed("r/2/call"), keyed("s/1"), keyed("r"), keyed("r0"), keyed("r-/1"), keyed("r1/1"), keyed("R/1"), other} {
		finish(t, l, k)
	}
	claim(t, l, keyed("r/running"))
	claim(t, l, keyed("r/dropped"))
	require.NoError(t, l.Drop(t.Context(), keyed("r/dropped"), owner))
	claim(t, l, keyed("r/yielded"))
	require.NoError(t, l.Yield(t.Context(), owner, keyed("r/yielded")))
	finish(t, l, keyed("r/marked"))
	require.NoError(t, l.Release(t.Context(), keyed("r/marked")))
	_, err := l.Cancel(t.Context(), keyed("r/tombstone"))
	require.NoError(t, err)
	for range 2 { // It may be repeated.
		require.NoError(t, l.ReleaseRuns(t.Context(), "p", "r", "s", "none"))
		for k, want := range map[effect.Key]effect.State{
			keyed("r/1"): 0, keyed("r/2/call"): 0, keyed("s/1"): 0, keyed("r/dropped"): 0, keyed("r/yielded"): 0, keyed("r/marked"): 0,
			keyed("r/running"): effect.Cancelled, keyed("r/tombstone"): effect.Cancelled,
			keyed("r"): effect.Done, keyed("r0"): effect.Done, keyed("r-/1"): effect.Done, keyed("r1/1"): effect.Done, keyed("R/1"): effect.Done, other: effect.Done,
		} {
			rec, err := l.Lookup(t.Context(), k)
			if want == 0 {
				require.ErrorIs(t, err, effect.ErrUnknown, "%s: nothing is left of it", k)
				continue
			}
			require.NoError(t, err)
			assert.Equal(t, want, rec.State, "%s", k)
			assert.Equal(t, want == effect.Done, len(rec.Body) > 0, "%s", k)
		}
	}
	require.NoError(t, l.ReleaseRuns(t.Context(), "p"))
	require.ErrorIs(t, l.Finish(t.Context(), keyed("r/running"), owner, done), effect.ErrCancelled, "its result is not kept")
}

func anOlderEpochIsRefused(t *testing.T, l effect.Ledger) {
	claim := func(id string, epoch int64) error {
		_, _, err := l.Claim(t.Context(), keyed(id), content, owner, epoch)
		return err
	}
	require.NoError(t, claim("r/1", 2))
	require.NoError(t, claim("r/2", 2))
	refused, ok := errors.AsType[*effect.SupersededError](claim("r/3", 1))
	require.True(t, ok)
	assert.EqualValues(t, 2, refused.Epoch, "it says which one the ledger has")
	require.ErrorIs(t, claim("r/1", 1), effect.ErrSuperseded, "also where there is something already")
	_, err := l.Lookup(t.Context(), keyed("r/3"))
	require.ErrorIs(t, err, effect.ErrUnknown, "nothing is changed")
	require.NoError(t, claim("r/3", 0), "who owns no run has no epoch")
	require.NoError(t, claim("r2/1", 1), "another run")
	_, _, err = l.Claim(t.Context(), effect.Key{Project: "q", ID: "r/1"}, content, owner, 1)
	require.NoError(t, err, "another project")

	require.NoError(t, l.Fence(t.Context(), keyed("r/1"), 3))
	require.NoError(t, l.Fence(t.Context(), keyed("r/1"), 3))
	require.NoError(t, l.Fence(t.Context(), keyed("r/1"), 0))
	require.ErrorIs(t, l.Fence(t.Context(), keyed("r/9"), 2), effect.ErrSuperseded)
	require.ErrorIs(t, claim("r/4", 2), effect.ErrSuperseded)
	require.NoError(t, claim("r/4", 4))

	require.NoError(t, l.ReleaseRuns(t.Context(), "p", "r"))
	require.ErrorIs(t, claim("r/5", 3), effect.ErrSuperseded, "it outlives the run's results")
	require.ErrorIs(t, claim("r/1", 4), effect.ErrReleased, "a run that was released begins nothing, and nothing again")
	require.ErrorIs(t, claim("r/1", 5), effect.ErrReleased)
	require.ErrorIs(t, l.Fence(t.Context(), keyed("r/1"), 5), effect.ErrReleased)
	require.NoError(t, claim("r2/2", 1), "another run does")
	_, err = l.Expire(t.Context(), time.Now().Add(-time.Hour), time.Now())
	require.NoError(t, err)
	require.ErrorIs(t, claim("r/5", 3), effect.ErrSuperseded)
	_, err = l.Expire(t.Context(), time.Now().Add(time.Hour), time.Now())
	require.NoError(t, err)
	require.NoError(t, claim("r/5", 3), "it is forgotten in the end")
}

func expireForgetsWhatIsOver(t *testing.T, l effect.Ledger) {
	claim(t, l, keyed("running"))
	finish(t, l, keyed("done"))
	claim(t, l, keyed("dropped"))
	require.NoError(t, l.Drop(t.Context(), keyed("dropped"), owner))
	_, err := l.Cancel(t.Context(), keyed("cancelled"))
	require.NoError(t, err)
	finish(t, l, keyed("released"))
	require.NoError(t, l.Release(t.Context(), keyed("released")))

	states := func() (got []string) {
		for _, id := range []string{"running", "done", "dropped", "cancelled", "released"} {
			if _, err := l.Lookup(t.Context(), keyed(id)); err == nil {
				got = append(got, id)
			}
		}
		return got
	}
	past, future := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	n, err := l.Expire(t.Context(), past, past)
	require.NoError(t, err)
	assert.Zero(t, n, "too young")
	n, err = l.Expire(t.Context(), time.Time{}, future)
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	assert.Equal(t, []string{"running", "done", "dropped", "cancelled"}, states())
	n, err = l.Expire(t.Context(), future, time.Time{})
	require.NoError(t, err)
	assert.Equal(t, 3, n)
	assert.Equal(t, []string{"running"}, states())

	finish(t, l, keyed("done")) // a forgotten key is a new one, without the old body
	rec, err := l.Lookup(t.Context(), keyed("done"))
	require.NoError(t, err)
	assert.Equal(t, done.Body, rec.Body)
}

func endedContextChangesNothing(t *testing.T, l effect.Ledger) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err := l.Claim(ctx, key, content, owner, 0)
	require.ErrorIs(t, err, context.Canceled)
	_, err = l.Cancel(ctx, key)
	require.ErrorIs(t, err, context.Canceled)
	_, err = l.Lookup(t.Context(), key)
	require.ErrorIs(t, err, effect.ErrUnknown)
	claim(t, l, key)
	require.ErrorIs(t, l.Finish(ctx, key, owner, done), context.Canceled)
	require.ErrorIs(t, l.Drop(ctx, key, owner), context.Canceled)
	require.ErrorIs(t, l.Yield(ctx, owner, key), context.Canceled)
	_, err = l.Reclaim(ctx, key, owner, another)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, l.Finish(t.Context(), key, owner, done))
	require.ErrorIs(t, l.Release(ctx, key), context.Canceled)
	_, err = l.Open(ctx, "")
	require.ErrorIs(t, err, context.Canceled)
	_, err = l.Expire(ctx, time.Now(), time.Now())
	require.ErrorIs(t, err, context.Canceled)
	rec, err := l.Lookup(t.Context(), key)
	require.NoError(t, err)
	assert.Equal(t, effect.Done, rec.State)
}

func crashLosesNothingAnswered(t *testing.T, h Harness) {
	l := h.New(t)
	claim(t, l, keyed("running"))
	finish(t, l, keyed("done"))
	_, err := l.Cancel(t.Context(), keyed("cancelled"))
	require.NoError(t, err)

	after := h.AfterCrash(t, l)
	rec, started, err := after.Claim(t.Context(), keyed("running"), content, another, 0)
	require.NoError(t, err)
	assert.False(t, started, "a claim outlives its owner")
	assert.Equal(t, effect.Running, rec.State)
	assert.Equal(t, owner, rec.Owner)
	open, err := after.Open(t.Context(), owner)
	require.NoError(t, err)
	require.Len(t, open, 1)
	assert.Equal(t, keyed("running"), open[0].Key)
	rec, err = after.Lookup(t.Context(), keyed("done"))
	require.NoError(t, err)
	assert.Equal(t, done.Body, rec.Body)
	rec, err = after.Lookup(t.Context(), keyed("cancelled"))
	require.NoError(t, err)
	assert.Equal(t, effect.Cancelled, rec.State)
}
