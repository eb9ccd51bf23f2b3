// Package budget bounds the tokens and dollars that are spent within a scope (a project, an account, an eval).
//
// A call reserves its estimated cost before it is made and settles its actual cost afterwards. While the reservations
// of calls in flight fill a budget, a further call waits for them to settle; once the budget is spent, it fails. A
// scope without bounds only counts. Providers report the usage of calls: it never reduces the spent amount.
package budget

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	MaxTokens *int64 `yaml:"max_tokens"`
	// MaxCost bounds dollars, of models whose prices are known; nil is no bound.
	MaxCost *float64 `yaml:"max_cost"`
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
	parts := strings.Split(scope, "/")
	_, notProject := resource.Parse("", scope)
	_, notEval := resource.Parse("", scope, "evals")
	isAccount := len(parts) == 3 && parts[0] == "accounts" && parts[1] != "" && parts[2] != ""
	if notProject != nil && notEval != nil && !isAccount {
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

// Memory keeps budgets in the process. Its methods are safe for concurrent use.
type Memory struct {
	mu      sync.Mutex
	scopes  map[string]*State
	changed chan struct{} // closed and removed when something was settled or a bound was changed; nil if no call waits
}

// NewMemory returns budgets with bounds by scope, such as `projects/default`.
func NewMemory(bounds map[string]Bounds) *Memory {
	m := &Memory{scopes: map[string]*State{}}
	for scope, b := range bounds {
		m.scopes[scope] = &State{Scope: scope, Bounds: b}
	}
	return m
}

// retryIn is the retry delay for a spent budget: a person has to raise it.
const retryIn = time.Minute

// Reserve reserves the estimated tokens in the budgets of all scopes, or in none; if no scope has bounds it does not
// call for an estimate. It waits while only reservations prevent it, and fails with RESOURCE_EXHAUSTED
// (BUDGET_EXHAUSTED) when a budget is spent, or with ctx's error. The returned function settles the actual usage, nil
// for none, and must be called once.
func (m *Memory) Reserve(ctx context.Context, scopes []string, estimate func() int64) (settle func(taken *modelv1.ModelUsage), err error) {
	var tokens int64
	if m.bounded(scopes) {
		tokens = chat.SumTokens(estimate())
	}
	for {
		m.mu.Lock()
		wait, err := m.fits(scopes, tokens)
		if err != nil {
			m.mu.Unlock()
			return nil, err
		}
		if !wait {
			m.reserve(scopes, tokens)
			m.mu.Unlock()
			return func(taken *modelv1.ModelUsage) { m.settle(scopes, tokens, taken) }, nil
		}
		if m.changed == nil {
			m.changed = make(chan struct{})
		}
		changed := m.changed
		m.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// BoundsCost returns the first of the scopes whose budget bounds dollars; empty if there is none. Such a budget works
// only for models whose prices are known.
func (m *Memory) BoundsCost(scopes []string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, scope := range scopes {
		if s, known := m.scopes[scope]; known && s.Bounds.MaxCost != nil {
			return scope
		}
	}
	return ""
}

func (m *Memory) bounded(scopes []string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(scopes, func(scope string) bool {
		s, known := m.scopes[scope]
		return known && s.Bounds != Bounds{}
	})
}

// fits reports whether a reservation must wait for others, and fails when a budget is spent.
func (m *Memory) fits(scopes []string, tokens int64) (wait bool, err error) {
	for _, scope := range scopes {
		s, known := m.scopes[scope]
		if !known {
			continue
		}
		if most := s.Bounds.MaxTokens; most != nil {
			if s.Tokens >= *most {
				return false, spent(scope, "tokens")
			}
			wait = wait || s.Reserved > 0 && chat.SumTokens(s.Tokens, s.Reserved, tokens) > *most
		}
		if most := s.Bounds.MaxCost; most != nil && s.Cost >= *most {
			return false, spent(scope, "dollars")
		}
	}
	return wait, nil
}

func spent(scope, what string) error {
	return rpcerr.BudgetExhausted(scope, retryIn, "the budget %s is spent (%s); raise it to go on", Name(scope), what)
}

// Name returns the name of the budget of a scope: the budget of projects/p is projects/p/budgets/project, and that of
// projects/p/evals/e is projects/p/budgets/evals/e.
func Name(scope string) string {
	if strings.HasPrefix(scope, "accounts/") {
		return scope + "/budgets/account"
	}
	project, below, nested := strings.Cut(strings.TrimPrefix(scope, "projects/"), "/")
	if !nested {
		below = "project"
	}
	return "projects/" + project + "/budgets/" + below
}

func (m *Memory) reserve(scopes []string, tokens int64) {
	for _, scope := range scopes {
		s, known := m.scopes[scope]
		if !known {
			s = &State{Scope: scope}
			m.scopes[scope] = s
		}
		s.Reserved += tokens
	}
}

func (m *Memory) settle(scopes []string, reserved int64, taken *modelv1.ModelUsage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, scope := range scopes {
		s := m.scopes[scope]
		s.Reserved -= reserved
		s.Tokens = chat.SumTokens(s.Tokens, taken.GetTotalTokens())
		s.Cost = chat.SumCost(s.Cost, taken.GetTotalCost())
		s.CostPartial = s.CostPartial || taken.GetCostPartial() || taken != nil && taken.TotalCost == nil && taken.GetTotalTokens() > 0
	}
	m.wake()
}

func (m *Memory) wake() {
	if m.changed != nil {
		close(m.changed)
		m.changed = nil
	}
}

// Bounds returns the bounds of a scope.
func (m *Memory) Bounds(scope string) Bounds {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s, known := m.scopes[scope]; known {
		return s.Bounds
	}
	return Bounds{}
}

// Set changes the bounds of a scope; calls that wait look again.
func (m *Memory) Set(scope string, b Bounds) State {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, known := m.scopes[scope]
	if !known {
		s = &State{Scope: scope}
		m.scopes[scope] = s
	}
	s.Bounds = b
	m.wake()
	return *s
}

// List returns the scopes that begin with prefix and have bounds or were spent from, by name.
func (m *Memory) List(prefix string) []State {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []State
	for scope, s := range m.scopes {
		if strings.HasPrefix(scope, prefix) {
			all = append(all, *s)
		}
	}
	slices.SortFunc(all, func(a, b State) int { return cmp.Compare(a.Scope, b.Scope) })
	return all
}
