package effects

import (
	"context"
	"log/slog"

	"google.golang.org/grpc/codes"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/peers"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/redact"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
)

// creation is the effect of a SandboxIntent.
type creation struct {
	client      sandboxv1.SandboxServiceClient
	seq         int64
	environment string
	request     *sandboxv1.CreateSandboxRequest
}

func (c *Caller) creation(s *run.State, seq int64, i *agentv1.SandboxIntent) *creation {
	return &creation{client: c.deps.Sandboxes, seq: seq, environment: i.GetEnvironment(), request: &sandboxv1.CreateSandboxRequest{
		Parent: s.Parent(), Spec: s.Spec().GetSandboxes()[i.GetEnvironment()], RequestId: i.GetRequestId(), Attribution: s.Attribution("setup", "", 0),
	}}
}

func (c *creation) Do(ctx context.Context, _ *Pending) ([]*agentv1.Event, error) {
	box, err := c.client.CreateSandbox(ctx, c.request)
	if err != nil {
		return nil, err
	}
	bare := redact.Content(box)
	bare.Timing = nil
	return []*agentv1.Event{run.NewEvent(&agentv1.SandboxOutcome{Intent: c.seq, Environment: c.environment, Sandbox: bare, Timing: box.GetTiming()})}, nil
}

func (c *creation) Services() []string { return []string{peers.Sandboxd} }

// Cancel stops the creation. A sandbox that exists already is removed when the run ends, like all of them.
func (c *creation) Cancel(ctx context.Context, _ ...int64) error {
	_, err := c.client.CancelSandbox(ctx, &sandboxv1.CancelSandboxRequest{Parent: c.request.GetParent(), RequestId: c.request.GetRequestId()})
	return err
}

// Release is nil: the results in sandboxd are released per run.
func (c *creation) Release() *Release { return nil }

func (c *creation) Failed(err error) []*agentv1.Event {
	return []*agentv1.Event{run.NewEvent(&agentv1.SandboxOutcome{Intent: c.seq, Environment: c.environment, Error: run.ErrorOf(err)})}
}

// removal deletes a sandbox. Its key is the sandbox's name.
type removal struct {
	client      sandboxv1.SandboxServiceClient
	logger      *slog.Logger
	environment string
	name        string
}

// Removal returns the effect that removes a sandbox of a run. It has no intent, since the removal is idempotent.
func (c *Caller) Removal(environment, sandbox string) Effect {
	return &removal{client: c.deps.Sandboxes, logger: c.deps.Logger, environment: environment, name: sandbox}
}

func (r *removal) Do(ctx context.Context, _ *Pending) ([]*agentv1.Event, error) {
	_, err := r.client.DeleteSandbox(ctx, &sandboxv1.DeleteSandboxRequest{Name: r.name})
	if err != nil && rpcerr.Code(err) != codes.NotFound {
		return nil, err
	}
	return []*agentv1.Event{run.NewEvent(&agentv1.SandboxRemoved{Environment: r.environment, Sandbox: r.name})}, nil
}

func (r *removal) Services() []string { return []string{peers.Sandboxd} }

func (r *removal) Cancel(context.Context, ...int64) error { return nil }

func (r *removal) Release() *Release { return nil }

// Failed leaves the sandbox to its lease.
func (r *removal) Failed(err error) []*agentv1.Event {
	r.logger.Warn("cannot remove a sandbox; it is left to its lease", "sandbox", r.name, "error", err)
	return []*agentv1.Event{run.NewEvent(&agentv1.SandboxRemoved{Environment: r.environment, Sandbox: r.name, Kept: true})}
}
