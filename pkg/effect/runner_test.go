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
	"go.uber.org/goleak"

	"github.com/evalfleet/evalfleet/pkg/effect"
	"github.com/evalfleet/evalfleet/pkg/effect/memory"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	request = effect.Request{Key: effect.Key{Project: "p", ID: "run/1"}, Hash: effect.Hash{1}}
	errWork = errors.New("work failed")
)

func runner(t *testing.T, ledger effect.Ledger, change ...func(*effect.Config)) *effect.Runner {
	t.Helper()
	cfg := effect.Config{Ledger: ledger, Owner: "here/1"}
	for _, c := range change {
		c(&cfg)
	}
	r, err := effect.New(cfg)
	require.NoError(t, err)
	return r
}

// counted is work that counts its executions.
type counted struct{ runs atomic.Int32 }

func (c *counted) work(context.Context, effect.Attempt) ([]byte, error) {
	return fmt.Appendf(nil, "result %d", c.runs.Add(1)), nil
}

// held is work that begins and then waits to be released.
type held struct {
	begun chan struct{}
	leave chan struct{}
	runs  atomic.Int32
}

func newHeld() *held { return &held{begun: make(chan struct{}), leave: make(chan struct{})} }

func (h *held) work(ctx context.Context, _ effect.Attempt) ([]byte, error) {
	h.runs.Add(1)
	close(h.begun)
	select {
	case <-h.leave:
		return []byte("held result"), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// never is work that must not run.
func never(context.Context, effect.Attempt) ([]byte, error) {
	panic("this work must not run")
}

func TestWorkWithoutKeyBelongsToItsCaller(t *testing.T) {
	t.Parallel()
	r := runner(t, &memory.Ledger{})
	var c counted
	for n := 1; n <= 2; n++ {
		res, err := r.Do(t.Context(), effect.Request{}, c.work)
		require.NoError(t, err)
		assert.Equal(t, fmt.Sprint("result ", n), string(res.Body), "each call is a new thing")
	}
	ctx, cancel := context.WithCancel(t.Context())
	h := newHeld()
	go func() { waittest.Hold(t, h.begun); cancel() }()
	_, err := r.Do(ctx, effect.Request{}, h.work)
	assert.ErrorIs(t, err, context.Canceled)
	_, err = r.Do(t.Context(), effect.Request{Timeout: time.Nanosecond}, newHeld().work)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestKeyIsDoneOnce(t *testing.T) {
	t.Parallel()
	r := runner(t, &memory.Ledger{})
	h := newHeld()
	results := make([]effect.Result, 20)
	var wg sync.WaitGroup
	for i := range results {
		wg.Go(func() {
			var err error
			results[i], err = r.Do(t.Context(), request, h.work)
			assert.NoError(t, err)
		})
	}
	waittest.For(t, h.begun, "the work to begin")
	close(h.leave)
	waittest.Return(t, wg.Wait, "every caller of the key to be answered")
	began := 0
	for _, res := range results {
		assert.Equal(t, "held result", string(res.Body))
		if !res.Joined {
			began++
		}
	}
	assert.Equal(t, 1, began)
	assert.EqualValues(t, 1, h.runs.Load())

	res, err := r.Do(t.Context(), request, never)
	require.NoError(t, err, "kept for those who come later")
	assert.Equal(t, effect.Result{Body: []byte("held result"), Joined: true}, res)
}

func TestWorkOutlivesItsCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := runner(t, &memory.Ledger{})
		type traceKey struct{}
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), traceKey{}, "trace"), time.Second)
		defer cancel()
		work := func(ctx context.Context, _ effect.Attempt) ([]byte, error) {
			time.Sleep(time.Minute)
			return fmt.Append(nil, ctx.Value(traceKey{})), ctx.Err()
		}
		_, err := r.Do(ctx, request, work)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		res, err := r.Attach(t.Context(), request.Key)
		require.NoError(t, err)
		assert.Equal(t, effect.Result{Body: []byte("trace"), Joined: true}, res)
	})
}

func TestTimeoutEndsTheWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := runner(t, &memory.Ledger{})
		req := request
		req.Timeout = time.Minute
		begin := time.Now()
		_, err := r.Do(t.Context(), req, newHeld().work)
		assert.EqualError(t, err, context.DeadlineExceeded.Error())
		assert.Equal(t, time.Minute, time.Since(begin))
		_, err = r.Do(t.Context(), req, never)
		assert.EqualError(t, err, context.DeadlineExceeded.Error(), "the timeout is the outcome")
	})
}

// faultyLedger fails or delays Finish.
type faultyLedger struct {
	effect.Ledger
	finish func() error // before the real one
	yield  func() error // so too
}

func (l *faultyLedger) Finish(ctx context.Context, key effect.Key, owner string, out effect.Outcome) error {
	if l.finish != nil {
		if err := l.finish(); err != nil {
			return err
		}
	}
	return l.Ledger.Finish(ctx, key, owner, out)
}

func (l *faultyLedger) Yield(ctx context.Context, owner string, keys ...effect.Key) error {
	if l.yield != nil {
		if err := l.yield(); err != nil {
			return err
		}
	}
	return l.Ledger.Yield(ctx, owner, keys...)
}

func TestResultIsKeptBeforeItIsSeen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		leave := make(chan struct{})
		r := runner(t, &faultyLedger{Ledger: &memory.Ledger{}, finish: func() error { <-leave; return nil }})
		var c counted
		answered := make(chan error, 1)
		go func() {
			_, err := r.Do(t.Context(), request, c.work)
			answered <- err
		}()
		synctest.Wait()
		assert.EqualValues(t, 1, c.runs.Load())
		assert.Empty(t, answered)
		close(leave)
		assert.NoError(t, <-answered)
	})
}

// TestAResultOutlivesALedgerThatIsAway: the work is done and paid for, and is not done again.
func TestAResultOutlivesALedgerThatIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		back := time.Now().Add(10 * time.Minute)
		r := runner(t, &faultyLedger{Ledger: &memory.Ledger{}, finish: func() error {
			if time.Now().Before(back) {
				return fmt.Errorf("finish: %w", rpcerr.StoreUnavailable("full", time.Second, "the disk is full"))
			}
			return nil
		}})
		var c counted
		_, err := r.Do(t.Context(), request, c.work)
		require.NoError(t, err)
		assert.EqualValues(t, 1, c.runs.Load())
	})
}

func TestErrorIsAnOutcome(t *testing.T) {
	t.Parallel()
	coded := map[string]error{"E1": errWork}
	r := runner(t, &memory.Ledger{}, func(c *effect.Config) {
		c.EncodeError = func(error) []byte { return []byte("E1") }
		c.DecodeError = func(code []byte) error { return coded[string(code)] }
	})
	_, err := r.Do(t.Context(), request, func(context.Context, effect.Attempt) ([]byte, error) {
		return nil, fmt.Errorf("deep inside: %w", errWork)
	})
	assert.Equal(t, errWork, err, "the first caller sees what later ones will")
	_, err = r.Do(t.Context(), request, never)
	assert.Equal(t, errWork, err)
	_, err = r.Attach(t.Context(), request.Key)
	assert.Equal(t, errWork, err)
}

func TestWorkThatHasNotStartedLeavesTheKeyFree(t *testing.T) {
	t.Parallel()
	r := runner(t, &memory.Ledger{})
	_, err := r.Do(t.Context(), request, func(context.Context, effect.Attempt) ([]byte, error) {
		return nil, fmt.Errorf("queue: %w", effect.NotStarted(errWork))
	})
	assert.ErrorIs(t, err, errWork)
	_, err = r.Attach(t.Context(), request.Key)
	assert.ErrorIs(t, err, effect.ErrUnknown, "nothing has happened")
	res, err := r.Do(t.Context(), request, new(counted).work)
	require.NoError(t, err)
	assert.Equal(t, "result 1", string(res.Body))
}

func TestPanicIsAnOutcome(t *testing.T) {
	t.Parallel()
	r := runner(t, &memory.Ledger{})
	oops := func(context.Context, effect.Attempt) ([]byte, error) { panic("secret") }
	_, err := r.Do(t.Context(), request, oops)
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "secret")
	_, again := r.Do(t.Context(), request, never)
	assert.Equal(t, err, again)

	_, err = r.Do(t.Context(), effect.Request{}, oops)
	var p *effect.PanicError
	require.ErrorAs(t, err, &p)
	assert.Equal(t, "secret", p.Value)
}

func TestOtherContentIsRefused(t *testing.T) {
	t.Parallel()
	r := runner(t, &memory.Ledger{})
	other := request
	other.Hash = effect.Hash{2}
	h := newHeld()
	done := make(chan error, 1)
	go func() {
		_, err := r.Do(context.Background(), request, h.work)
		done <- err
	}()
	waittest.For(t, h.begun, "the work to begin")
	_, err := r.Do(t.Context(), other, never)
	assert.ErrorIs(t, err, effect.ErrContentMismatch, "while it runs")
	close(h.leave)
	require.NoError(t, waittest.For(t, done, "the answer of the work"))
	_, err = r.Do(t.Context(), other, never)
	assert.ErrorIs(t, err, effect.ErrContentMismatch, "when it is done")
}

func TestInvalidRequestsAreRefused(t *testing.T) {
	t.Parallel()
	r := runner(t, &memory.Ledger{})
	long := effect.Key{Project: "p", ID: strings.Repeat("x", effect.MaxIDBytes+1)}
	_, err := r.Do(t.Context(), effect.Request{Key: long}, never)
	assert.ErrorIs(t, err, effect.ErrInvalidKey)
	_, err = r.Attach(t.Context(), effect.Key{})
	assert.ErrorIs(t, err, effect.ErrInvalidKey)
	_, err = r.Cancel(t.Context(), effect.Key{})
	assert.ErrorIs(t, err, effect.ErrInvalidKey)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = r.Do(ended, request, never)
	assert.ErrorIs(t, err, context.Canceled)
}

func TestNewChecksItsConfig(t *testing.T) {
	t.Parallel()
	for _, cfg := range []effect.Config{
		{},
		{Ledger: &memory.Ledger{}},
		{Owner: "a"},
		{Ledger: &memory.Ledger{}, Owner: "a", EncodeError: func(error) []byte { return nil }},
	} {
		_, err := effect.New(cfg)
		assert.Error(t, err)
	}
}

func TestReleasedKeyIsNotDoneAgain(t *testing.T) {
	t.Parallel()
	ledger := &memory.Ledger{}
	r := runner(t, ledger)
	_, err := r.Do(t.Context(), request, new(counted).work)
	require.NoError(t, err)
	require.NoError(t, ledger.Release(t.Context(), request.Key))
	_, err = r.Do(t.Context(), request, never)
	assert.ErrorIs(t, err, effect.ErrReleased)
	_, err = r.Attach(t.Context(), request.Key)
	assert.ErrorIs(t, err, effect.ErrReleased)
}

func TestResultIsOfferedToAFailingLedgerForAWhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var broken atomic.Bool
		broken.Store(true)
		ledger := &faultyLedger{Ledger: &memory.Ledger{}}
		ledger.finish = func() error {
			if broken.Load() {
				return errors.New("disk full")
			}
			return nil
		}
		r := runner(t, ledger)
		time.AfterFunc(10*time.Second, func() { broken.Store(false) })
		var c counted
		res, err := r.Do(t.Context(), request, c.work)
		require.NoError(t, err)
		assert.Equal(t, "result 1", string(res.Body))

		broken.Store(true)
		lost := request
		lost.Key.ID = "lost"
		_, err = r.Do(t.Context(), lost, c.work)
		assert.ErrorContains(t, err, "disk full")
		broken.Store(false)
		_, err = r.Attach(t.Context(), lost.Key)
		assert.ErrorIs(t, err, effect.ErrLost)
		_, err = r.Do(t.Context(), lost, never)
		assert.ErrorIs(t, err, effect.ErrIndeterminate, "as if the process had died with the result")
	})
}

func TestWhoHoldsAnOutcomeHearsWhenItIsKept(t *testing.T) {
	t.Parallel()
	ledger := &memory.Ledger{}
	kept := 0
	req := request
	req.Kept = func() {
		kept++
		rec, err := ledger.Lookup(t.Context(), req.Key)
		assert.NoError(t, err)
		assert.Equal(t, effect.Done, rec.State, "it is in the ledger by then")
	}
	r := runner(t, ledger)
	for range 2 {
		_, err := r.Do(t.Context(), req, new(counted).work)
		require.NoError(t, err)
	}
	assert.Equal(t, 1, kept, "an outcome that was there has nobody who holds it")
}

func TestWorkThatSaysItWasCutShortYields(t *testing.T) {
	t.Parallel()
	ledger := &memory.Ledger{}
	r := runner(t, ledger)
	req := request
	req.Reissue = true
	_, err := r.Do(t.Context(), req, func(context.Context, effect.Attempt) ([]byte, error) { return nil, effect.ErrDraining })
	require.ErrorIs(t, err, effect.ErrDraining)
	rec, err := ledger.Lookup(t.Context(), req.Key)
	require.NoError(t, err)
	assert.Equal(t, effect.Yielded, rec.State)
	_, err = r.Do(t.Context(), req, func(_ context.Context, attempt effect.Attempt) ([]byte, error) {
		assert.Equal(t, 1, attempt.Reissued, "whoever goes on knows that something may have happened")
		return nil, nil
	})
	require.NoError(t, err)
}

// TestNoOwnerKeepsThatAStoreOrAServiceWasAway: every later call with the key would get that.
func TestNoOwnerKeepsThatAStoreOrAServiceWasAway(t *testing.T) {
	t.Parallel()
	for _, away := range []error{
		fmt.Errorf("write a record: %w", rpcerr.StoreUnavailable("full", time.Second, "the disk is full")), rpcerr.ServiceUnavailable("other", time.Second, "stopping"),
	} {
		synctest.Test(t, func(t *testing.T) {
			back := time.Now().Add(time.Minute)
			ledger := &faultyLedger{Ledger: &memory.Ledger{}, yield: func() error {
				if time.Now().Before(back) {
					return rpcerr.StoreUnavailable("full", time.Second, "the disk is full")
				}
				return nil
			}}
			r := runner(t, ledger, withRPCErrors)
			fails := func(context.Context, effect.Attempt) ([]byte, error) { return nil, away }
			again := request
			again.Reissue = true
			_, err := r.Do(t.Context(), again, fails)
			assert.Equal(t, rpcerr.Reason(away), rpcerr.Reason(err))
			_, err = r.Attach(t.Context(), again.Key)
			require.ErrorIs(t, err, effect.ErrLost)
			res, err := r.Do(t.Context(), again, new(counted).work)
			require.NoError(t, err)
			assert.Equal(t, "result 1", string(res.Body))

			once := request
			once.Key.ID = "once"
			_, err = r.Do(t.Context(), once, fails)
			require.ErrorIs(t, err, effect.ErrIndeterminate)
			_, err = r.Do(t.Context(), once, never)
			assert.ErrorIs(t, err, effect.ErrIndeterminate)
		})
	}
}

func withRPCErrors(c *effect.Config) { c.EncodeError, c.DecodeError = rpcerr.Encode, rpcerr.Decode }
