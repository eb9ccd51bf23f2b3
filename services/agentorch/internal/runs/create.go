package runs

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/evalfleet/evalfleet/pkg/effect/effectrpc"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/runs/plan"
)

// system is the principal of requests that no caller made.
const system = "system"

// Request asks for a run.
type Request struct {
	Project string
	Spec    *agentv1.RunSpec
	// ID makes the request idempotent within its project; empty if it is not.
	ID string
	// Principal is the caller, as journals name it.
	Principal string
}

// Create checks a specification and creates its run. It returns when the run is durable.
func (r *Runs) Create(ctx context.Context, q Request) (*agentv1.Run, error) {
	p, err := r.Check(ctx, q.Project, q.Spec)
	if err != nil {
		return nil, err
	}
	digest, err := effectrpc.Hash(q.Spec)
	if err != nil {
		return nil, err
	}
	head, err := r.Start(ctx, p, Key{ID: q.ID, Digest: digest[:]}, q.Principal)
	if err != nil {
		return nil, err
	}
	return r.View(ctx, head.Name, false)
}

// CreateSample is Create for an attempt at a sample of an evaluation, as its key and the specification's attribution
// define it. It waits for unreachable services. It returns the name of the run. It fails with [journal.ErrFenced] if
// the evaluation has ended, or has another owner than the one that under is of.
func (r *Runs) CreateSample(ctx context.Context, project string, spec *agentv1.RunSpec, key string, under journal.Head) (run string, err error) {
	patient := r.Checker
	patient.Services = r.deps.Patient
	p, err := patient.Check(ctx, project, spec)
	if err != nil {
		return "", err
	}
	// Without a digest: a later version may put the request for the same attempt otherwise.
	head, err := r.Start(ctx, p, Key{ID: key, Under: under}, system)
	return head.Name, err
}

// Key makes the creation of a run idempotent within its project.
type Key struct {
	// ID is the key; empty if there is none.
	ID string
	// Digest is a hash of the request's content; empty if the id alone identifies the request.
	Digest []byte
	// Under is the evaluation, as its owner knows it; zero for a run without one.
	Under journal.Head
}

// Start creates the run of a plan and begins to drive it, or leaves a run of an evaluation to another replica. A
// repeated key returns the run that it created before, and fails with REQUEST_ID_REUSED if the digest differs.
func (r *Runs) Start(ctx context.Context, p *plan.Plan, key Key, principal string) (journal.Head, error) {
	select {
	case <-r.deps.Engine.Ready():
	case <-ctx.Done():
		return journal.Head{}, ctx.Err()
	}
	now := time.Now()
	id := resource.NewID()
	name := resource.Format(p.Project(), "runs", id)
	spec := proto.CloneOf(p.Spec())
	for i, m := range spec.GetInput() {
		if m.GetId() == "" {
			m.Id = fmt.Sprintf("%s.in.%d", id, i+1)
		}
		if m.GetSource() == modelv1.MessageSource_MESSAGE_SOURCE_UNSPECIFIED {
			m.Source = modelv1.MessageSource_MESSAGE_SOURCE_INPUT
		}
	}
	bare, content := run.Split(spec)
	event := &agentv1.Event{
		Journal: name, Seq: 1, Epoch: 1, Time: timestamppb.New(now), Actor: principal, Id: "1", Critical: true,
		Kind: &agentv1.Event_RunCreated{RunCreated: &agentv1.RunCreated{
			Spec: bare, Tools: p.Tools(), FoldVersion: run.FoldVersion, Content: content, Warnings: p.Warnings,
		}},
	}
	state, err := run.Fold(name, r.Agents, one(event))
	if err != nil {
		return journal.Head{}, err
	}
	row, err := state.Row()
	if err != nil {
		return journal.Head{}, err
	}
	owner := r.deps.Engine.Replica()
	if row.Parent != "" {
		owner = r.deps.Engine.Place()
	}
	c := journal.Creation{Name: name, Owner: owner, Entries: []journal.Entry{{Event: event}}, Row: row, Under: key.Under}
	if key.ID != "" {
		c.Request, c.Digest = p.Project()+"/CreateRun/"+key.ID, key.Digest
	}
	head, created, err := r.deps.Store.Create(ctx, c)
	switch {
	case errors.Is(err, journal.ErrReused):
		return journal.Head{}, rpcerr.RequestIDReused(key.ID, "request id %q was used for another run; use a new one", key.ID)
	case err != nil:
		return journal.Head{}, err
	case created:
		r.deps.Traces.LinkRun(ctx, name)
		if row.Parent == "" {
			r.deps.Logger.InfoContext(ctx, "a run begins", "run", name, "model", spec.GetModel().GetModel())
		}
		if owner != "" {
			r.deps.Engine.Drive(head, row.Parent)
		}
	}
	return head, nil
}

func one(e *agentv1.Event) iter.Seq2[*agentv1.Event, error] {
	return func(yield func(*agentv1.Event, error) bool) { yield(e, nil) }
}
