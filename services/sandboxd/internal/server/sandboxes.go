package server

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/evalfleet/evalfleet/pkg/bound"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/offload"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/lifecycle"
)

// CreateSandbox makes a sandbox and answers when it is usable.
func (s *Server) CreateSandbox(ctx context.Context, req *sandboxv1.CreateSandboxRequest) (*sandboxv1.Sandbox, error) {
	project, err := resource.ParseProject("parent", req.GetParent())
	if err != nil {
		return nil, err
	}
	if err := s.load(ctx, req, "spec.files", req.GetSpec().GetFiles(), &req.Offloaded, bound.OffloadedBytes); err != nil {
		return nil, err
	}
	if req.GetValidateOnly() {
		spec, err := s.boxes.Check(ctx, req.GetSpec())
		if err != nil {
			return nil, err
		}
		return &sandboxv1.Sandbox{Spec: spec}, nil
	}
	b, err := s.boxes.Create(ctx, lifecycle.Creation{
		Project: project, Spec: req.GetSpec(), RequestID: req.GetRequestId(), Run: req.GetAttribution().GetRun(), Epoch: req.GetAttribution().GetOwnerEpoch(), Timeout: req.GetTimeout().AsDuration(),
	})
	if err != nil {
		return nil, err
	}
	return toProto(b), nil
}

// load reads the contents of files that are blobs, as if they had been in the request: files are those in its field,
// and offloaded its list of values. All contents together have up to most bytes.
func (s *Server) load(
	ctx context.Context, req proto.Message, field string, files []*sandboxv1.FileToPlace, offloaded *[]*contentv1.OffloadedField, most int64,
) error {
	var moved []string
	for i, f := range files {
		if ref := f.GetBlob(); ref != nil {
			file := fmt.Sprintf("%s[%d]", field, i)
			f.Body = &sandboxv1.FileToPlace_Content{}
			*offloaded = append(*offloaded, &contentv1.OffloadedField{Field: file + ".content", Blob: ref})
			moved = append(moved, file)
		}
	}
	if len(moved) == 0 {
		return nil
	}
	err := offload.TakeRequest(ctx, s.blobs, offload.Project(req), req, most)
	for i, file := range moved {
		err = rpcerr.Moved(fmt.Sprintf("offloaded[%d]", i), file, err)
	}
	return err
}

// CancelSandbox stops the making of a sandbox.
func (s *Server) CancelSandbox(ctx context.Context, req *sandboxv1.CancelSandboxRequest) (*sandboxv1.CancelSandboxResponse, error) {
	project, err := resource.ParseProject("parent", req.GetParent())
	if err != nil {
		return nil, err
	}
	ended, err := s.boxes.CancelCreate(ctx, project, req.GetRequestId())
	if err != nil {
		return nil, err
	}
	return &sandboxv1.CancelSandboxResponse{AlreadyDone: ended}, nil
}

// ReleaseRunSandboxes drops what is kept of the making of runs' sandboxes.
func (s *Server) ReleaseRunSandboxes(ctx context.Context, req *sandboxv1.ReleaseRunSandboxesRequest) (*sandboxv1.ReleaseRunSandboxesResponse, error) {
	project, runs, err := resource.Children(req.GetParent(), "runs", req.GetRuns())
	if err != nil {
		return nil, err
	}
	if err := s.boxes.ReleaseRuns(ctx, project, runs); err != nil {
		return nil, err
	}
	return &sandboxv1.ReleaseRunSandboxesResponse{}, nil
}

// GetSandbox gives one sandbox.
func (s *Server) GetSandbox(ctx context.Context, req *sandboxv1.GetSandboxRequest) (*sandboxv1.Sandbox, error) {
	project, id, err := parse("name", req.GetName())
	if err != nil {
		return nil, err
	}
	b, err := s.boxes.Get(ctx, project, id)
	if err != nil {
		return nil, err
	}
	return toProto(b), nil
}

// ListSandboxes lists the sandboxes of a project, newest first.
func (s *Server) ListSandboxes(ctx context.Context, req *sandboxv1.ListSandboxesRequest) (*sandboxv1.ListSandboxesResponse, error) {
	project, err := resource.ParseProject("parent", req.GetParent())
	if err != nil {
		return nil, err
	}
	page, err := resource.PageOf(req)
	if err != nil {
		return nil, err
	}
	after, err := readPosition(page.After)
	if err != nil {
		return nil, err
	}
	found, err := s.boxes.List(ctx, project, after, req.GetLabels(), req.GetShowDeleted(), page.Size+1)
	if err != nil {
		return nil, err
	}
	resp := &sandboxv1.ListSandboxesResponse{}
	found, resp.NextPageToken = resource.Cut(page, found, writePosition)
	for _, b := range found {
		resp.Sandboxes = append(resp.Sandboxes, toProto(b))
	}
	return resp, nil
}

// DeleteSandbox kills what runs in a sandbox and removes it.
func (s *Server) DeleteSandbox(ctx context.Context, req *sandboxv1.DeleteSandboxRequest) (*sandboxv1.Sandbox, error) {
	project, id, err := parse("name", req.GetName())
	if err != nil {
		return nil, err
	}
	b, err := s.boxes.Delete(ctx, project, id)
	if err != nil {
		return nil, err
	}
	return toProto(b), nil
}

// RenewLeases extends many leases in one call.
func (s *Server) RenewLeases(ctx context.Context, req *sandboxv1.RenewLeasesRequest) (*sandboxv1.RenewLeasesResponse, error) {
	project, err := resource.ParseProject("parent", req.GetParent())
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(req.GetSandboxes()))
	for i, name := range req.GetSandboxes() {
		owner, id, err := parse("sandboxes", name)
		if err != nil {
			return nil, err
		}
		if owner != project {
			return nil, rpcerr.InvalidField("sandboxes", "%s is not of %s", name, req.GetParent())
		}
		ids[i] = id
	}
	missing, earliest, err := s.boxes.Renew(ctx, project, ids, req.GetLease().AsDuration())
	if err != nil {
		return nil, err
	}
	resp := &sandboxv1.RenewLeasesResponse{}
	for _, id := range missing {
		resp.Missing = append(resp.Missing, resource.Format(project, "sandboxes", id))
	}
	if !earliest.IsZero() {
		resp.LeaseExpireTime = timestamppb.New(earliest)
	}
	return resp, nil
}
