package server

import (
	"context"
	"crypto/sha256"
	"errors"

	"google.golang.org/protobuf/proto"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/headtail"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/launch"
)

// maxLogged bounds a text in the log that a caller chose, in bytes.
const maxLogged = 200

// CreateRun makes a run and answers when it is durable.
func (s *Runs) CreateRun(ctx context.Context, r *agentv1.CreateRunRequest) (*agentv1.Run, error) {
	own := proto.CloneOf(r)
	if own.GetSpec() != nil {
		own.Spec.Attribution = nil // the platform's to give
	}
	run, err := s.Create(ctx, own)
	if err != nil {
		rpcerr.LogRefusal(ctx, s.deps.Logger, "a run is refused", err, "parent", headtail.Cut(own.GetParent(), maxLogged))
	}
	return run, err
}

// Create is CreateRun for callers in this process, who may say which sample of an eval the run is.
func (s *Runs) Create(ctx context.Context, r *agentv1.CreateRunRequest) (*agentv1.Run, error) {
	project, err := resource.Project("parent", r.GetParent())
	if err != nil {
		return nil, err
	}
	plan, err := s.deps.Launcher.Check(ctx, project, r.GetSpec())
	if err != nil {
		return nil, err
	}
	request := launch.Request{ID: r.GetRequestId(), Digest: digest(r)}
	head, _, err := s.deps.Launcher.Start(ctx, plan, request, principal(ctx))
	if errors.Is(err, journal.ErrReused) {
		return nil, rpcerr.RequestIDReused(r.GetRequestId(), "request id %q was used for another run", r.GetRequestId())
	}
	if err != nil {
		return nil, err
	}
	return s.view(ctx, head.Name, false)
}

// Check checks a specification as CreateRun does, and makes nothing. It says what would not be done as the specification asks for.
func (s *Runs) Check(ctx context.Context, project string, spec *agentv1.RunSpec) ([]*agentv1.EvalWarning, error) {
	plan, err := s.deps.Launcher.Check(ctx, project, spec)
	if err != nil {
		return nil, err
	}
	return plan.Warnings, nil
}

// CheckSandboxes is Check without the models.
func (s *Runs) CheckSandboxes(ctx context.Context, project string, spec *agentv1.RunSpec) error {
	return s.deps.Launcher.CheckSandboxes(ctx, project, spec)
}

// CheckSample checks what a run needs of its sample, and asks no other service.
func (s *Runs) CheckSample(project string, spec *agentv1.RunSpec) error {
	return s.deps.Launcher.CheckSample(project, spec)
}

// Pin pins what workers offer under the names of an evaluation.
func (s *Runs) Pin(ctx context.Context, project string, spec *agentv1.EvalSpec) error {
	return s.deps.Launcher.Pin(ctx, project, spec)
}

// digest hashes a request's content: all but its id and on whose behalf it is. It is empty for an eval's request, whose id names one slot and attempt: a later version may put
// the same request otherwise.
func digest(r *agentv1.CreateRunRequest) []byte {
	if r.GetSpec().GetAttribution().GetEval() != "" {
		return nil
	}
	content := proto.CloneOf(r)
	content.RequestId = ""
	if content.GetSpec() != nil {
		content.Spec.Attribution = nil
	}
	b, _ := proto.MarshalOptions{Deterministic: true}.Marshal(content) // what came over the wire has a form on it
	sum := sha256.Sum256(b)
	return sum[:]
}
