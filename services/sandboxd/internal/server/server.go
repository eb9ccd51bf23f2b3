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
