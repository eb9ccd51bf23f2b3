// Package server implements SandboxService: it decodes requests, calls the lifecycle and the guests, and encodes
// answers.
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
	"github.com/evalfleet/evalfleet/pkg/offload"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/client"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/lifecycle"
)

// Server implements sandboxv1.SandboxServiceServer.
type Server struct {
	sandboxv1.UnimplementedSandboxServiceServer

	boxes *lifecycle.Sandboxes
	blobs offload.Store
	log   *slog.Logger
}

// New makes the service over the sandboxes of an installation. Files of sandboxes may be in blobs.
func New(boxes *lifecycle.Sandboxes, blobs offload.Store, log *slog.Logger) *Server {
	return &Server{boxes: boxes, blobs: blobs, log: log}
}

// ListDrivers returns the configured drivers by name, with what was measured of each.
func (s *Server) ListDrivers(ctx context.Context, r *sandboxv1.ListDriversRequest) (*sandboxv1.ListDriversResponse, error) {
	page, err := resource.PageOf(r)
	if err != nil {
		return nil, err
	}
	names := slices.Sorted(maps.Keys(s.boxes.Drivers()))
	names = slices.DeleteFunc(names, func(name string) bool { return name <= page.After })
	names, next := resource.Cut(page, names, func(name string) string { return name })
	resp := &sandboxv1.ListDriversResponse{Drivers: make([]*sandboxv1.Driver, len(names)), NextPageToken: next}
	var all sync.WaitGroup
	for i, name := range names {
		all.Go(func() { resp.Drivers[i] = s.measured(ctx, name) })
	}
	all.Wait()
	return resp, ctx.Err()
}

func (s *Server) measured(ctx context.Context, name string) *sandboxv1.Driver {
	out := &sandboxv1.Driver{Name: name, IsDefault: name == s.boxes.DefaultDriver()}
	caps, err := s.boxes.Measure(ctx, name)
	if err != nil {
		s.log.Error("cannot measure a driver", "driver", name, "error", err)
		out.Problem = "it could not be measured; the service's log has the cause"
		return out
	}
	out.Available, out.Isolation = caps.Available(), isolation(caps.Isolation)
	if caps.Problem != nil {
		out.Problem = caps.Problem.Error()
	}
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
