package server

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/batch"
)

// batchesOf is between the project and the id in the name of a batch.
const batchesOf = "batches"

// ListBatches implements BatchService.
func (s *Server) ListBatches(ctx context.Context, r *modelv1.ListBatchesRequest) (*modelv1.ListBatchesResponse, error) {
	project, err := resource.ParseProject("parent", r.GetParent())
	if err != nil {
		return nil, err
	}
	page, err := resource.PageOf(r)
	if err != nil {
		return nil, err
	}
	batches, err := s.Batches.List(ctx, project, page.After, page.Size+1)
	if err != nil {
		return nil, err
	}
	answer := &modelv1.ListBatchesResponse{}
	batches, answer.NextPageToken = resource.Cut(page, batches, func(b batch.Batch) string { return b.ID })
	for _, b := range batches {
		answer.Batches = append(answer.Batches, batchMessage(b))
	}
	return answer, nil
}

// CancelBatch implements BatchService.
func (s *Server) CancelBatch(ctx context.Context, r *modelv1.CancelBatchRequest) (*modelv1.Batch, error) {
	name, err := resource.Parse("name", r.GetName(), batchesOf)
	if err != nil {
		return nil, err
	}
	b, err := s.Batches.Cancel(ctx, name.Project, name.IDs[0])
	if err != nil {
		return nil, err
	}
	return batchMessage(b), nil
}

func batchMessage(b batch.Batch) *modelv1.Batch {
	m := &modelv1.Batch{
		Name: resource.Format(b.Project, batchesOf, b.ID), Model: b.Model, Account: b.Account, ProviderId: b.VendorID,
		Requests: int32(b.Requests), Completed: int32(b.Completed), Failed: int32(b.Failed), CreateTime: timestamppb.New(b.Created),
		Ended: b.Phase == batch.Ended, Cancelled: b.Cancelled, Error: b.Error,
	}
	if !b.Over.IsZero() {
		m.EndTime = timestamppb.New(b.Over)
	}
	return m
}
