package budget

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"
)

// Store keeps budgets across restarts of a process, which has it to itself. Its methods are safe for concurrent use.
type Store interface {
	// Load returns all that is kept.
	Load(ctx context.Context) ([]Kept, error)
	// SaveSpent replaces what was spent in some scopes, in all of them or in none.
	SaveSpent(ctx context.Context, spent []Spent) error
	// SaveChange replaces the change of a scope's bounds; nil forgets it.
	SaveChange(ctx context.Context, scope string, change *Change) error
}

// Kept is what is kept of a scope.
type Kept struct {
	Spent
	// Change is nil if no operator set the bounds.
	Change *Change
}

// Spent is what was spent in a scope.
type Spent struct {
	Scope       string
	Tokens      int64
	Cost        float64
	CostPartial bool
}

// Change are bounds that an operator set.
type Change struct {
	Bounds Bounds `json:"bounds"`
	// Over are the configured bounds that they replace. A process whose configuration has others ignores the change,
	// and forgets it if it has a [Ledger.Run].
	Over Bounds `json:"over"`
}

// saveEvery is how often spending is saved: a process that is killed loses what was settled after the last time.
const saveEvery = time.Second

// Open returns a ledger with the configured bounds and with what a store kept. [Ledger.Run] saves what is spent.
func Open(ctx context.Context, configured map[string]Bounds, store Store, log *slog.Logger) (*Ledger, error) {
	all, err := store.Load(ctx)
	if err != nil {
		return nil, err
	}
	l := New(configured)
	l.store, l.log, l.unsaved = store, log, map[string]struct{}{}
	slices.SortFunc(all, func(a, b Kept) int { return strings.Compare(a.Scope, b.Scope) }) // Each is then the last name.
	for _, kept := range all {
		s := l.scope(kept.Scope)
		s.Tokens, s.Cost, s.CostPartial = kept.Tokens, kept.Cost, kept.CostPartial
		switch change := kept.Change; {
		case change == nil:
		case change.Over.Equal(configured[kept.Scope]):
			s.Bounds = change.Bounds
		default:
			l.outdated = append(l.outdated, kept.Scope)
		}
	}
	return l, nil
}

// Run forgets changes of bounds that the configuration has overtaken, and saves what is spent, each second, until ctx
// ends. Call [Ledger.Save] after the last call.
func (l *Ledger) Run(ctx context.Context) {
	l.forgetOutdated(ctx)
	tick := time.NewTicker(saveEvery)
	defer tick.Stop()
	failed := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := l.Save(ctx)
		if err != nil && ctx.Err() == nil && !failed {
			l.log.WarnContext(ctx, "what was spent of budgets is not saved; it is tried again each second", "error", err)
		}
		failed = err != nil
	}
}

func (l *Ledger) forgetOutdated(ctx context.Context) {
	l.changing.Lock()
	defer l.changing.Unlock()
	for _, scope := range l.outdated {
		if err := l.store.SaveChange(ctx, scope, nil); err != nil && ctx.Err() == nil {
			l.log.WarnContext(ctx, "the bounds that an operator set for a budget come back if its configuration is again what it was",
				"scope", scope, "error", err)
		}
	}
	l.outdated = nil
}

// Save saves what was spent since the last time. What cannot be saved is saved with the next time.
func (l *Ledger) Save(ctx context.Context) error {
	l.saving.Lock()
	defer l.saving.Unlock()
	spent := l.takeUnsaved()
	if len(spent) == 0 {
		return nil
	}
	err := l.store.SaveSpent(ctx, spent)
	if err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, s := range spent {
			l.unsaved[s.Scope] = struct{}{}
		}
	}
	return err
}

func (l *Ledger) takeUnsaved() []Spent {
	l.mu.Lock()
	defer l.mu.Unlock()
	var spent []Spent
	for scope := range l.unsaved {
		s := l.scopes[scope]
		spent = append(spent, Spent{Scope: scope, Tokens: s.Tokens, Cost: s.Cost, CostPartial: s.CostPartial})
	}
	clear(l.unsaved)
	return spent
}
