// Package budget bounds the tokens and dollars that are spent within a scope (a project, an account, an eval).
//
// A call reserves its estimated cost before it is made and settles its actual cost afterwards. While the reservations
// of calls in flight fill a budget, a further call waits for them to settle; once the budget is spent, it fails. A
// scope without bounds only counts. Providers report the usage of calls: it never reduces the spent amount.
//
// A [Store] keeps what was spent, and the bounds that operators set, across restarts.
package budget

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// Bounds are the limits of a scope.
type Bounds struct {
	// MaxTokens bounds tokens; nil is no bound.
	MaxTokens *int64 `yaml:"max_tokens" json:"max_tokens,omitempty"`
	// MaxCost bounds dollars, of models whose prices are known; nil is no bound.
	MaxCost *float64 `yaml:"max_cost" json:"max_cost,omitempty"`
}

// Check returns the fault of the bounds, and its key. A bound that is negative or not a number would bound nothing, or
// everything.
func (b Bounds) Check() (key string, err error) {
	if b.MaxTokens != nil && *b.MaxTokens < 0 {
		return "max_tokens", errors.New("must not be negative; leave it out for no bound")
	}
	if b.MaxCost != nil && !(*b.MaxCost >= 0 && *b.MaxCost <= math.MaxFloat64) {
		return "max_cost", errors.New("must be a number that is not negative; leave it out for no bound")
	}
	return "", nil
}

// Equal reports whether two bounds bound the same.
func (b Bounds) Equal(other Bounds) bool {
	return equal(b.MaxTokens, other.MaxTokens) && equal(b.MaxCost, other.MaxCost)
}

func equal[T comparable](a, b *T) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}

// CheckScope fails for a scope that no call has, of which nothing would ever be spent.
func CheckScope(scope string) error {
	_, notProject := resource.Parse("", scope)
	_, notEval := resource.Parse("", scope, "evals")
	if notProject != nil && notEval != nil && !resource.IsAccount(scope) {
		return fmt.Errorf("%q is no scope; write projects/{project}, projects/{project}/evals/{eval} or accounts/{provider}/{account}", scope)
	}
	return nil
}

// State is the state of a scope.
type State struct {
	Scope  string
	Bounds Bounds
	// Tokens and Cost were spent; Reserved are the tokens of calls in flight that began when one of their scopes had
	// bounds.
	Tokens   int64
	Cost     float64
	Reserved int64
	// CostPartial means that Cost excludes calls without a known price.
	CostPartial bool
}

// Ledger has the budgets of a process. Its methods are safe for concurrent use.
type Ledger struct {
	mu      sync.Mutex
	scopes  map[string]*State
	names   []string            // of scopes, sorted
	changed chan struct{}       // closed and removed when something was settled or a bound was changed; nil if no call waits
	unsaved map[string]struct{} // scopes whose spending is not in the store; nil without a store

	store Store // nil keeps nothing
	// saving is held while spending is written, so that no older sum follows a newer one.
	saving sync.Mutex
	// changing is held while bounds are replaced here and in the store, so that both end with the same, and guards
	// the next two.
	changing   sync.Mutex
	configured map[string]Bounds
	outdated   []string // scopes with a change in the store over another configuration
	log        *slog.Logger
}

// New returns a ledger in memory with the configured bounds by scope, such as `projects/default`.
func New(configured map[string]Bounds) *Ledger {
	l := &Ledger{scopes: map[string]*State{}, configured: map[string]Bounds{}}
	for scope, b := range configured {
		l.configured[scope] = b
		l.scope(scope).Bounds = b
	}
	return l
}

// retryIn is the retry delay for a spent budget: a person has to raise it.
const retryIn = time.Minute

// Reserve reserves the estimated tokens in the budgets of all scopes, or in none; if no scope has bounds it does not
// call for an estimate. It waits while only reservations prevent it, and fails with RESOURCE_EXHAUSTED
// (BUDGET_EXHAUSTED) when a budget is spent, or with ctx's error. The returned function settles the actual usage, nil
// for none, and must be called once.
func (l *Ledger) Reserve(ctx context.Context, scopes []string, estimate func() int64) (settle func(taken *modelv1.ModelUsage), err error) {
	var tokens int64
	if l.bounded(scopes) {
		tokens = chat.SumTokens(estimate())
	}
	for {
		l.mu.Lock()
		wait, err := l.fits(scopes, tokens)
		if err != nil {
			l.mu.Unlock()
			return nil, err
		}
		if !wait {
			l.reserve(scopes, tokens)
			l.mu.Unlock()
			return func(taken *modelv1.ModelUsage) { l.settle(scopes, tokens, taken) }, nil
		}
		if l.changed == nil {
			l.changed = make(chan struct{})
		}
		changed := l.changed
		l.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// BoundsCost returns the first of the scopes whose budget bounds dollars; empty if there is none. Such a budget works
// only for models whose prices are known.
func (l *Ledger) BoundsCost(scopes []string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, scope := range scopes {
		if s, known := l.scopes[scope]; known && s.Bounds.MaxCost != nil {
			return scope
		}
	}
	return ""
}

func (l *Ledger) bounded(scopes []string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(scopes, func(scope string) bool {
		s, known := l.scopes[scope]
		return known && s.Bounds != Bounds{}
	})
}

// fits reports whether a reservation must wait for others, and fails when a budget is spent.
func (l *Ledger) fits(scopes []string, tokens int64) (wait bool, err error) {
	for _, scope := range scopes {
		s, known := l.scopes[scope]
		if !known {
			continue
		}
		if most := s.Bounds.MaxTokens; most != nil {
			if s.Tokens >= *most {
				return false, spent(scope, "tokens", "max-tokens")
			}
			wait = wait || s.Reserved > 0 && chat.SumTokens(s.Tokens, s.Reserved, tokens) > *most
		}
		if most := s.Bounds.MaxCost; most != nil && s.Cost >= *most {
			return false, spent(scope, "dollars", "max-cost")
		}
	}
	return wait, nil
}

// spent is the error of a budget that has no more of something, which a flag of the command line raises.
func spent(scope, what, flag string) error {
	return rpcerr.BudgetExhausted(scope, retryIn,
		"the budget %[1]s is spent (%[2]s); raise it to go on, as evalfleet limits budget %[1]s --%[3]s does", Name(scope), what, flag)
}

// OfProject and OfAccount end the names of the budgets of a project and of an account as a whole.
const (
	OfProject = "project"
	OfAccount = "account"
)

// Name returns the name of the budget of a scope: the budget of projects/p is projects/p/budgets/project, and that of
// projects/p/evals/e is projects/p/budgets/evals/e.
func Name(scope string) string {
	if strings.HasPrefix(scope, resource.AccountPrefix) {
		return scope + "/budgets/" + OfAccount
	}
	project, below, nested := strings.Cut(strings.TrimPrefix(scope, "projects/"), "/")
	if !nested {
		below = OfProject
	}
	return "projects/" + project + "/budgets/" + below
}

func (l *Ledger) reserve(scopes []string, tokens int64) {
	for _, scope := range scopes {
		l.scope(scope).Reserved += tokens
	}
}

func (l *Ledger) settle(scopes []string, reserved int64, taken *modelv1.ModelUsage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, scope := range scopes {
		s := l.scopes[scope]
		s.Reserved -= reserved
		s.Tokens = chat.SumTokens(s.Tokens, taken.GetTotalTokens())
		s.Cost = chat.SumCost(s.Cost, taken.GetTotalCost())
		s.CostPartial = s.CostPartial || taken.GetCostPartial() || taken != nil && taken.TotalCost == nil && taken.GetTotalTokens() > 0
		if l.unsaved != nil && taken != nil {
			l.unsaved[scope] = struct{}{}
		}
	}
	l.wake()
}

func (l *Ledger) wake() {
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// Bounds returns the bounds of a scope.
func (l *Ledger) Bounds(scope string) Bounds {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s, known := l.scopes[scope]; known {
		return s.Bounds
	}
	return Bounds{}
}

// Set changes the bounds of a scope, as an operator asks for; calls that wait look again. The bounds hold until those
// of the scope's configuration change. It fails, and changes nothing, if the store does.
func (l *Ledger) Set(ctx context.Context, scope string, b Bounds) (State, error) {
	l.changing.Lock()
	defer l.changing.Unlock()
	if l.store != nil {
		if err := l.store.SaveChange(ctx, scope, &Change{Bounds: b, Over: l.configured[scope]}); err != nil {
			return State{}, err
		}
		l.outdated = slices.DeleteFunc(l.outdated, func(outdated string) bool { return outdated == scope })
	}
	return l.bound(scope, b), nil
}

// Configure replaces the bounds of a scope by new ones of the configuration. An error says that the store failed, so
// that bounds which an operator set may come back with a restart.
func (l *Ledger) Configure(ctx context.Context, scope string, b Bounds) error {
	l.changing.Lock()
	defer l.changing.Unlock()
	l.configured[scope] = b
	l.bound(scope, b)
	if l.store == nil {
		return nil
	}
	return l.store.SaveChange(ctx, scope, nil)
}

func (l *Ledger) bound(scope string, b Bounds) State {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.scope(scope)
	s.Bounds = b
	l.wake()
	return *s
}

// scope returns the state of a scope, which it makes at need.
func (l *Ledger) scope(name string) *State {
	s, known := l.scopes[name]
	if !known {
		s = &State{Scope: name}
		l.scopes[name] = s
		at, _ := slices.BinarySearch(l.names, name)
		l.names = slices.Insert(l.names, at, name)
	}
	return s
}

// List returns the scopes that have bounds or were spent from, by name: parent and those below it, of which each comes
// after a name, at most as many as asked for. An empty parent has all.
func (l *Ledger) List(parent, after string, most int) []State {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []State
	if s, known := l.scopes[parent]; known && parent > after {
		all = append(all, *s)
	}
	below := ""
	if parent != "" {
		below = parent + "/"
	}
	at, _ := slices.BinarySearch(l.names, max(below, after))
	for ; at < len(l.names) && len(all) < most && strings.HasPrefix(l.names[at], below); at++ {
		if l.names[at] > after {
			all = append(all, *l.scopes[l.names[at]])
		}
	}
	return all
}
