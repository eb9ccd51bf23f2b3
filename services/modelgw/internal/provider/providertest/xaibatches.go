package providertest

import (
	"context"
	"net/http"
	"slices"
	"testing"

	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/evalfleet/evalfleet/services/modelgw/internal/xai"
)

// XAIBatches starts a server of xAI's batches over gRPC, and returns its address.
func XAIBatches(t testing.TB) (*BatchVendor, string) {
	t.Helper()
	v := &BatchVendor{}
	return v, serveXAI(t, nil, func(rpc *grpc.Server) { xai.RegisterBatchMgmtServer(rpc, &xaiBatches{v: v}) }).URL
}

type xaiBatches struct {
	xai.UnimplementedBatchMgmtServer
	v *BatchVendor
}

// CreateBatch implements the service.
func (s *xaiBatches) CreateBatch(_ context.Context, r *xai.CreateBatchRequest) (*xai.Batch, error) {
	s.v.mu.Lock()
	defer s.v.mu.Unlock()
	if s.v.Refuse != "" {
		return nil, status.Error(codes.InvalidArgument, s.v.Refuse)
	}
	b := &VendorBatch{Metadata: map[string]string{"name": r.GetName()}, Bodies: map[string]rawJSON{}}
	if !s.v.take(b) {
		return nil, status.Error(codes.Unavailable, "the connection broke")
	}
	return s.shown(b), nil
}

// AddBatchRequests implements the service.
func (s *xaiBatches) AddBatchRequests(_ context.Context, r *xai.AddBatchRequestsRequest) (*emptypb.Empty, error) {
	s.v.mu.Lock()
	defer s.v.mu.Unlock()
	if s.v.Refuse != "" {
		return nil, status.Error(codes.InvalidArgument, s.v.Refuse)
	}
	b := s.v.find(r.GetBatchId())
	for _, request := range r.GetBatchRequests() {
		if slices.Contains(b.IDs, request.GetBatchRequestId()) {
			return nil, status.Error(codes.AlreadyExists, "the batch has this request")
		}
		body, err := protojson.Marshal(request.GetCompletionRequest())
		if err != nil {
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
		b.IDs, b.Bodies[request.GetBatchRequestId()] = append(b.IDs, request.GetBatchRequestId()), body
	}
	return &emptypb.Empty{}, nil
}

// ListBatchRequestMetadata implements the service.
func (s *xaiBatches) ListBatchRequestMetadata(_ context.Context, r *xai.ListBatchRequestMetadataRequest) (*xai.ListBatchRequestMetadataResponse, error) {
	s.v.mu.Lock()
	defer s.v.mu.Unlock()
	page := &xai.ListBatchRequestMetadataResponse{}
	for _, id := range s.v.find(r.GetBatchId()).IDs {
		page.BatchRequestMetadata = append(page.BatchRequestMetadata, &xai.BatchRequestMetadata{BatchRequestId: id})
	}
	return page, nil
}

// ListBatches implements the service: a page for each batch.
func (s *xaiBatches) ListBatches(_ context.Context, r *xai.ListBatchesRequest) (*xai.ListBatchesResponse, error) {
	s.v.mu.Lock()
	defer s.v.mu.Unlock()
	page := &xai.ListBatchesResponse{}
	for i, b := range s.v.batches {
		if i > 0 && s.v.batches[i-1].ID == r.GetPaginationToken() || i == 0 && r.GetPaginationToken() == "" {
			page.Batches = append(page.Batches, s.shown(b))
			if i+1 < len(s.v.batches) {
				page.PaginationToken = &b.ID
			}
		}
	}
	return page, nil
}

// GetBatch implements the service.
func (s *xaiBatches) GetBatch(_ context.Context, r *xai.GetBatchRequest) (*xai.Batch, error) {
	s.v.mu.Lock()
	defer s.v.mu.Unlock()
	if s.v.FailStatus > 0 {
		s.v.FailStatus--
		return nil, status.Error(codes.Unavailable, "busy")
	}
	return s.shown(s.v.find(r.GetBatchId())), nil
}

// CancelBatch implements the service.
func (s *xaiBatches) CancelBatch(_ context.Context, r *xai.CancelBatchRequest) (*xai.Batch, error) {
	s.v.mu.Lock()
	defer s.v.mu.Unlock()
	b := s.v.find(r.GetBatchId())
	if b.Cancelled {
		return nil, status.Error(codes.FailedPrecondition, "it is cancelled already")
	}
	b.Cancelled = true
	return s.shown(b), nil
}

// ListBatchResults implements the service: a page for each result.
func (s *xaiBatches) ListBatchResults(_ context.Context, r *xai.ListBatchResultsRequest) (*xai.ListBatchResultsResponse, error) {
	s.v.mu.Lock()
	defer s.v.mu.Unlock()
	var all []*xai.BatchResult
	var failed error
	s.v.results(s.v.find(r.GetBatchId()), func(id string, code int, answer string) {
		result := &xai.BatchResult{BatchRequestId: id}
		switch code {
		case 0:
			return
		case http.StatusOK:
			response := &xai.GetChatCompletionResponse{}
			failed = protojson.Unmarshal([]byte(answer), response)
			result.Result = &xai.BatchResult_Response{Response: &xai.BatchResultData{Response: &xai.BatchResultData_CompletionResponse{CompletionResponse: response}}}
		default:
			said := &rpcstatus.Status{}
			failed = protojson.Unmarshal([]byte(answer), said)
			result.Result = &xai.BatchResult_Error{Error: said}
		}
		all = append(all, result)
	})
	page := &xai.ListBatchResultsResponse{}
	for i, result := range all {
		if i > 0 && all[i-1].GetBatchRequestId() == r.GetPaginationToken() || i == 0 && r.GetPaginationToken() == "" {
			page.Results = append(page.Results, result)
			if i+1 < len(all) {
				page.PaginationToken = &result.BatchRequestId
			}
		}
	}
	return page, failed
}

// shown is a batch as the API shows it. s.v.mu is held.
func (s *xaiBatches) shown(b *VendorBatch) *xai.Batch {
	state := &xai.BatchState{NumRequests: int64(len(b.IDs))}
	shown := &xai.Batch{BatchId: b.ID, Name: b.Metadata["name"], CreateTime: timestamppb.New(b.Created), State: state}
	switch s.v.ended(b) {
	case "":
		state.NumPending = state.GetNumRequests()
		return shown
	case "cancelled":
		shown.CancelTime = timestamppb.Now()
	case "expired":
		shown.ExpireTime = timestamppb.New(b.Created)
	}
	s.v.results(b, func(_ string, code int, _ string) {
		switch code {
		case 0:
			state.NumCancelled++
		case http.StatusOK:
			state.NumSuccess++
		default:
			state.NumError++
		}
	})
	return shown
}
