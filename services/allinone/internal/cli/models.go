package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

func (a *app) modelsCommand() *cobra.Command {
	var provider string
	var check bool
	c := &cobra.Command{
		Use:   "models [MODEL...]",
		Short: "List providers, their accounts, and models known by name; or show what is known of models",
		Long: `Models are named provider/name. A provider also takes names that are not listed; it needs a configured account (docs/config.md, modelgw.accounts).

Limits and prices are built in, with their source and date; those in the configuration (modelgw.models, modelgw.prices), and prices in the file of --model-cost-config, replace them.

With --check it asks the vendors, for each credential of each account: is there a key, can the address be reached, does the list of models answer to the key, and is MODEL in it. No model is called. The
exit code is 1 if one of these fails; what a vendor's API does not report is shown as not proven.`,
		Example: `  evalfleet models
  evalfleet models openai/gpt-5.5 anthropic/claude-opus-5
  evalfleet models --provider openai
  evalfleet models --check openai/gpt-4o
  evalfleet models --json | jq -r .shortName`,
		RunE: func(c *cobra.Command, args []string) error {
			return a.look(c.Context(), func(ctx context.Context, s *session) error {
				if check {
					return s.checkAccounts(ctx, provider, args)
				}
				if len(args) > 0 {
					return s.showModels(ctx, args)
				}
				return s.listModels(ctx, provider)
			})
		},
	}
	c.Flags().StringVar(&provider, "provider", "", "only of this provider")
	c.Flags().BoolVar(&check, "check", false, "ask the vendors whether the accounts, or MODEL, can be used; no model is called")
	return c
}

func (s *session) listModels(ctx context.Context, provider string) error {
	providers, err := s.models.ListProviders(ctx, &modelv1.ListProvidersRequest{Parent: s.app.parent()})
	if err != nil {
		return err
	}
	var names []string
	for _, p := range providers.GetProviders() {
		names = append(names, p.GetName())
	}
	if provider != "" && !slices.Contains(names, provider) {
		return usage("unknown provider %q; known: %s", provider, strings.Join(names, ", "))
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
		return s.modelTable(known)
	}
	var rows [][]string
	for _, p := range providers.GetProviders() {
		if provider != "" && p.GetName() != provider {
			continue
		}
		for _, account := range p.GetAccounts() {
			at := p.GetName()
			if account.GetService() != "" {
				at += "/" + account.GetService()
			}
			if provider != "" || account.GetService() == "" || account.GetUsable() { // Most have none of the clouds.
				rows = append(rows, []string{at, account.GetName(), p.GetDescription(), keyOf(account)})
			}
		}
		if len(p.GetAccounts()) == 0 {
			rows = append(rows, []string{p.GetName(), "–", p.GetDescription(), "–"})
		}
	}
	s.app.table([]string{"provider", "account", "what it is", "key"}, rows)
	if len(known) == 0 {
		return nil
	}
	s.app.print("")
	return s.modelTable(known)
}

// showModels shows what is known of models, by their full names.
func (s *session) showModels(ctx context.Context, names []string) error {
	var known []*modelv1.Model
	for _, name := range names {
		provider, bare, ok := strings.Cut(name, "/")
		if !ok {
			return usage("%q is no model; write provider/name, such as openai/gpt-4o", name)
		}
		m, err := s.models.GetModel(ctx, &modelv1.GetModelRequest{Name: "providers/" + provider + "/models/" + bare})
		if err != nil {
			return err
		}
		known = append(known, m)
	}
	return s.modelTable(known)
}

// modelTable shows models, and the sources of their figures.
func (s *session) modelTable(known []*modelv1.Model) error {
	if s.app.json {
		return emitAll(s.app, known)
	}
	var rows [][]string
	facts, charges := map[string]bool{}, map[string]bool{}
	for _, m := range known {
		rows = append(rows, []string{
			m.GetShortName(), tokenCount(m.ContextTokens), tokenCount(m.OutputTokens), prices(m.GetPrices()), cmp.Or(m.GetDefaultReasoningEffort(), "–"), cmp.Or(m.GetReleaseDate(), "–"),
		})
		facts[m.GetFactsSource()], charges[m.GetPricesSource()] = true, true
	}
	s.app.table([]string{"model", "context", "output", "$ per 1M in/out", "effort", "released"}, rows)
	s.app.print("")
	for _, of := range []struct {
		what    string
		sources map[string]bool
	}{{"limits and dates", facts}, {"prices", charges}} {
		for _, source := range slices.Sorted(maps.Keys(of.sources)) {
			if source != "" {
				s.app.print("%s: %s", of.what, source)
			}
		}
	}
	return nil
}

// keyOf reports whether an account has the key that it needs, or what to set.
func keyOf(account *modelv1.Account) string {
	switch {
	case account.GetKeyless():
		return "not needed"
	case account.GetKeys() > 1:
		return fmt.Sprintf("yes, %d keys", account.GetKeys())
	case account.GetKeys() == 0 && account.GetUsable():
		return "the cloud's credentials, if it gives any"
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
	pair := func(p *modelv1.Prices) string {
		return strconv.FormatFloat(p.GetInput(), 'f', -1, 64) + "/" + strconv.FormatFloat(p.GetOutput(), 'f', -1, 64)
	}
	text := pair(p)
	if long := p.GetLongInput(); long != nil {
		text += fmt.Sprintf(", above %d: %s", p.GetLongInputTokens(), pair(long))
	}
	return text
}
