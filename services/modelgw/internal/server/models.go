package server

import (
	"context"
	"slices"
	"strings"
	"time"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/modeldata"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// CountTokens implements ModelService.
func (s *Server) CountTokens(ctx context.Context, r *modelv1.CountTokensRequest) (*modelv1.CountTokensResponse, error) {
	return s.Calls.CountTokens(ctx, r)
}

// GetModel implements ModelService.
func (s *Server) GetModel(_ context.Context, r *modelv1.GetModelRequest) (*modelv1.Model, error) {
	rest, isProvider := strings.CutPrefix(r.GetName(), "providers/")
	kind, name, isModel := strings.Cut(rest, "/models/")
	if !isProvider || !isModel {
		return nil, rpcerr.InvalidField("name", "%q is not of the form providers/{provider}/models/{model}", r.GetName())
	}
	model, err := s.describe(kind + "/" + name)
	if rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_MODEL_NOT_FOUND) {
		return nil, rpcerr.NotFound(r.GetName(), "no %s: %v", r.GetName(), err)
	}
	if err != nil {
		return nil, err
	}
	return model, nil
}

// describe returns the description of a model, with the default account or without any. If that account is configured
// wrongly, it returns what is known without it beside the error.
func (s *Server) describe(model string) (*modelv1.Model, error) {
	kind, name, err := provider.SplitName(model)
	if err != nil {
		return nil, err
	}
	known := &modelv1.Model{
		Name: "providers/" + kind + "/models/" + name, ShortName: model, CanonicalName: model,
		DefaultMaxConnections: provider.DefaultConnections,
	}
	configured := s.addData(known)
	opened, err := s.Registry.Open(provider.Ref{Model: model})
	switch {
	case rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_NOT_CONFIGURED):
		return known, nil
	case err != nil:
		return known, err
	}
	caps := opened.Capabilities()
	known.Capabilities = caps.Features
	if caps.MaxTokens > 0 {
		known.DefaultMaxTokens = new(caps.MaxTokens)
	}
	if w, ok := opened.Provider.(provider.Windowed); ok && !configured["context"] {
		if tokens, told := w.ContextTokens(); told {
			known.ContextTokens = &tokens
		}
	}
	return known, nil
}

// addData adds what is known of a model without its provider: its facts, and its prices. It returns the facts that the
// configuration sets.
func (s *Server) addData(m *modelv1.Model) (configured map[string]bool) {
	now := s.Settings.Get()
	facts, configured, known := now.Data.Describe(m.GetShortName())
	if known {
		m.CanonicalName, m.DisplayName, m.Organization = facts.Key, facts.Display, facts.Organization
		m.ContextTokens, m.InputTokens, m.OutputTokens = tokensOf(facts.Context), tokensOf(facts.Input), tokensOf(facts.Output)
		m.ReleaseDate, m.KnowledgeCutoffDate = facts.Released, facts.Cutoff
		m.Reasoning, m.DefaultReasoningEffort = facts.Reasoning, facts.Effort
		m.FactsSource = now.Data.SourceOf(m.GetShortName())
	}
	if m.Prices = now.Prices[m.GetShortName()]; m.GetPrices() == nil {
		return configured
	}
	m.PricesSource = now.Data.Charges.String()
	if now.Priced[m.GetShortName()] {
		m.PricesSource = modeldata.Configuration
	}
	return configured
}

// tokensOf is a number of tokens; nil for 0, which means that it is not known.
func tokensOf(n int64) *int64 {
	if n == 0 {
		return nil
	}
	return &n
}

// ListModels implements ModelService.
func (s *Server) ListModels(_ context.Context, r *modelv1.ListModelsRequest) (*modelv1.ListModelsResponse, error) {
	page, err := resource.PageOf(r)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, kind := range s.Registry.Kinds() {
		for _, model := range s.Settings.Get().Data.Current(kind.Name, kind.Models, time.Now()) {
			if name := kind.Name + "/" + model; (r.GetProvider() == "" || r.GetProvider() == kind.Name) && name > page.After {
				names = append(names, name)
			}
		}
	}
	answer := &modelv1.ListModelsResponse{}
	names, answer.NextPageToken = resource.Cut(page, names, func(name string) string { return name })
	for _, name := range names {
		model, err := s.describe(name)
		if model == nil {
			return nil, err
		} // What is wrong with one account, which its check says, keeps nothing from the list.
		answer.Models = append(answer.Models, model)
	}
	return answer, nil
}

// ListProviders implements ModelService.
func (s *Server) ListProviders(_ context.Context, r *modelv1.ListProvidersRequest) (*modelv1.ListProvidersResponse, error) {
	page, err := resource.PageOf(r)
	if err != nil {
		return nil, err
	}
	if r.GetParent() != "" {
		if _, err := resource.ParseProject("parent", r.GetParent()); err != nil {
			return nil, err
		}
	}
	kinds := slices.DeleteFunc(s.Registry.Kinds(), func(k provider.Kind) bool { return k.Name <= page.After })
	answer := &modelv1.ListProvidersResponse{}
	kinds, answer.NextPageToken = resource.Cut(page, kinds, func(k provider.Kind) string { return k.Name })
	for _, kind := range kinds {
		known := &modelv1.Provider{
			Name: kind.Name, Description: kind.Description, Accounts: slices.Concat(kind.Accounts, kind.Clouds), AccountInModel: kind.AccountInModel,
		}
		if kind.Dialect != "" {
			known.Dialects = []string{kind.Dialect}
		}
		answer.Providers = append(answer.Providers, known)
	}
	return answer, nil
}
