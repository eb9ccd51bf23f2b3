package server

import (
	"context"
	"errors"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/evalfleet/evalfleet/pkg/enum"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/limit"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/budget"
)

// allAccounts is the parent of the pools of every account.
const allAccounts = "accounts/-/-"

// ListConnectionPools implements LimitService.
func (s *Server) ListConnectionPools(ctx context.Context, r *modelv1.ListConnectionPoolsRequest) (*modelv1.ListConnectionPoolsResponse, error) {
	if r.GetParent() != allAccounts {
		if err := s.checkAccount("parent", r.GetParent()); err != nil {
			return nil, err
		}
	}
	page, err := resource.PageOf(r)
	if err != nil {
		return nil, err
	}
	pools, err := s.Limiter.Pools(ctx)
	if err != nil {
		return nil, err
	}
	answer := &modelv1.ListConnectionPoolsResponse{}
	var all []*modelv1.ConnectionPool
	for _, p := range pools {
		account, name := poolName(p.Key)
		if (r.GetParent() == allAccounts || r.GetParent() == account) && name > page.After {
			all = append(all, poolMessage(p))
		}
	}
	slices.SortFunc(all, func(a, b *modelv1.ConnectionPool) int { return strings.Compare(a.GetName(), b.GetName()) })
	answer.ConnectionPools, answer.NextPageToken = resource.Cut(page, all, (*modelv1.ConnectionPool).GetName)
	return answer, nil
}

// UpdateConnectionPool implements LimitService.
func (s *Server) UpdateConnectionPool(ctx context.Context, r *modelv1.UpdateConnectionPoolRequest) (*modelv1.ConnectionPool, error) {
	name := r.GetConnectionPool().GetName()
	if account, _, ok := strings.Cut(name, poolsOf); !ok || !resource.IsAccount(account) {
		return nil, rpcerr.InvalidField("connection_pool.name", "%q is not of the form accounts/{provider}/{account}/connectionPools/{connection_pool}", name)
	}
	paths, err := resource.Mask(r.GetUpdateMask(), r.GetConnectionPool(), "limit", "max")
	if err != nil {
		return nil, err
	}
	s.retuning.Lock()
	defer s.retuning.Unlock()
	pools, err := s.Limiter.Pools(ctx)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(pools, func(p limit.Pool) bool { _, other := poolName(p.Key); return other == name })
	if at < 0 {
		return nil, rpcerr.ResourceNotFound(name)
	}
	if err := resource.Etag(name, r.GetConnectionPool().GetEtag(), poolMessage(pools[at]).GetEtag()); err != nil {
		return nil, err
	}
	field, most := poolBound(pools[at].Adaptive), r.GetConnectionPool().GetLimit()
	if pools[at].Adaptive {
		most = r.GetConnectionPool().GetMax()
	}
	if !slices.Contains(paths, field) {
		return nil, rpcerr.InvalidField("update_mask", "of %s only %s can be set: limit of a static pool, max of an adaptive one", name, field)
	}
	p, err := s.Limiter.SetMax(ctx, pools[at].Key, int(most))
	switch {
	case errors.Is(err, limit.ErrUnknownPool):
		return nil, rpcerr.ResourceNotFound(name)
	case errors.Is(err, limit.ErrTooLow):
		return nil, rpcerr.InvalidField("connection_pool."+field, "%v", err)
	case err != nil:
		return nil, err
	}
	return poolMessage(p), nil
}

// poolBound returns the field of a pool that an operator can set.
func poolBound(adaptive bool) string {
	if adaptive {
		return "max"
	}
	return "limit"
}

// poolsOf follows the account in a pool's name; defaultPool is the pool that all models of an account share.
const (
	poolsOf     = "/connectionPools/"
	defaultPool = "default"
)

// poolName returns the names of a pool and of its account. A key is `provider/account` or `provider/account/pool`.
func poolName(key string) (account, name string) {
	parts := strings.SplitN(key, "/", 3)
	pool := defaultPool
	if len(parts) == 3 {
		pool = parts[2]
	}
	account = resource.AccountPrefix + strings.Join(parts[:min(2, len(parts))], "/")
	return account, account + poolsOf + pool
}

// checkAccount fails for a name that is not that of a configured account.
func (s *Server) checkAccount(field, name string) error {
	if !resource.IsAccount(name) {
		return rpcerr.InvalidField(field, "%q is not of the form accounts/{provider}/{account}", name)
	}
	if known := s.Settings.Get().Accounts; !slices.Contains(known, name) {
		return rpcerr.InvalidField(field, "%q is no account that is configured; known are %s", name, strings.Join(known, ", "))
	}
	return nil
}

func poolMessage(p limit.Pool) *modelv1.ConnectionPool {
	_, name := poolName(p.Key)
	message := &modelv1.ConnectionPool{
		Name: name, Limit: int32(p.Limit), InFlight: int32(p.InUse), Waiting: int32(p.Waiting),
		Adaptive: p.Adaptive, Max: int32(p.Max),
	}
	message.Etag = resource.EtagOf(message, []string{poolBound(p.Adaptive)}, p.Adaptive)
	for _, c := range p.History {
		message.History = append(message.History, &modelv1.ConnectionPoolChange{
			Time: timestamppb.New(c.Time), OldLimit: int32(c.Old), NewLimit: int32(c.New), Reason: poolChange(c.Reason), Model: c.Subject,
		})
	}
	return message
}

// Budgets of a project are its own scope and those below it; an account has one.

// ListBudgets implements LimitService.
func (s *Server) ListBudgets(_ context.Context, r *modelv1.ListBudgetsRequest) (*modelv1.ListBudgetsResponse, error) {
	if err := s.checkBudgetsParent("parent", r.GetParent()); err != nil {
		return nil, err
	}
	page, err := resource.PageOf(r)
	if err != nil {
		return nil, err
	}
	answer := &modelv1.ListBudgetsResponse{}
	states := s.Budgets.List(r.GetParent(), page.After, page.Size+1)
	states, answer.NextPageToken = resource.Cut(page, states, func(state budget.State) string { return state.Scope })
	for _, state := range states {
		answer.Budgets = append(answer.Budgets, budgetMessage(state))
	}
	return answer, nil
}

// UpdateBudget implements LimitService.
func (s *Server) UpdateBudget(ctx context.Context, r *modelv1.UpdateBudgetRequest) (*modelv1.Budget, error) {
	name := r.GetBudget().GetName()
	parent, scope, ok := strings.Cut(name, "/budgets/")
	if !ok {
		return nil, rpcerr.InvalidField("budget.name", "%q is not of the form projects/{project}/budgets/{scope} or accounts/{provider}/{account}/budgets/%s", name, budget.OfAccount)
	}
	if err := s.checkBudgetsParent("budget.name", parent); err != nil {
		return nil, err
	}
	switch account := strings.HasPrefix(parent, resource.AccountPrefix); {
	case account && scope != budget.OfAccount:
		return nil, rpcerr.InvalidField("budget.name", "%q is no scope of a budget of an account; write %s", scope, budget.OfAccount)
	case !account && (scope == "" || budget.CheckScope(scopeOf(name, parent)) != nil):
		return nil, rpcerr.InvalidField("budget.name", "%q is no scope of a budget; write %s or evals/{eval}", scope, budget.OfProject)
	}
	paths, err := resource.Mask(r.GetUpdateMask(), r.GetBudget(), budgetBounds()...)
	if err != nil {
		return nil, err
	}
	s.retuning.Lock()
	defer s.retuning.Unlock()
	bounds := s.Budgets.Bounds(scopeOf(name, parent))
	if err := resource.Etag(name, r.GetBudget().GetEtag(), budgetMessage(budget.State{Bounds: bounds}).GetEtag()); err != nil {
		return nil, err
	}
	for _, path := range paths {
		switch path {
		case "max_tokens":
			bounds.MaxTokens = r.GetBudget().MaxTokens
		case "max_cost":
			bounds.MaxCost = r.GetBudget().MaxCost
		}
	}
	if key, err := bounds.Check(); err != nil {
		return nil, rpcerr.InvalidField("budget."+key, "%v", err)
	}
	state, err := s.Budgets.Set(ctx, scopeOf(name, parent), bounds)
	if err != nil {
		return nil, err
	}
	return budgetMessage(state), nil
}

// budgetBounds returns the fields of a budget that an operator can set.
func budgetBounds() []string { return []string{"max_tokens", "max_cost"} }

// wholeBudget is how the budget of a parent as a whole is called.
func wholeBudget(parent string) string {
	if strings.HasPrefix(parent, resource.AccountPrefix) {
		return budget.OfAccount
	}
	return budget.OfProject
}

// checkBudgetsParent fails for a parent that has no budgets.
func (s *Server) checkBudgetsParent(field, parent string) error {
	if strings.HasPrefix(parent, resource.AccountPrefix) {
		return s.checkAccount(field, parent)
	}
	_, err := resource.ParseProject(field, parent)
	return err
}

// scopeOf returns the scope that a budget's name identifies.
func scopeOf(name, parent string) string {
	scope := strings.TrimPrefix(name, parent+"/budgets/")
	if scope == wholeBudget(parent) {
		return parent
	}
	return parent + "/" + scope
}

func budgetMessage(s budget.State) *modelv1.Budget {
	message := &modelv1.Budget{
		Name: budget.Name(s.Scope), MaxTokens: s.Bounds.MaxTokens, MaxCost: s.Bounds.MaxCost,
		SpentTokens: s.Tokens, SpentCost: s.Cost, CostPartial: s.CostPartial, ReservedTokens: s.Reserved,
	}
	message.Etag = resource.EtagOf(message, budgetBounds(), nil)
	return message
}

// poolChange returns a reason in the protocol's terms, whose words the limits use.
func poolChange(reason limit.Reason) modelv1.ConnectionPoolChangeReason {
	known, _ := enum.Parse[modelv1.ConnectionPoolChangeReason](string(reason))
	return known
}
