package server

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/limit"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/budget"
)

const poolPrefix = "pools/"

// ListPools implements LimitService.
func (s *Server) ListPools(ctx context.Context, _ *modelv1.ListPoolsRequest) (*modelv1.ListPoolsResponse, error) {
	pools, err := s.Limiter.Pools(ctx)
	if err != nil {
		return nil, err
	}
	all := &modelv1.ListPoolsResponse{}
	for _, p := range pools {
		all.Pools = append(all.Pools, poolMessage(p))
	}
	return all, nil
}

// UpdatePool implements LimitService.
func (s *Server) UpdatePool(ctx context.Context, r *modelv1.UpdatePoolRequest) (*modelv1.Pool, error) {
	name := r.GetPool().GetName()
	key, ok := strings.CutPrefix(name, poolPrefix)
	if !ok {
		return nil, rpcerr.InvalidField("pool.name", "%q is not of the form pools/{provider}/{account}[/{key}]", name)
	}
	paths, err := resource.Mask(r.GetUpdateMask(), r.GetPool(), "limit", "max")
	if err != nil {
		return nil, err
	}
	s.retuning.Lock()
	defer s.retuning.Unlock()
	pools, err := s.Limiter.Pools(ctx)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(pools, func(p limit.Pool) bool { return p.Key == key })
	if at < 0 {
		return nil, rpcerr.ResourceNotFound(name)
	}
	if err := resource.Etag(name, r.GetPool().GetEtag(), poolEtag(pools[at])); err != nil {
		return nil, err
	}
	field, most := "limit", r.GetPool().GetLimit()
	if pools[at].Adaptive {
		field, most = "max", r.GetPool().GetMax()
	}
	if !slices.Contains(paths, field) {
		return nil, rpcerr.InvalidField("update_mask", "of %s only %s can be set: limit of a static pool, max of an adaptive one", name, field)
	}
	p, err := s.Limiter.SetMax(ctx, key, int(most))
	switch {
	case errors.Is(err, limit.ErrUnknownPool):
		return nil, rpcerr.ResourceNotFound(name)
	case errors.Is(err, limit.ErrTooLow):
		return nil, rpcerr.InvalidField("pool."+field, "%v", err)
	case err != nil:
		return nil, err
	}
	return poolMessage(p), nil
}

// poolEtag is the etag of a pool: that of what an operator sets.
func poolEtag(p limit.Pool) string {
	if p.Adaptive {
		return strconv.Itoa(p.Max)
	}
	return strconv.Itoa(p.Limit)
}

func poolMessage(p limit.Pool) *modelv1.Pool {
	message := &modelv1.Pool{
		Name: poolPrefix + p.Key, Limit: int32(p.Limit), InFlight: int32(p.InUse), Waiting: int32(p.Waiting),
		Adaptive: p.Adaptive, Max: int32(p.Max), Etag: poolEtag(p),
	}
	for _, c := range p.History {
		message.History = append(message.History, &modelv1.PoolChange{
			Time: timestamppb.New(c.Time), OldLimit: int32(c.Old), NewLimit: int32(c.New), Reason: string(c.Reason), Model: c.Subject,
		})
	}
	return message
}

// Budgets of a project are its own scope and those below it.

// ListBudgets implements LimitService.
func (s *Server) ListBudgets(_ context.Context, r *modelv1.ListBudgetsRequest) (*modelv1.ListBudgetsResponse, error) {
	if _, err := resource.ParseProject("parent", r.GetParent()); err != nil {
		return nil, err
	}
	page, err := resource.PageOf(r)
	if err != nil {
		return nil, err
	}
	answer := &modelv1.ListBudgetsResponse{}
	for _, state := range s.Budgets.List(r.GetParent()) {
		own := state.Scope == r.GetParent() || strings.HasPrefix(state.Scope, r.GetParent()+"/")
		if !own || state.Scope <= page.After {
			continue
		}
		if len(answer.GetBudgets()) == page.Size {
			answer.NextPageToken = page.Token(scopeOf(answer.GetBudgets()[page.Size-1].GetName(), r.GetParent()))
			break
		}
		answer.Budgets = append(answer.Budgets, budgetMessage(r.GetParent(), state))
	}
	return answer, nil
}

// UpdateBudget implements LimitService.
func (s *Server) UpdateBudget(_ context.Context, r *modelv1.UpdateBudgetRequest) (*modelv1.Budget, error) {
	name := r.GetBudget().GetName()
	parent, scope, ok := strings.Cut(name, "/budgets/")
	if _, err := resource.ParseProject("budget.name", parent); err != nil || !ok || scope == "" {
		return nil, rpcerr.InvalidField("budget.name", "%q is not of the form projects/{project}/budgets/{scope}", name)
	}
	if budget.CheckScope(scopeOf(name, parent)) != nil {
		return nil, rpcerr.InvalidField("budget.name", "%q is no scope of a budget; write %s or evals/{eval}", scope, projectBudget)
	}
	paths, err := resource.Mask(r.GetUpdateMask(), r.GetBudget(), "max_tokens", "max_cost")
	if err != nil {
		return nil, err
	}
	s.retuning.Lock()
	defer s.retuning.Unlock()
	bounds := s.Budgets.Bounds(scopeOf(name, parent))
	if err := resource.Etag(name, r.GetBudget().GetEtag(), budgetEtag(bounds)); err != nil {
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
	state := s.Budgets.Set(scopeOf(name, parent), bounds)
	return budgetMessage(parent, state), nil
}

// budgetEtag is the etag of a budget: that of its bounds.
func budgetEtag(b budget.Bounds) string {
	etag := "-"
	if b.MaxTokens != nil {
		etag = strconv.FormatInt(*b.MaxTokens, 10)
	}
	if b.MaxCost == nil {
		return etag + "/-"
	}
	return etag + "/" + strconv.FormatFloat(*b.MaxCost, 'g', -1, 64)
}

// projectBudget stands in a budget's name for the project as a whole.
const projectBudget = "project"

// scopeOf returns the scope that a budget's name stands for.
func scopeOf(name, parent string) string {
	scope := strings.TrimPrefix(name, parent+"/budgets/")
	if scope == projectBudget {
		return parent
	}
	return parent + "/" + scope
}

func budgetMessage(parent string, s budget.State) *modelv1.Budget {
	scope := projectBudget
	if s.Scope != parent {
		scope = strings.TrimPrefix(s.Scope, parent+"/")
	}
	return &modelv1.Budget{
		Name: parent + "/budgets/" + scope, MaxTokens: s.Bounds.MaxTokens, MaxCost: s.Bounds.MaxCost,
		SpentTokens: s.Tokens, SpentCost: s.Cost, ReservedTokens: s.Reserved, Etag: budgetEtag(s.Bounds),
	}
}
