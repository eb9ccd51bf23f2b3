package server

import (
	"context"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// ListBatches belongs to a capability that is not built yet.
func (s *Server) ListBatches(context.Context, *modelv1.ListBatchesRequest) (*modelv1.ListBatchesResponse, error) {
	return nil, rpcerr.NotBuiltYet("batch processing")
}

// CancelBatch belongs to a capability that is not built yet.
func (s *Server) CancelBatch(context.Context, *modelv1.CancelBatchRequest) (*modelv1.Batch, error) {
	return nil, rpcerr.NotBuiltYet("batch processing")
}
