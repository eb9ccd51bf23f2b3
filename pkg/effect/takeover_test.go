package effect_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/effect"
	"github.com/evalfleet/evalfleet/pkg/effect/memory"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

// die leaves the claim of an owner that will never finish it.
func die(t *testing.T, ledger effect.Ledger, owner string) {
	t.Helper()
	_, started, err := ledger.Claim(t.Context(), request.Key, request.Hash, owner, 0)
	require.NoError(t, err)
	require.True(t, started)
}

func TestLostWorkIsDoneAgainOnce(t *testing.T) {
	t.Parallel()
	ledger := &memory.Ledger{}
	die(t, ledger, "dead/1")
	again := request
	again.Reissue = true

	heir := runner(t, ledger, func(c *effect.Config) { c.Owner = "heir/1" })
	_, err := heir.Attach(t.Context(), request.Key)
	assert.ErrorIs(t, err, effect.ErrLost, "Attach starts nothing")
	res, err := heir.Do(t.Context(), again, func(_ context.Context, a effect.Attempt) ([]byte, error) {
		assert.Equal(t, effect.Attempt{Key: request.Key, Reissued: 1}, a)
		return []byte("second try"), nil
	})
	require.NoError(t, err)
	assert.Equal(t, effect.Result{Body: []byte("second try"), Reissued: 1}, res)
	res, err = heir.Attach(t.Context(), request.Key)
	require.NoError(t, err)
	assert.Equal(t, 1, res.Reissued, "told to those who come later, too")
}

func TestWorkLostTooOftenIsIndeterminate(t *testing.T) {
	t.Parallel()
	ledger := &memory.Ledger{}
	die(t, ledger, "dead/1")
	_, err := ledger.Reclaim(t.Context(), request.Key, "dead/1", "dead/2")
	require.NoError(t, err)
	again := request
	again.Reissue = true
	r := runner(t, ledger, func(c *effect.Config) { c.MaxReissues = 1 })
	res, err := r.Do(t.Context(), again, never)
	assert.ErrorIs(t, err, effect.ErrIndeterminate)
	assert.Equal(t, 1, res.Reissued)
}

func TestWorkThatMayNotBeRepeatedIsIndeterminateForGood(t *testing.T) {
	t.Parallel()
	ledger := &memory.Ledger{}
	die(t, ledger, "dead/1")
	r := runner(t, ledger)
	_, err := r.Do(t.Context(), request, never)
	assert.ErrorIs(t, err, effect.ErrIndeterminate)
	again := request
	again.Reissue = true
	_, err = r.Do(t.Context(), again, never)
	assert.ErrorIs(t, err, effect.ErrIndeterminate, "the outcome stands")
	_, err = r.Attach(t.Context(), request.Key)
	assert.ErrorIs(t, err, effect.ErrIndeterminate)
	assert.ErrorIs(t, ledger.Finish(t.Context(), request.Key, "dead/1", effect.Outcome{State: effect.Done}), effect.ErrNotOwner,
		"the dead one may not come back with another")
}

func TestWorkOfALivingOwnerIsLeftToIt(t *testing.T) {
	t.Parallel()
	ledger := &memory.Ledger{}
	die(t, ledger, "other/1")
	r := runner(t, ledger, func(c *effect.Config) {
		c.Alive = func(_ context.Context, owner string) (bool, error) { return owner == "other/1", nil }
	})
	again := request
	again.Reissue = true
	var elsewhere *effect.ElsewhereError
	_, err := r.Do(t.Context(), again, never)
	require.ErrorAs(t, err, &elsewhere)
	assert.Equal(t, "other/1", elsewhere.Owner)
	_, err = r.Attach(t.Context(), request.Key)
	require.ErrorAs(t, err, &elsewhere)
}

func TestOneHeirTakesOver(t *testing.T) {
	t.Parallel()
	ledger := &memory.Ledger{}
	die(t, ledger, "dead/1")
	again := request
	again.Reissue = true
	var runs, told atomic.Int32
	var wg sync.WaitGroup
	for _, owner := range []string{"heir/1", "heir/2", "heir/3", "heir/4"} {
		r := runner(t, ledger, func(c *effect.Config) {
			c.Owner = owner
			c.Alive = func(_ context.Context, owner string) (bool, error) { return owner != "dead/1", nil }
		})
		wg.Go(func() {
			_, err := r.Do(t.Context(), again, func(context.Context, effect.Attempt) ([]byte, error) {
				runs.Add(1)
				return nil, nil
			})
			if elsewhere := (*effect.ElsewhereError)(nil); err != nil {
				assert.ErrorAs(t, err, &elsewhere)
				told.Add(1)
			}
		})
	}
	waittest.Return(t, wg.Wait, "every heir to be answered")
	assert.EqualValues(t, 1, runs.Load())
	assert.LessOrEqual(t, told.Load(), int32(3))
}

func TestCancelBeforeTheWork(t *testing.T) {
	t.Parallel()
	r := runner(t, &memory.Ledger{})
	before, err := r.Cancel(t.Context(), request.Key)
	require.NoError(t, err)
	assert.Zero(t, before.State)
	_, err = r.Do(t.Context(), request, never)
	assert.ErrorIs(t, err, effect.ErrCancelled)
	_, err = r.Attach(t.Context(), request.Key)
	assert.ErrorIs(t, err, effect.ErrCancelled)
}

func TestCancelDuringTheWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ledger := &memory.Ledger{}
		r := runner(t, ledger)
		answered := make(chan error, 1)
		go func() {
			_, err := r.Do(t.Context(), request, func(ctx context.Context, _ effect.Attempt) ([]byte, error) {
				<-ctx.Done()
				time.Sleep(time.Hour) // slow to notice
				return []byte("too late"), nil
			})
			answered <- err
		}()
		synctest.Wait()
		begin := time.Now()
		before, err := r.Cancel(t.Context(), request.Key)
		require.NoError(t, err)
		assert.Equal(t, effect.Running, before.State)
		assert.ErrorIs(t, <-answered, effect.ErrCancelled)
		assert.Zero(t, time.Since(begin), "no one waits for the slow end")
		require.NoError(t, r.Drain(t.Context()))
		assert.Equal(t, time.Hour, time.Since(begin), "but Drain does")
		rec, err := ledger.Lookup(t.Context(), request.Key)
		require.NoError(t, err)
		assert.Equal(t, effect.Cancelled, rec.State)
		assert.Empty(t, rec.Body)
	})
}

// Work that says how it ended when it is cancelled is waited for, for a bounded time.
func TestCancelledWorkMaySayHowItEnded(t *testing.T) {
	t.Parallel()
	const grace = 2 * time.Second
	for name, test := range map[string]struct {
		takes time.Duration
		told  bool
	}{
		"in time":  {takes: grace / 2, told: true},
		"too late": {takes: 2 * grace},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r, err := effect.New(effect.Config{Ledger: &memory.Ledger{}, Owner: "one", CancelGrace: grace})
				require.NoError(t, err)
				answered := make(chan error, 1)
				go func() {
					_, err := r.Do(t.Context(), request, func(ctx context.Context, _ effect.Attempt) ([]byte, error) {
						<-ctx.Done()
						time.Sleep(test.takes)
						return nil, fmt.Errorf("after two attempts: %w", context.Cause(ctx))
					})
					answered <- err
				}()
				synctest.Wait()
				begin := time.Now()
				_, err = r.Cancel(t.Context(), request.Key)
				require.NoError(t, err)
				assert.Zero(t, time.Since(begin), "the cancel itself waits for nothing")
				err = <-answered
				require.ErrorIs(t, err, effect.ErrCancelled)
				assert.Equal(t, min(test.takes, grace), time.Since(begin))
				assert.Equal(t, test.told, strings.Contains(err.Error(), "after two attempts"), "%v", err)
				require.NoError(t, r.Drain(t.Context()))
			})
		})
	}
}

func TestCancelAfterTheWork(t *testing.T) {
	t.Parallel()
	r := runner(t, &memory.Ledger{})
	_, err := r.Do(t.Context(), request, new(counted).work)
	require.NoError(t, err)
	before, err := r.Cancel(t.Context(), request.Key)
	require.NoError(t, err)
	assert.Equal(t, effect.Done, before.State)
	assert.Equal(t, "result 1", string(before.Body))
	_, err = r.Attach(t.Context(), request.Key)
	assert.NoError(t, err, "the result stands")
}

func TestAttach(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := runner(t, &memory.Ledger{})
		_, err := r.Attach(t.Context(), request.Key)
		assert.ErrorIs(t, err, effect.ErrUnknown)
		h := newHeld()
		go func() { _, _ = r.Do(t.Context(), request, h.work) }()
		<-h.begun
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = r.Attach(impatient, request.Key)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		time.AfterFunc(time.Second, func() { close(h.leave) })
		for range 2 { // while it runs, and when it is done
			res, err := r.Attach(t.Context(), request.Key)
			require.NoError(t, err)
			assert.Equal(t, effect.Result{Body: []byte("held result"), Joined: true}, res)
		}
	})
}

func TestDrainWaitsForWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := runner(t, &memory.Ledger{})
		h := newHeld()
		answered := make(chan error, 2)
		do := func() {
			_, err := r.Do(t.Context(), request, h.work)
			answered <- err
		}
		go do()
		<-h.begun
		drained := make(chan error, 1)
		go func() { drained <- r.Drain(t.Context()) }()
		synctest.Wait()
		assert.Empty(t, drained)
		other := request
		other.Key.ID = "other"
		_, err := r.Do(t.Context(), other, never)
		assert.ErrorIs(t, err, effect.ErrDraining)
		go do() // may still join what runs
		synctest.Wait()
		close(h.leave)
		assert.NoError(t, <-answered)
		assert.NoError(t, <-answered)
		assert.NoError(t, <-drained)
		assert.NoError(t, r.Drain(t.Context()))
	})
}

func TestWorkIsDoneAgainFiveTimesUnlessConfigured(t *testing.T) {
	t.Parallel()
	ledger := &memory.Ledger{}
	again := request
	again.Reissue = true
	die(t, ledger, "dead/0")
	for n := 1; n <= effect.DefaultMaxReissues; n++ {
		_, err := ledger.Reclaim(t.Context(), request.Key, fmt.Sprint("dead/", n-1), fmt.Sprint("dead/", n))
		require.NoError(t, err)
		if n == effect.DefaultMaxReissues-1 {
			other := again
			other.Key.ID = "fifth"
			_, _, err := ledger.Claim(t.Context(), other.Key, other.Hash, "dead/0", 0)
			require.NoError(t, err)
			for range n {
				_, err := ledger.Reclaim(t.Context(), other.Key, "dead/0", "dead/0")
				require.NoError(t, err)
			}
			res, err := runner(t, ledger).Do(t.Context(), other, new(counted).work)
			require.NoError(t, err)
			assert.Equal(t, effect.DefaultMaxReissues, res.Reissued)
		}
	}
	res, err := runner(t, ledger).Do(t.Context(), again, never)
	assert.ErrorIs(t, err, effect.ErrIndeterminate)
	assert.Equal(t, effect.DefaultMaxReissues, res.Reissued)
}

// drained stops a runner whose grace ends while work runs.
func drained(t *testing.T, r *effect.Runner, grace time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), grace)
	defer cancel()
	return r.Drain(ctx)
}

func TestGracefulStopsCountNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ledger := &memory.Ledger{}
		again := request
		again.Reissue = true
		const stops = 2 * effect.DefaultMaxReissues
		for n := range stops {
			r := runner(t, ledger, func(c *effect.Config) { c.Owner = fmt.Sprint("here/", n) })
			h := newHeld()
			answered := make(chan error, 1)
			go func() {
				_, err := r.Do(t.Context(), again, h.work)
				answered <- err
			}()
			<-h.begun
			assert.NoError(t, drained(t, r, time.Second))
			assert.ErrorIs(t, <-answered, effect.ErrDraining)
			rec, err := ledger.Lookup(t.Context(), request.Key)
			require.NoError(t, err)
			assert.Equal(t, effect.Yielded, rec.State)
		}
		heir := runner(t, ledger, func(c *effect.Config) { c.Owner = "heir/1" })
		_, err := heir.Attach(t.Context(), request.Key)
		assert.ErrorIs(t, err, effect.ErrLost, "Attach starts nothing")
		res, err := heir.Do(t.Context(), again, func(_ context.Context, a effect.Attempt) ([]byte, error) {
			assert.Equal(t, stops, a.Reissued, "the work may have been done in part")
			return nil, nil
		})
		require.NoError(t, err)
		assert.Equal(t, stops, res.Reissued, "journaled as issued again")
		rec, err := ledger.Lookup(t.Context(), request.Key)
		require.NoError(t, err)
		assert.Zero(t, rec.Reissues)
	})
}

func TestWorkThatDoesNotNoticeTheEndIsYielded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ledger := &memory.Ledger{}
		r := runner(t, ledger)
		again := request
		again.Reissue = true
		answered := make(chan error, 1)
		go func() {
			_, err := r.Do(t.Context(), again, func(context.Context, effect.Attempt) ([]byte, error) {
				time.Sleep(time.Hour)
				return []byte("too late"), nil
			})
			answered <- err
		}()
		synctest.Wait()
		assert.NoError(t, drained(t, r, time.Second))
		assert.ErrorIs(t, <-answered, effect.ErrDraining)
		rec, err := ledger.Lookup(t.Context(), request.Key)
		require.NoError(t, err)
		assert.Equal(t, effect.Yielded, rec.State)
		time.Sleep(2 * time.Hour)
		rec, err = ledger.Lookup(t.Context(), request.Key)
		require.NoError(t, err)
		assert.Equal(t, effect.Yielded, rec.State, "the late result is not kept: a successor may be at work")
	})
}

func TestWorkThatMayNotBeRepeatedIsNotYielded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ledger := &memory.Ledger{}
		r := runner(t, ledger)
		h := newHeld()
		answered := make(chan error, 1)
		go func() {
			_, err := r.Do(t.Context(), request, h.work)
			answered <- err
		}()
		<-h.begun
		assert.ErrorIs(t, drained(t, r, time.Second), context.DeadlineExceeded, "what was lost is told")
		assert.ErrorIs(t, <-answered, effect.ErrDraining)

		open, err := ledger.Open(t.Context(), "here/1")
		require.NoError(t, err)
		require.Len(t, open, 1)
		heir := runner(t, ledger, func(c *effect.Config) { c.Owner = "heir/1" })
		_, err = heir.Do(t.Context(), request, never)
		assert.ErrorIs(t, err, effect.ErrIndeterminate)
		assert.NoError(t, r.Drain(t.Context()), "nothing is left")
	})
}

func TestYieldedWorkIsNotRepeatedForARequestThatForbidsIt(t *testing.T) {
	t.Parallel()
	ledger := &memory.Ledger{}
	die(t, ledger, "gone/1")
	require.NoError(t, ledger.Yield(t.Context(), "gone/1", request.Key))
	_, err := runner(t, ledger).Do(t.Context(), request, never)
	assert.ErrorIs(t, err, effect.ErrIndeterminate)
}

// A later version fills one more field of a request, and so hashes it to something else.
func TestUniqueKeysSurviveAnotherHash(t *testing.T) {
	t.Parallel()
	ledger := &memory.Ledger{}
	die(t, ledger, "older/1")
	later := request
	later.Hash, later.Reissue = effect.Hash{2}, true
	r := runner(t, ledger)
	_, err := r.Do(t.Context(), later, never)
	require.ErrorIs(t, err, effect.ErrContentMismatch, "of a client's key")
	later.Unique = true
	res, err := r.Do(t.Context(), later, new(counted).work)
	require.NoError(t, err)
	assert.Equal(t, "result 1", string(res.Body))
	assert.Equal(t, 1, res.Reissued, "it is the same effect")
	later.Hash = effect.Hash{3}
	res, err = r.Do(t.Context(), later, never)
	require.NoError(t, err)
	assert.Equal(t, "result 1", string(res.Body))
}

func TestKeysOfRuns(t *testing.T) {
	t.Parallel()
	key := effect.Key{Project: "p", ID: "abc/7"}
	assert.True(t, key.OfRun("projects/p/runs/abc"))
	for _, other := range []string{"", "projects/p/runs/", "projects/p/runs/ab", "projects/q/runs/abc", "projects/p/evals/abc", "abc"} {
		assert.False(t, key.OfRun(other), other)
	}
}

// TestAnOlderOwnerOfARunIsRefused: a caller that joins work under a newer epoch fences off earlier epochs, in this
// process and in the ledger.
func TestAnOlderOwnerOfARunIsRefused(t *testing.T) {
	t.Parallel()
	ledger := &memory.Ledger{}
	r := runner(t, ledger)
	asked := request
	asked.Key = effect.Key{Project: "p", ID: "r/7"}
	under := func(epoch int64) effect.Request {
		r := asked
		r.Epoch = epoch
		return r
	}
	begun, end := make(chan struct{}), make(chan struct{})
	work := func(context.Context, effect.Attempt) ([]byte, error) {
		close(begun)
		<-end
		return []byte("once"), nil
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := r.Do(t.Context(), under(2), work)
		assert.NoError(t, err)
	})
	waittest.For(t, begun, "the work to begin")
	wg.Go(func() {
		_, err := r.Do(t.Context(), under(3), never)
		assert.NoError(t, err)
	})
	require.Eventually(t, func() bool { return errors.Is(ledger.Fence(t.Context(), asked.Key, 2), effect.ErrSuperseded) }, time.Minute, time.Millisecond,
		"the ledger knows the newer epoch")
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := r.Do(ctx, under(2), never)
		return errors.Is(err, effect.ErrSuperseded)
	}, time.Minute, time.Millisecond, "the execution knows it")
	close(end)
	waittest.Return(t, wg.Wait, "both owners to get their answer")
	other := under(2)
	other.Key.ID = "r/8"
	_, err := r.Do(t.Context(), other, never)
	require.ErrorIs(t, err, effect.ErrSuperseded)
	rec, err := ledger.Lookup(t.Context(), asked.Key)
	require.NoError(t, err)
	assert.Zero(t, rec.Lost(), "to join begins nothing anew")
}

// heldLedger holds up claims under an epoch.
type heldLedger struct {
	*memory.Ledger
	epoch int64
	begun chan struct{}
	let   chan struct{}
}

func (l *heldLedger) Claim(ctx context.Context, key effect.Key, hash effect.Hash, owner string, epoch int64) (effect.Record, bool, error) {
	if epoch == l.epoch {
		close(l.begun)
		<-l.let
	}
	return l.Ledger.Claim(ctx, key, hash, owner, epoch)
}

// TestWhoJoinsAnOlderOwnerIsNotRefusedWithIt: the newer owner asks for the same effect while the older one is about to
// be refused.
func TestWhoJoinsAnOlderOwnerIsNotRefusedWithIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ledger := &heldLedger{Ledger: &memory.Ledger{}, epoch: 1, begun: make(chan struct{}), let: make(chan struct{})}
		r := runner(t, ledger)
		under := func(epoch int64) effect.Request {
			r := request
			r.Key, r.Epoch = effect.Key{Project: "p", ID: "r/7"}, epoch
			return r
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := r.Do(t.Context(), under(1), never)
			assert.ErrorIs(t, err, effect.ErrSuperseded)
		})
		<-ledger.begun
		require.NoError(t, ledger.Fence(t.Context(), under(2).Key, 2))
		wg.Go(func() {
			result, err := r.Do(t.Context(), under(2), func(context.Context, effect.Attempt) ([]byte, error) { return []byte("once"), nil })
			assert.NoError(t, err)
			assert.Equal(t, "once", string(result.Body))
		})
		synctest.Wait()
		close(ledger.let)
		wg.Wait()
	})
}
