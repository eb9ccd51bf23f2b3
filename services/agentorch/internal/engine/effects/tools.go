package effects

import (
	"context"
	"errors"
	"io"
	"slices"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/peers"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
)

// toolStage is the effect of tool calls that run concurrently: one request, in which every call is an effect of its
// own.
type toolStage struct {
	client  toolv1.ToolServiceClient
	calls   []*run.Call
	request *toolv1.ExecuteToolsRequest
}

// toolStage returns the request of an agent's present stage, or of a call that was requested from outside. After a
// restart it is the same request, including calls that have ended: it attaches to their results, which are already
// known.
func (c *Caller) toolStage(s *run.State, i *run.Intent) *toolStage {
	f, stage, purpose := i.Frame, i.Stage, run.PurposeOutside
	r := &toolv1.ExecuteToolsRequest{Parent: s.Parent(), Tools: f.ToolRefs(), Sandboxes: map[string]string{}}
	if stage == nil {
		stage, purpose, r.FailFast = f.Calls.Stage, agent.PurposeAgent, f.Calls.FailFast
	}
	r.RequestId, r.Attribution = stage.RequestID, f.Attribution(purpose, "", s.Answers)
	r.Store, r.MaxOutputBytes = stage.Store, bound(f, stage)
	for _, call := range stage.Calls {
		r.Calls = append(r.Calls, call.Call)
	}
	for environment, box := range s.Sandboxes {
		r.Sandboxes[environment] = box.Name
	}
	return &toolStage{client: c.deps.Tools, calls: stage.Calls, request: r}
}

// bound is the bound of a stage's results: the agent's own, else the run's.
func bound(f *run.Frame, stage *run.Stage) *int64 {
	if maxBytes, set := f.Machine.ToolBound(stage.Calls[0].Call.GetFunction()); set {
		return &maxBytes
	}
	spec := f.Spec()
	return chat.ResolveConfig(spec.GetModel().GetConfig(), spec.GetConfig(), nil, true).MaxToolOutput
}

// Services are toolexec, and sandboxd if the tools may use a sandbox.
func (t *toolStage) Services() []string {
	if len(t.request.GetSandboxes()) > 0 {
		return []string{peers.Toolexec, peers.Sandboxd}
	}
	return []string{peers.Toolexec}
}

func (t *toolStage) Do(ctx context.Context, p *Pending) ([]*agentv1.Event, error) {
	stream, err := t.client.ExecuteTools(ctx, t.request)
	if err != nil {
		return nil, err
	}
	left, why := slices.Clone(t.calls), error(rpcerr.Internal("the call ended without a result"))
	for {
		answer, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if progress := answer.GetProgress(); progress != nil {
			if c := t.at(progress.GetIndex(), progress.GetCallId()); c != nil {
				p.note(c.Intent.GetSeq(), progress.GetNote())
			}
			continue
		}
		if answer.GetResult().GetFailure() != nil {
			why = rpcerr.EffectCancelled(t.request.GetRequestId(), "not executed, since another call failed for good")
		}
		if at := slices.Index(left, t.of(answer.GetResult())); at >= 0 {
			p.note(left[at].Intent.GetSeq(), nil)
			p.report(run.ToolOutcome(left[at].Intent, answer.GetResult()))
			left = slices.Delete(left, at, at+1)
		}
	}
	var missing []*agentv1.Event
	if len(left) > 0 {
		p.logInternal(why)
	}
	for _, c := range left {
		missing = append(missing, failedCall(c, why))
	}
	return missing, nil
}

// of returns the call that a result belongs to; nil if there is none. Some providers send two calls with one id, so the
// position counts too.
func (t *toolStage) of(result *toolv1.ToolResult) *run.Call {
	if result == nil {
		return nil
	}
	return t.at(result.GetIndex(), result.GetCallId())
}

func (t *toolStage) at(index int32, id string) *run.Call {
	if i := int(index); i >= 0 && i < len(t.calls) && t.calls[i].Call.GetId() == id {
		return t.calls[i]
	}
	return nil
}

// refs returns the calls of the given intents; without intents, all calls.
func (t *toolStage) refs(intents ...int64) []*toolv1.CallRef {
	var refs []*toolv1.CallRef
	for i, c := range t.calls {
		if len(intents) == 0 || slices.Contains(intents, c.Intent.GetSeq()) {
			refs = append(refs, &toolv1.CallRef{CallId: c.Call.GetId(), Index: int32(i)})
		}
	}
	return refs
}

func (t *toolStage) Cancel(ctx context.Context, intents ...int64) error {
	_, err := t.client.CancelTools(ctx, &toolv1.CancelToolsRequest{Parent: t.request.GetParent(), RequestId: t.request.GetRequestId(), Calls: t.refs(intents...)})
	return err
}

func (t *toolStage) Release() *Release {
	return &Release{owner: stages, parent: t.request.GetParent(), key: t.request.GetRequestId(), calls: t.refs()}
}

func (t *toolStage) Failed(err error) []*agentv1.Event {
	outcomes := make([]*agentv1.Event, len(t.calls))
	for i, c := range t.calls {
		outcomes[i] = failedCall(c, err)
	}
	return outcomes
}

// failedCall is the outcome of a call whose request failed.
func failedCall(c *run.Call, err error) *agentv1.Event {
	as := run.ErrorOf(err)
	return run.ToolOutcome(c.Intent, &toolv1.ToolResult{
		CallId: c.Call.GetId(), Function: c.Call.GetFunction(), Failure: &toolv1.ToolFailure{Reason: as.GetReason(), Message: as.GetMessage()},
	})
}
