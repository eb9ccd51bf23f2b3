// Package server is the SandboxService: it reads requests, lets the lifecycle and the guests act, and writes answers.
package server

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/client"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/lifecycle"
)

// Server implements sandboxv1.SandboxServiceServer.
type Server struct {
	sandboxv1.UnimplementedSandboxServiceServer

	boxes *lifecycle.Sandboxes
	log   *slog.Logger

	mu     sync.Mutex
	probed map[string]*sandboxv1.Driver
}

// New makes the service over the sandboxes of an installation.
func New(boxes *lifecycle.Sandboxes, log *slog.Logger) *Server {
	return &Server{boxes: boxes, log: log, probed: map[string]*sandboxv1.Driver{}}
}

// CreateSandbox makes a sandbox and answers when it is usable.
func (s *Server) CreateSandbox(ctx context.Context, req *sandboxv1.CreateSandboxRequest) (*sandboxv1.Sandbox, error) {
	project, err := resource.Project("parent", req.GetParent())
	if err != nil {
		return nil, err
	}
	b, err := s.boxes.Create(ctx, project, req.GetSpec(), req.GetRequestId())
	if err != nil {
		return nil, err
	}
	return toProto(b), nil
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
	project, err := resource.Project("parent", req.GetParent())
	if err != nil {
		return nil, err
	}
	position, err := resource.Position(req.GetPageToken(), req)
	if err != nil {
		return nil, err
	}
	var after *lifecycle.Sandbox
	if position != "" {
		if after, err = readPosition(position); err != nil {
			return nil, err
		}
	}
	size := resource.PageSize(req.GetPageSize())
	found, err := s.boxes.List(ctx, project, after, req.GetLabels(), req.GetShowDeleted(), size)
	if err != nil {
		return nil, err
	}
	resp := &sandboxv1.ListSandboxesResponse{}
	for _, b := range found {
		resp.Sandboxes = append(resp.Sandboxes, toProto(b))
	}
	if len(found) == size {
		resp.NextPageToken = resource.PageToken(writePosition(found[size-1]), req)
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
	project, err := resource.Project("parent", req.GetParent())
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

// ListDrivers tells which drivers there are and what was measured of each, once in the life of the process.
func (s *Server) ListDrivers(ctx context.Context, _ *sandboxv1.ListDriversRequest) (*sandboxv1.ListDriversResponse, error) {
	resp := &sandboxv1.ListDriversResponse{}
	for _, name := range slices.Sorted(maps.Keys(s.boxes.Drivers())) {
		resp.Drivers = append(resp.Drivers, s.probe(ctx, name, s.boxes.Drivers()[name]))
	}
	return resp, nil
}

func (s *Server) probe(ctx context.Context, name string, d driver.Driver) *sandboxv1.Driver {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.probed[name]; ok {
		return known
	}
	out := &sandboxv1.Driver{Name: name, IsDefault: name == s.boxes.DefaultDriver()}
	caps, err := d.Probe(ctx)
	if err != nil {
		s.log.Error("cannot measure a driver", "driver", name, "error", err)
		out.Problem = "it could not be measured; the service's log has the cause"
		return out // measured again the next time
	}
	out.Available, out.Problem, out.Isolation = caps.Problem == "", caps.Problem, isolation(caps.Isolation)
	s.probed[name] = out
	return out
}

// use calls f with the connection to a sandbox's guest.
func (s *Server) use(ctx context.Context, name string, f func(*client.Client) error) error {
	project, id, err := parse("sandbox", name)
	if err != nil {
		return err
	}
	return s.boxes.Use(ctx, project, id, f)
}

func parse(field, name string) (project, id string, err error) {
	n, err := resource.Parse(field, name, "sandboxes")
	if err != nil {
		return "", "", err
	}
	return n.Project, n.IDs[0], nil
}

// now is a time that Timing may hold.
func now() *timestamppb.Timestamp { return timestamppb.New(time.Now()) }
