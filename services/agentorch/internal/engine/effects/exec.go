package effects

import (
	"context"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/headtail"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/peers"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
)

// execution is the effect of an ExecIntent.
type execution struct {
	client  sandboxv1.SandboxServiceClient
	seq     int64
	request *sandboxv1.ExecRequest
	missing string
}

func (c *Caller) execution(s *run.State, of *run.Intent, i *agentv1.ExecIntent) *execution {
	x := &execution{client: c.deps.Sandboxes, seq: of.Seq()}
	box := s.Sandboxes[i.GetEnvironment()]
	if box == nil || box.Removed {
		x.missing = i.GetEnvironment()
		return x
	}
	x.request = &sandboxv1.ExecRequest{Sandbox: box.Name, RequestId: i.GetRequestId(), Spec: i.GetContent(), Attribution: of.Frame.Attribution(i.GetPurpose(), "", 0)}
	return x
}

// keptOutput bounds each stream of an outcome.
const keptOutput = 64 << 10

func (x *execution) Do(ctx context.Context, _ *Pending) ([]*agentv1.Event, error) {
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
	return []*agentv1.Event{run.NewEvent(&agentv1.ExecOutcome{Intent: x.seq, Timing: working(answer), Content: result})}, nil
}

// working fills in the working time of a command if its owner did not report it.
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

func (x *execution) Services() []string { return []string{peers.Sandboxd} }

func (x *execution) Cancel(ctx context.Context, _ ...int64) error {
	if x.request == nil {
		return nil
	}
	_, err := x.client.CancelExec(ctx, &sandboxv1.CancelExecRequest{Sandbox: x.request.GetSandbox(), RequestId: x.request.GetRequestId()})
	return err
}

func (x *execution) Release() *Release {
	if x.request == nil {
		return nil
	}
	return &Release{owner: execs, key: x.request.GetRequestId(), sandbox: x.request.GetSandbox()}
}

func (x *execution) Failed(err error) []*agentv1.Event {
	return []*agentv1.Event{run.NewEvent(&agentv1.ExecOutcome{Intent: x.seq, Error: run.ErrorOf(err)})}
}
