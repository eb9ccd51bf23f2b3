package turn

import (
	"context"
	"strings"

	"google.golang.org/grpc/codes"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/headtail"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/content"
)

func displayName(step *agentv1.AgentRef) string { return agent.DisplayName(step) }

func provider(model string) string {
	name, _, _ := strings.Cut(model, "/")
	return name
}

// creation is the effect of a SandboxIntent. It is not stopped: a run that ends waits for its sandbox and then removes it.
type creation struct {
	client      sandboxv1.SandboxServiceClient
	seq         int64
	environment string
	request     *sandboxv1.CreateSandboxRequest
}

func (a *actor) creation(seq int64, i *agentv1.SandboxIntent) *creation {
	s := a.state
	return &creation{client: a.engine.deps.Sandboxes, seq: seq, environment: i.GetEnvironment(), request: &sandboxv1.CreateSandboxRequest{
		Parent: s.Parent(), Spec: s.Spec().GetSandboxes()[i.GetEnvironment()], RequestId: i.GetRequestId(), Attribution: a.attribution("setup", "", 0),
	}}
}

func (c *creation) do(ctx context.Context, _ *flight) ([]*agentv1.Event, error) {
	box, err := c.client.CreateSandbox(ctx, c.request)
	if err != nil {
		return nil, err
	}
	content.Strip(box)
	return []*agentv1.Event{event(&agentv1.SandboxOutcome{Intent: c.seq, Environment: c.environment, Sandbox: box})}, nil
}

func (c *creation) owners() []string { return []string{sandboxd} }

func (c *creation) stop(context.Context) error { return nil }

func (c *creation) failed(err error) []*agentv1.Event {
	return []*agentv1.Event{event(&agentv1.SandboxOutcome{Intent: c.seq, Environment: c.environment, Error: runError(err)})}
}

// removal deletes a sandbox. Its key is the sandbox's name.
type removal struct {
	engine      *Engine
	environment string
	name        string
}

func (r *removal) do(ctx context.Context, _ *flight) ([]*agentv1.Event, error) {
	_, err := r.engine.deps.Sandboxes.DeleteSandbox(ctx, &sandboxv1.DeleteSandboxRequest{Name: r.name})
	if err != nil && rpcerr.Code(err) != codes.NotFound {
		return nil, err
	}
	return []*agentv1.Event{event(&agentv1.SandboxRemoved{Environment: r.environment, Sandbox: r.name})}, nil
}

func (r *removal) owners() []string { return []string{sandboxd} }

func (r *removal) stop(context.Context) error { return nil }

// failed leaves the sandbox to its lease.
func (r *removal) failed(err error) []*agentv1.Event {
	r.engine.deps.Logger.Warn("cannot remove a sandbox; it is left to its lease", "sandbox", r.name, "error", err)
	return []*agentv1.Event{event(&agentv1.SandboxRemoved{Environment: r.environment, Sandbox: r.name, Kept: true})}
}

// execution is the effect of an ExecIntent.
type execution struct {
	client  sandboxv1.SandboxServiceClient
	seq     int64
	request *sandboxv1.ExecRequest
	missing string
}

func (a *actor) execution(seq int64, i *agentv1.ExecIntent) *execution {
	x := &execution{client: a.engine.deps.Sandboxes, seq: seq}
	box := a.state.Sandboxes[i.GetEnvironment()]
	if box == nil || box.Removed {
		x.missing = i.GetEnvironment()
		return x
	}
	x.request = &sandboxv1.ExecRequest{Sandbox: box.Name, RequestId: i.GetRequestId(), Spec: i.GetContent(), Attribution: a.attribution(i.GetPurpose(), "", 0)}
	return x
}

// keptOutput bounds each stream of an outcome.
const keptOutput = 64 << 10

func (x *execution) do(ctx context.Context, _ *flight) ([]*agentv1.Event, error) {
	if x.request == nil {
		return nil, rpcerr.InvalidRequest("the run has no sandbox %q; name it in sandboxes", x.missing)
	}
	answer, err := x.client.Exec(ctx, x.request)
	if err != nil {
		return nil, err
	}
	result := answer.GetResult()
	result.Stdout, result.StdoutCutAt = cut(result.GetStdout(), result.StdoutCutAt)
	result.Stderr, result.StderrCutAt = cut(result.GetStderr(), result.StderrCutAt)
	return []*agentv1.Event{event(&agentv1.ExecOutcome{Intent: x.seq, Timing: working(answer), Content: result})}, nil
}

// working fills in the time that a command took where its owner does not say.
func working(answer *sandboxv1.ExecResponse) *effectv1.Timing {
	timing := answer.GetTiming()
	if timing == nil {
		timing = &effectv1.Timing{}
	}
	if timing.GetWorking() == nil {
		timing.Working = answer.GetResult().GetDuration()
	}
	return timing
}

func cut(output []byte, at *int64) ([]byte, *int64) {
	if len(output) <= keptOutput {
		return output, at
	}
	return []byte(headtail.Cut(string(output), keptOutput)), new(int64(keptOutput / 2))
}

func (x *execution) owners() []string { return []string{sandboxd} }

func (x *execution) stop(ctx context.Context) error {
	if x.request == nil {
		return nil
	}
	_, err := x.client.CancelExec(ctx, &sandboxv1.CancelExecRequest{Sandbox: x.request.GetSandbox(), RequestId: x.request.GetRequestId()})
	return err
}

func (x *execution) failed(err error) []*agentv1.Event {
	return []*agentv1.Event{event(&agentv1.ExecOutcome{Intent: x.seq, Error: runError(err)})}
}
