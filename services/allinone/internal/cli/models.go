package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

func (a *app) modelsCommand() *cobra.Command {
	var provider string
	c := &cobra.Command{
		Use:   "models",
		Short: "List providers, their accounts, and models known by name",
		Long:  "Models are named provider/name. A provider also takes names that are not listed; it needs a configured account (docs/config.md, modelgw.accounts).",
		Example: `  evalfleet models
  evalfleet models --provider openai
  evalfleet models --json | jq -r .shortName`,
		Args: none,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.look(c.Context(), func(ctx context.Context, s *session) error { return s.listModels(ctx, provider) })
		},
	}
	c.Flags().StringVar(&provider, "provider", "", "only of this provider")
	return c
}

func (s *session) listModels(ctx context.Context, provider string) error {
	providers, err := s.models.ListProviders(ctx, &modelv1.ListProvidersRequest{Parent: s.app.parent()})
	if err != nil {
		return err
	}
	req := &modelv1.ListModelsRequest{Provider: provider, PageSize: 1000}
	known, err := page(0, func(token string) ([]*modelv1.Model, string, error) {
		req.PageToken = token
		r, err := s.models.ListModels(ctx, req)
		return r.GetModels(), r.GetNextPageToken(), err
	})
	if err != nil {
		return err
	}
	if s.app.json {
		for _, m := range known {
			if err := s.app.emit(m); err != nil {
				return err
			}
		}
		return nil
	}
	var rows [][]string
	for _, p := range providers.GetProviders() {
		if provider != "" && p.GetName() != provider {
			continue
		}
		for _, account := range p.GetAccounts() {
			rows = append(rows, []string{p.GetName(), account.GetName(), keyOf(account), p.GetDescription()})
		}
		if len(p.GetAccounts()) == 0 {
			rows = append(rows, []string{p.GetName(), "–", "–", p.GetDescription()})
		}
	}
	s.app.table([]string{"provider", "account", "key", "what it is"}, rows)
	if len(known) == 0 {
		return nil
	}
	rows = nil
	for _, m := range known {
		rows = append(rows, []string{m.GetShortName(), tokenCount(m.ContextTokens), tokenCount(m.OutputTokens), prices(m.GetPrices())})
	}
	s.app.print("")
	s.app.table([]string{"model", "context", "output", "$ per 1M in/out"}, rows)
	return nil
}

// keyOf reports whether an account has the key that it needs, or what to set.
func keyOf(account *modelv1.Account) string {
	switch {
	case account.GetKeyless():
		return "not needed"
	case account.GetUsable():
		return "yes"
	default:
		return "no: " + account.GetProblem()
	}
}

func tokenCount(n *int64) string {
	if n == nil {
		return "–"
	}
	return fmt.Sprint(*n)
}

func prices(p *modelv1.Prices) string {
	if p == nil {
		return "–"
	}
	return fmt.Sprintf("%g/%g", p.GetInput(), p.GetOutput())
}
