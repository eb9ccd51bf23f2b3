package server

import (
	"context"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/check"
)

// CheckAccounts implements ModelService.
func (s *Server) CheckAccounts(ctx context.Context, r *modelv1.CheckAccountsRequest) (*modelv1.CheckAccountsResponse, error) {
	checks, err := check.Accounts(ctx, s.Registry, r)
	if err != nil {
		return nil, err
	}
	return &modelv1.CheckAccountsResponse{Checks: checks}, nil
}
