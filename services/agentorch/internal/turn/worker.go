package turn

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/evalfleet/evalfleet/pkg/board"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	workerv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/worker/v1"
	"github.com/evalfleet/evalfleet/pkg/worker"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/workers"
)

// Workers asks workers for what is no tool. [workers.Workers] implements it.
type Workers interface {
	Ask(ctx context.Context, r workers.Request) (*agentv1.WorkerOutcome, error)
	Cancel(ctx context.Context, project, key string) error
	Release(ctx context.Context, project string, keys []string) error
	// Served tells what workers serve, as they come and go.
	Served() *board.Board[worker.Offered, struct{}]
}

// workerCall is the effect of a WorkerIntent.
type workerCall struct {
	workers Workers
	seq     int64
	request workers.Request
}

func (a *actor) workerCall(seq int64, i *agentv1.WorkerIntent) *workerCall {
	s := a.state
	store, attribution := workers.Entries(i.GetWorker(), s.Store()), a.attribution(i.GetPurpose(), "", 0)
	r := workers.Request{Project: s.Project(), Key: i.GetRequestId(), Worker: i.GetWorker()}
	if i.GetWorker().GetKind() == workers.Scorer {
		payload := &workerv1.ScorerPayload{
			Messages: s.Messages(), Output: s.Output(), Target: s.Spec().GetTarget(), Choices: s.Spec().GetChoices(), MetadataJson: s.Spec().GetMetadataJson(), Store: store,
			Attribution: attribution,
		}
		if s.Scoring != nil { // Else the round was given up, and the call is stopped.
			payload.ParamsJson = s.Spec().GetScorers()[s.Scoring.Next].GetParamsJson()
		}
		r.Payload = payload
	} else {
		r.Payload = &workerv1.ContinuePayload{Messages: s.Messages(), Output: s.Output(), Store: store, Attribution: attribution}
	}
	return &workerCall{workers: a.engine.deps.Workers, seq: seq, request: r}
}

// askWorker journals the intent of a call.
func (d *driver) askWorker(ref *agentv1.WorkerRef, purpose string) error {
	return d.emit(event(&agentv1.WorkerIntent{Worker: ref, RequestId: d.s.Key(d.s.Seq + 1), Purpose: purpose}))
}

// askForAgent asks the worker that an agent wants to hear, unless a bound forbids it.
func (d *driver) askForAgent(ref *agentv1.WorkerRef) error {
	if reached := d.forbidden(); reached != nil {
		return d.hit(reached)
	}
	return d.askWorker(ref, run.PurposeAgent)
}

func (c *workerCall) do(ctx context.Context, f *flight) ([]*agentv1.Event, error) {
	request := c.request
	request.Progress = func(line string) { f.note(c.seq, &effectv1.Note{Message: line, Time: timestamppb.Now()}) }
	outcome, err := c.workers.Ask(ctx, request)
	if err != nil {
		return nil, err
	}
	outcome.Intent = c.seq
	return []*agentv1.Event{event(outcome)}, nil
}

// owners are none: workers come to this service, and a call waits for them durably.
func (c *workerCall) owners() []string { return nil }

func (c *workerCall) stop(ctx context.Context) error {
	return c.workers.Cancel(ctx, c.request.Project, c.request.Key)
}

func (c *workerCall) failed(err error) []*agentv1.Event {
	return []*agentv1.Event{event(&agentv1.WorkerOutcome{Intent: c.seq, Error: runError(err)})}
}
