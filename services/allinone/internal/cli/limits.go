package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
)

// noBound is how a bound is removed.
const noBound = "none"

func (a *app) limitsCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "limits",
		Short: "Show or change budgets, and the connections to providers",
		Long: `A budget bounds the tokens and dollars of a project (project), of an evaluation (evals/ID), or of an account with all its projects (PROVIDER/ACCOUNT). Once it is spent runs wait, and other calls fail, until it is raised.

A pool bounds the requests in flight to an account, or to one of its models. It is shown once a call has used it. Most limits adapt: what is set is then the highest limit.

What is set holds at once; budgets hold over restarts too.`,
		Example: `  evalfleet limits list
  evalfleet limits budget project --max-cost 50
  evalfleet limits budget openai/default --max-tokens none
  evalfleet limits connections openai/default/gpt-4o 20`,
	}
	list := &cobra.Command{
		Use:   "list",
		Short: "Show what projects and accounts spent, what budgets bound, and pools that are in use",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.look(c.Context(), func(ctx context.Context, s *session) error { return s.listLimits(ctx) })
		},
	}
	var tokens, cost string
	budget := &cobra.Command{
		Use:   "budget project|evals/ID|PROVIDER/ACCOUNT",
		Short: "Set or remove the bounds of a budget",
		Example: `  evalfleet limits budget project --max-tokens 50000000
  evalfleet limits budget evals/01m8kh2pbjhsjy78fp --max-cost 2.50
  evalfleet limits budget openai/default --max-cost none`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			change, err := budgetChange(a.budgetName(args[0]), tokens, cost)
			if err != nil {
				return err
			}
			return a.look(c.Context(), func(ctx context.Context, s *session) error {
				b, err := s.limits.UpdateBudget(ctx, change)
				if err != nil {
					return err
				}
				return s.budgetTable([]*modelv1.Budget{b})
			})
		},
	}
	budget.Flags().StringVar(&tokens, "max-tokens", "", "the bound of tokens; none removes it")
	budget.Flags().StringVar(&cost, "max-cost", "", "the bound of dollars; none removes it")
	connections := &cobra.Command{
		Use:     "connections PROVIDER/ACCOUNT[/POOL] LIMIT",
		Short:   "Set the limit of a pool; where it adapts, the highest",
		Example: `  evalfleet limits connections anthropic/default/claude-opus-5 40`,
		Args:    cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			n, err := strconv.ParseInt(args[1], 10, 32)
			if err != nil || n < 1 {
				return usage("%q is no limit; write a number from 1", args[1])
			}
			return a.look(c.Context(), func(ctx context.Context, s *session) error { return s.setPool(ctx, args[0], int32(n)) })
		},
	}
	c.AddCommand(list, budget, connections)
	return c
}

// budgetName is the name of the budget of a scope as people write it, here or in the configuration, or the name itself.
func (a *app) budgetName(scope string) string {
	project, isProject := strings.CutPrefix(scope, "projects/")
	switch {
	case strings.Contains(scope, "/budgets/"):
		return scope
	case isProject:
		project, eval, ofEval := strings.Cut(project, "/")
		if !ofEval {
			eval = "project"
		}
		return "projects/" + project + "/budgets/" + eval
	case scope == "project" || strings.HasPrefix(scope, "evals/"):
		return a.parent() + "/budgets/" + scope
	default:
		return resource.AccountPrefix + strings.TrimPrefix(scope, resource.AccountPrefix) + "/budgets/account"
	}
}

// budgetChange is a change of a budget by bounds as people write them.
func budgetChange(name, tokens, cost string) (*modelv1.UpdateBudgetRequest, error) {
	b, mask := &modelv1.Budget{Name: name}, &fieldmaskpb.FieldMask{}
	if tokens != "" {
		mask.Paths = append(mask.Paths, "max_tokens")
		if tokens != noBound {
			n, err := strconv.ParseInt(tokens, 10, 64)
			if err != nil {
				return nil, usage("--max-tokens: %q is no number of tokens; write a whole number, or none", tokens)
			}
			b.MaxTokens = &n
		}
	}
	if cost != "" {
		mask.Paths = append(mask.Paths, "max_cost")
		if cost != noBound {
			n, err := strconv.ParseFloat(cost, 64)
			if err != nil {
				return nil, usage("--max-cost: %q is no number of dollars; write one such as 2.50, or none", cost)
			}
			b.MaxCost = &n
		}
	}
	if len(mask.GetPaths()) == 0 {
		return nil, usage("give --max-tokens or --max-cost; evalfleet limits list shows the bounds")
	}
	return &modelv1.UpdateBudgetRequest{Budget: b, UpdateMask: mask}, nil
}

func (s *session) listLimits(ctx context.Context) error {
	providers, err := s.models.ListProviders(ctx, &modelv1.ListProvidersRequest{Parent: s.app.parent()})
	if err != nil {
		return err
	}
	parents := []string{s.app.parent()}
	for _, p := range providers.GetProviders() {
		for _, of := range p.GetAccounts() {
			// Accounts of different clouds with the same name have one budget.
			if parent := resource.Account(p.GetName(), of.GetName()); !slices.Contains(parents, parent) {
				parents = append(parents, parent)
			}
		}
	}
	var budgets []*modelv1.Budget
	for _, parent := range parents {
		req := &modelv1.ListBudgetsRequest{Parent: parent, PageSize: 1000}
		some, err := page(0, func(token string) ([]*modelv1.Budget, string, error) {
			req.PageToken = token
			r, err := s.limits.ListBudgets(ctx, req)
			return r.GetBudgets(), r.GetNextPageToken(), err
		})
		if err != nil {
			return err
		}
		for _, b := range some {
			// The scope of each evaluation has a budget, which mostly bounds nothing.
			if !strings.Contains(b.GetName(), "/budgets/evals/") || b.MaxTokens != nil || b.MaxCost != nil {
				budgets = append(budgets, b)
			}
		}
	}
	pools, err := s.pools(ctx, "accounts/-/-")
	if err != nil {
		return err
	}
	if len(budgets)+len(pools) == 0 {
		s.app.note("nothing is bounded, spent or in use")
		return nil
	}
	if err := s.budgetTable(budgets); err != nil {
		return err
	}
	if len(budgets) > 0 && len(pools) > 0 && !s.app.json {
		s.app.print("")
	}
	return s.poolTable(pools)
}

func (s *session) pools(ctx context.Context, parent string) ([]*modelv1.ConnectionPool, error) {
	req := &modelv1.ListConnectionPoolsRequest{Parent: parent, PageSize: 1000}
	return page(0, func(token string) ([]*modelv1.ConnectionPool, string, error) {
		req.PageToken = token
		r, err := s.limits.ListConnectionPools(ctx, req)
		return r.GetConnectionPools(), r.GetNextPageToken(), err
	})
}

// setPool changes the limit of a pool: PROVIDER/ACCOUNT is that of all models of an account.
func (s *session) setPool(ctx context.Context, name string, n int32) error {
	provider, rest, _ := strings.Cut(strings.TrimPrefix(name, resource.AccountPrefix), "/")
	own, pool, _ := strings.Cut(rest, "/")
	parent := resource.Account(provider, own)
	full := parent + "/connectionPools/" + cmp.Or(strings.TrimPrefix(pool, "connectionPools/"), "default")
	pools, err := s.pools(ctx, parent)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(pools, func(p *modelv1.ConnectionPool) bool { return p.GetName() == full })
	if at < 0 {
		return fmt.Errorf("no call has used the pool %s since the server started; evalfleet limits list shows the pools that are in use", name)
	}
	change := &modelv1.UpdateConnectionPoolRequest{ConnectionPool: &modelv1.ConnectionPool{Name: full, Limit: n}}
	if pools[at].GetAdaptive() {
		change.ConnectionPool = &modelv1.ConnectionPool{Name: full, Max: n}
	}
	changed, err := s.limits.UpdateConnectionPool(ctx, change)
	if err != nil {
		return err
	}
	return s.poolTable([]*modelv1.ConnectionPool{changed})
}

func (s *session) budgetTable(budgets []*modelv1.Budget) error {
	if s.app.json {
		return emitAll(s.app, budgets)
	}
	var rows [][]string
	for _, b := range budgets {
		maxCost, least := "–", ""
		if b.MaxCost != nil {
			maxCost = "$" + strconv.FormatFloat(b.GetMaxCost(), 'f', -1, 64)
		}
		if b.GetCostPartial() {
			least = "≥ "
		}
		rows = append(rows, []string{
			s.app.budgetScope(b.GetName()), fmt.Sprint(b.GetSpentTokens()), tokenCount(b.MaxTokens),
			fmt.Sprintf("%s$%.4f", least, b.GetSpentCost()), maxCost,
		})
	}
	if len(rows) > 0 {
		s.app.table([]string{"budget", "tokens spent", "of", "dollars spent", "of"}, rows)
	}
	return nil
}

// budgetScope is the reverse of budgetName.
func (a *app) budgetScope(name string) string {
	parent, scope, _ := strings.Cut(name, "/budgets/")
	if of, isAccount := strings.CutPrefix(parent, resource.AccountPrefix); isAccount {
		return of
	}
	return scope
}

func (s *session) poolTable(pools []*modelv1.ConnectionPool) error {
	if s.app.json {
		return emitAll(s.app, pools)
	}
	var rows [][]string
	for _, p := range pools {
		limit := fmt.Sprint(p.GetLimit())
		if p.GetAdaptive() {
			limit += fmt.Sprintf(", up to %d", p.GetMax())
		}
		name := strings.Replace(strings.TrimPrefix(p.GetName(), resource.AccountPrefix), "/connectionPools/", "/", 1)
		rows = append(rows, []string{name, limit, fmt.Sprint(p.GetInFlight()), fmt.Sprint(p.GetWaiting())})
	}
	if len(rows) > 0 {
		s.app.table([]string{"connections", "limit", "in flight", "waiting"}, rows)
	}
	return nil
}
