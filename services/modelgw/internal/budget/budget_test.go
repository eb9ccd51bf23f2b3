package budget_test

import (
	"context"
	"math"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/budget"
)

func reserve(t testing.TB, m *budget.Ledger, tokens int64, scopes ...string) func(int64, float64) {
	t.Helper()
	settle, err := m.Reserve(t.Context(), scopes, func() int64 { return tokens })
	require.NoError(t, err)
	return func(tokens int64, cost float64) { settle(used(tokens, cost)) }
}

func set(t testing.TB, m *budget.Ledger, scope string, b budget.Bounds) {
	t.Helper()
	_, err := m.Set(t.Context(), scope, b)
	require.NoError(t, err)
}

func used(tokens int64, cost float64) *modelv1.ModelUsage {
	return &modelv1.ModelUsage{TotalTokens: tokens, TotalCost: &cost}
}

func TestASumWithoutThePriceOfACallSaysThatItIsPartial(t *testing.T) {
	t.Parallel()
	m := budget.New(nil)
	for _, step := range []struct {
		taken   *modelv1.ModelUsage
		partial bool
	}{{used(7, 0.5), false}, {nil, false}, {&modelv1.ModelUsage{}, false}, {&modelv1.ModelUsage{TotalTokens: 1}, true}, {used(7, 0.5), true}} {
		settle, err := m.Reserve(t.Context(), []string{"projects/p"}, func() int64 { return 1 })
		require.NoError(t, err)
		settle(step.taken)
		assert.Equal(t, step.partial, m.List("projects", "", 9)[0].CostPartial)
	}
}

func TestAScopeWithoutBoundsIsCounted(t *testing.T) {
	t.Parallel()
	m := budget.New(nil)
	settle, err := m.Reserve(t.Context(), []string{"projects/p"}, func() int64 { t.Error("nobody needs to know"); return 1 })
	require.NoError(t, err)
	settle(used(7, 0.5))
	assert.Equal(t, []budget.State{{Scope: "projects/p", Tokens: 7, Cost: 0.5}}, m.List("projects", "", 9))
}

func TestASpentBudgetFailsInAllScopesOrNone(t *testing.T) {
	t.Parallel()
	m := budget.New(map[string]budget.Bounds{"a": {MaxTokens: new(int64(10))}, "b": {MaxCost: new(1.0)}})
	reserve(t, m, 5, "a", "b")(10, 0)
	_, err := m.Reserve(t.Context(), []string{"b", "a"}, func() int64 { return 1 })
	require.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_BUDGET_EXHAUSTED), err)
	e, _ := rpcerr.As(err)
	assert.Equal(t, "a", e.Metadata["scope"])
	for _, s := range m.List("", "", 9) {
		assert.Zero(t, s.Reserved, "nothing is reserved by a call that fails")
	}
	reserve(t, m, 1, "b")(0, 1.0)
	_, err = m.Reserve(t.Context(), []string{"b"}, func() int64 { return 1 })
	require.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_BUDGET_EXHAUSTED), err)
}

func TestACallLargerThanTheBudgetIsLetInAlone(t *testing.T) {
	t.Parallel()
	m := budget.New(map[string]budget.Bounds{"a": {MaxTokens: new(int64(10))}})
	settle := reserve(t, m, 100, "a") // an estimate; what it will spend is not known
	settle(5, 0)
	assert.Equal(t, int64(5), m.List("a", "", 9)[0].Tokens)
}

func TestAWaitEndsWithASettlementABoundOrTheCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := budget.New(map[string]budget.Bounds{"a": {MaxTokens: new(int64(10))}})
		settle := reserve(t, m, 8, "a")
		results := make(chan error, 1)
		start := func(ctx context.Context) {
			go func() {
				done, err := m.Reserve(ctx, []string{"a"}, func() int64 { return 8 })
				if err == nil {
					done(nil)
				}
				results <- err
			}()
			synctest.Wait()
			require.Empty(t, results, "the call must wait")
		}
		start(t.Context())
		set(t, m, "a", budget.Bounds{MaxTokens: new(int64(20))})
		require.NoError(t, <-results)

		set(t, m, "a", budget.Bounds{MaxTokens: new(int64(10))})
		ctx, cancel := context.WithCancel(t.Context())
		start(ctx)
		cancel()
		require.ErrorIs(t, <-results, context.Canceled)

		start(t.Context())
		settle(1, 0)
		require.NoError(t, <-results)
	})
}

// What calls took is said by providers.
func TestNothingThatIsSaidRefillsABudget(t *testing.T) {
	t.Parallel()
	for name, spent := range map[string]struct {
		tokens int64
		cost   float64
	}{
		"negative":     {-1_000_000, -1_000_000},
		"no number":    {math.MinInt64, math.NaN()},
		"too much":     {math.MaxInt64, math.Inf(1)},
		"too negative": {math.MinInt64, math.Inf(-1)},
	} {
		m := budget.New(map[string]budget.Bounds{"tokens": {MaxTokens: new(int64(10))}, "cost": {MaxCost: new(10.0)}})
		for range 3 {
			reserve(t, m, 1, "free")(spent.tokens, spent.cost)
		}
		reserve(t, m, 1, "tokens")(10, 0)
		reserve(t, m, 1, "cost")(0, 10)
		set(t, m, "both", budget.Bounds{MaxTokens: new(int64(10)), MaxCost: new(10.0)})
		reserve(t, m, 1, "both")(spent.tokens, spent.cost)
		for _, s := range m.List("", "", 9) {
			assert.GreaterOrEqual(t, s.Tokens, int64(0), "%s: %s", name, s.Scope)
			assert.GreaterOrEqual(t, s.Cost, 0.0, "%s: %s", name, s.Scope)
			assert.False(t, math.IsInf(s.Cost, 0), "%s: %s", name, s.Scope)
			assert.Zero(t, s.Reserved)
		}
	}
}

// A list begins after a name, has no more scopes than asked for, and none of another parent.
func TestScopesAreListedInPages(t *testing.T) {
	t.Parallel()
	m := budget.New(nil)
	for _, scope := range []string{"projects/p/evals/b", "projects/p-2", "projects/p", "projects/q/evals/a", "projects/p/evals/a", "accounts/x/y"} {
		set(t, m, scope, budget.Bounds{})
	}
	names := func(parent, after string, most int) (all []string) {
		for _, s := range m.List(parent, after, most) {
			all = append(all, s.Scope)
		}
		return all
	}
	assert.Equal(t, []string{"projects/p", "projects/p/evals/a", "projects/p/evals/b"}, names("projects/p", "", 9))
	assert.Equal(t, []string{"projects/p", "projects/p/evals/a"}, names("projects/p", "", 2))
	assert.Equal(t, []string{"projects/p/evals/a"}, names("projects/p", "projects/p", 1))
	assert.Equal(t, []string{"projects/p/evals/b"}, names("projects/p", "projects/p/evals/a", 9))
	assert.Empty(t, names("projects/p", "projects/p/evals/b", 9))
	assert.Empty(t, names("projects/none", "", 9))
	assert.Len(t, names("", "", 9), 6)
}

// An estimate has parts that the caller says, such as max_tokens.
func TestAnEstimateNeitherRefillsABudgetNorOverflowsIt(t *testing.T) {
	t.Parallel()
	m := budget.New(map[string]budget.Bounds{"a": {MaxTokens: new(int64(100))}})
	first := reserve(t, m, math.MinInt64, "a")
	assert.Zero(t, m.List("a", "", 9)[0].Reserved)
	second := reserve(t, m, math.MaxInt64, "a")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := m.Reserve(ctx, []string{"a"}, func() int64 { return math.MaxInt64 })
	require.ErrorIs(t, err, context.Canceled, "it waits for the second")
	first(0, 0)
	second(0, 0)
	assert.Zero(t, m.List("a", "", 9)[0].Reserved)
}

func TestABudgetIsNamedByItsScope(t *testing.T) {
	t.Parallel()
	for scope, want := range map[string]string{
		"projects/p":              "projects/p/budgets/project",
		"projects/p/evals/e":      "projects/p/budgets/evals/e",
		"accounts/openai/default": "accounts/openai/default/budgets/account",
	} {
		assert.Equal(t, want, budget.Name(scope))
	}
}
