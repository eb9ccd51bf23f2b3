package server

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/auth"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/headtail"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/runs"
)

// maxLogged bounds a text in the log that a caller chose, in bytes.
const maxLogged = 200

// CreateRun creates a run and returns when it is durable.
func (s *Runs) CreateRun(ctx context.Context, r *agentv1.CreateRunRequest) (*agentv1.Run, error) {
	project, err := resource.ParseProject("parent", r.GetParent())
	if err != nil {
		return nil, err
	}
	spec := proto.CloneOf(r.GetSpec())
	if spec != nil {
		spec.Attribution = nil // the platform's to give
	}
	run, err := s.deps.Runs.Create(ctx, runs.Request{Project: project, Spec: spec, ID: r.GetRequestId(), Principal: auth.FromContext(ctx).Actor()})
	if err != nil {
		rpcerr.LogRefusal(ctx, s.deps.Logger, "a run is refused", err, "parent", headtail.Cut(r.GetParent(), maxLogged))
	}
	return run, err
}
