package effects

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	workerv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/worker/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/workers"
)

// workerCall is the effect of a WorkerIntent.
type workerCall struct {
	workers Workers
	seq     int64
	request workers.Request
}

func (c *Caller) workerCall(s *run.State, of *run.Intent, i *agentv1.WorkerIntent) *workerCall {
	store, attribution := workers.Entries(i.GetWorker(), s.Store()), of.Frame.Attribution(i.GetPurpose(), "", 0)
	r := workers.Request{Project: s.Project(), Key: i.GetRequestId(), Epoch: attribution.GetOwnerEpoch(), Worker: i.GetWorker()}
	attribution.OwnerEpoch = 0 // It is of no use to a worker.
	if i.GetWorker().GetKind() == workers.Scorer {
		payload := &workerv1.ScorerPayload{
			Messages: of.Frame.Messages(), Output: of.Frame.Output(), Target: s.Spec().GetTarget(), Choices: s.Spec().GetChoices(), MetadataJson: s.Spec().GetMetadataJson(), Store: store,
			Attribution: attribution,
		}
		if s.Scoring != nil { // Else the round was given up, and the call is stopped.
			payload.ParamsJson = s.Spec().GetScorers()[s.Scoring.Next].GetParamsJson()
		}
		r.Payload = payload
	} else {
		r.Payload = &workerv1.ContinuePayload{Messages: of.Frame.Messages(), Output: of.Frame.Output(), Store: store, Attribution: attribution}
	}
	return &workerCall{workers: c.deps.Workers, seq: of.Seq(), request: r}
}

func (c *workerCall) Do(ctx context.Context, p *Pending) ([]*agentv1.Event, error) {
	request := c.request
	request.Progress = func(line string) { p.note(c.seq, &effectv1.Note{Message: line, Time: timestamppb.Now()}) }
	outcome, err := c.workers.Ask(ctx, request)
	if err != nil {
		return nil, err
	}
	outcome.Intent = c.seq
	return []*agentv1.Event{run.NewEvent(outcome)}, nil
}

// Services are none: workers connect to this service, and a call waits for them durably.
func (c *workerCall) Services() []string { return nil }

func (c *workerCall) Cancel(ctx context.Context, _ ...int64) error {
	return c.workers.Cancel(ctx, c.request.Project, c.request.Key)
}

func (c *workerCall) Release() *Release {
	return &Release{owner: answers, parent: c.request.Project, key: c.request.Key}
}

func (c *workerCall) Failed(err error) []*agentv1.Event {
	return []*agentv1.Event{run.NewEvent(&agentv1.WorkerOutcome{Intent: c.seq, Error: run.ErrorOf(err)})}
}
