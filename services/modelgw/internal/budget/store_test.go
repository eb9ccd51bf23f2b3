package budget_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/services/modelgw/internal/budget"
)

// kept is a store whose writes can fail.
type kept struct {
	mu      sync.Mutex
	scopes  map[string]budget.Kept
	failure error
	writes  int
}

func (k *kept) Load(context.Context) (all []budget.Kept, err error) {
	for _, one := range k.scopes {
		all = append(all, one)
	}
	return all, nil
}

func (k *kept) write(scope string, change func(*budget.Kept)) error {
	runtime.Gosched() // Writes take their time.
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.failure != nil {
		return k.failure
	}
	one := k.scopes[scope]
	one.Scope = scope
	change(&one)
	k.scopes[scope] = one
	k.writes++
	return nil
}

func (k *kept) SaveSpent(_ context.Context, spent []budget.Spent) error {
	for _, s := range spent {
		if err := k.write(s.Scope, func(one *budget.Kept) { one.Spent = s }); err != nil {
			return err
		}
	}
	return nil
}

func (k *kept) SaveChange(_ context.Context, scope string, change *budget.Change) error {
	return k.write(scope, func(one *budget.Kept) { one.Change = change })
}

func (k *kept) fail(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.failure = err
}

func open(t testing.TB, configured map[string]budget.Bounds, store budget.Store) *budget.Ledger {
	t.Helper()
	l, err := budget.Open(t.Context(), configured, store, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	return l
}

func TestWhatWasSpentIsSavedEachSecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &kept{scopes: map[string]budget.Kept{}}
		l := open(t, nil, store)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go l.Run(ctx)
		reserve(t, l, 1, "projects/p", "accounts/a/b")(7, 0.5)
		reserve(t, l, 1, "projects/p")(3, 0.25)
		time.Sleep(1100 * time.Millisecond)
		synctest.Wait()
		again := open(t, nil, store)
		assert.Equal(t, []budget.State{{Scope: "accounts/a/b", Tokens: 7, Cost: 0.5}, {Scope: "projects/p", Tokens: 10, Cost: 0.75}}, again.List("", "", 9))
		assert.Equal(t, 2, store.writes)

		time.Sleep(10 * time.Second)
		assert.Equal(t, 2, store.writes, "nothing was spent")

		store.fail(errors.New("the disk is full"))
		reserve(t, l, 1, "projects/p")(1, 0)
		time.Sleep(5 * time.Second)
		store.fail(nil)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.EqualValues(t, 11, open(t, nil, store).List("projects", "", 9)[0].Tokens)
	})
}

// What an operator set holds after a restart, until the configuration of the scope is another one.
func TestBoundsThatAnOperatorSetOutliveTheProcess(t *testing.T) {
	t.Parallel()
	of := func(tokens int64) budget.Bounds { return budget.Bounds{MaxTokens: &tokens} }
	const scope = "projects/p"
	store := &kept{scopes: map[string]budget.Kept{}}
	set(t, open(t, map[string]budget.Bounds{scope: of(10)}, store), scope, of(20))
	assert.Equal(t, of(20), open(t, map[string]budget.Bounds{scope: of(10)}, store).Bounds(scope))
	assert.Equal(t, of(30), open(t, map[string]budget.Bounds{scope: of(30)}, store).Bounds(scope))
	assert.Equal(t, budget.Bounds{}, open(t, nil, store).Bounds(scope))

	l := open(t, map[string]budget.Bounds{scope: of(10)}, store)
	require.NoError(t, l.Configure(t.Context(), scope, of(40)))
	assert.Equal(t, of(40), l.Bounds(scope))
	set(t, l, scope, budget.Bounds{})
	assert.Equal(t, budget.Bounds{}, open(t, map[string]budget.Bounds{scope: of(40)}, store).Bounds(scope), "no bound is a choice too")
	require.NoError(t, l.Configure(t.Context(), scope, of(10)))
	assert.Equal(t, of(10), open(t, map[string]budget.Bounds{scope: of(10)}, store).Bounds(scope))

	store.fail(errors.New("the disk is full"))
	_, err := l.Set(t.Context(), scope, of(50))
	require.ErrorContains(t, err, "the disk is full")
	assert.Equal(t, of(10), l.Bounds(scope), "what is not kept is not promised")
}

// What holds after an operator and a reload have changed a scope at once holds after a restart too.
func TestChangesAtOnceHoldAsTheyAreKept(t *testing.T) {
	t.Parallel()
	of := func(tokens int64) budget.Bounds { return budget.Bounds{MaxTokens: &tokens} }
	const scope = "projects/p"
	store := &kept{scopes: map[string]budget.Kept{}}
	configured := map[string]budget.Bounds{scope: of(0)}
	l := open(t, configured, store)
	for i := range int64(2000) {
		var both sync.WaitGroup
		both.Go(func() { _, _ = l.Set(t.Context(), scope, of(1000+i)) })
		both.Go(func() { assert.NoError(t, l.Configure(t.Context(), scope, of(1+i))) })
		both.Wait()
		configured[scope] = of(1 + i)
		require.Equal(t, open(t, configured, store).Bounds(scope), l.Bounds(scope))
	}
}

// A change ends with the first process whose configuration is another one, also if a later one is as it was before. A
// process that only looks has no Run, and changes nothing.
func TestAChangeDoesNotComeBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		of := func(tokens int64) map[string]budget.Bounds {
			return map[string]budget.Bounds{"projects/p": {MaxTokens: &tokens}, "projects/q": {MaxTokens: &tokens}}
		}
		store := &kept{scopes: map[string]budget.Kept{}}
		bounds := func(tokens int64) []int64 {
			l := open(t, of(tokens), store)
			return []int64{*l.Bounds("projects/p").MaxTokens, *l.Bounds("projects/q").MaxTokens}
		}
		for _, scope := range []string{"projects/p", "projects/q"} {
			set(t, open(t, of(10), store), scope, budget.Bounds{MaxTokens: new(int64(20))})
		}
		assert.Equal(t, []int64{30, 30}, bounds(30))
		assert.Equal(t, []int64{20, 20}, bounds(10))

		l := open(t, of(30), store)
		set(t, l, "projects/q", budget.Bounds{MaxTokens: new(int64(40))})
		ctx, stop := context.WithCancel(t.Context())
		go l.Run(ctx)
		synctest.Wait()
		stop()
		synctest.Wait()
		assert.Equal(t, []int64{10, 10}, bounds(10))
		assert.Equal(t, []int64{30, 40}, bounds(30), "what was set since stays")
	})
}
