package eval

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/auth"
	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/effect/effectrpc"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/headtail"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
)

// Create checks a specification, creates the evaluation and starts it. With a request id, a repeated call returns the
// same evaluation. With validateOnly it creates nothing.
func (e *Engine) Create(ctx context.Context, project string, spec *agentv1.EvalSpec, requestID string, validateOnly bool) (*State, error) {
	return e.CreateAs(ctx, project, spec, spec, requestID, validateOnly)
}

// CreateAs is Create for a specification that was made of another request. A repeated call has the same request id and
// the same content of that request.
func (e *Engine) CreateAs(ctx context.Context, project string, spec *agentv1.EvalSpec, of proto.Message, requestID string, validateOnly bool) (*State, error) {
	digest, err := effectrpc.Hash(of)
	spec = proto.CloneOf(spec)
	if err != nil {
		return nil, err
	}
	samples, warnings, err := e.check(ctx, project, spec)
	if err != nil {
		if !validateOnly {
			rpcerr.LogRefusal(ctx, e.deps.Logger, "an evaluation is refused", err, "project", project, "task", headtail.Cut(spec.GetTask(), maxLogged))
		}
		return nil, err
	}
	ref, err := storeSamples(ctx, e.deps.Blobs, project, samples)
	if err != nil {
		return nil, err
	}
	if inline := spec.GetDataset().GetInline(); inline != nil {
		spec.Dataset.Source = nil // The body holds the samples.
	}
	created := &agentv1.EvalCreated{Spec: spec, Samples: int32(samples.Len()), Dataset: ref, Warnings: warnings, FoldVersion: FoldVersion}
	name := resource.Format(project, "evals", resource.NewID())
	event := newEvent(1, &agentv1.Event{Journal: name, Actor: auth.FromContext(ctx).Actor(), Kind: &agentv1.Event_EvalCreated{EvalCreated: created}})
	state := &State{}
	state.Apply(event)
	if validateOnly {
		state.Eval.Name = ""
		return state, nil
	}
	c := journal.Creation{Name: name, Owner: e.deps.Replica, Entries: []journal.Entry{{Event: event}}, Row: rowOf(state)}
	if requestID != "" {
		c.Request, c.Digest = project+"/evals/"+requestID, digest[:]
	}
	head, isNew, err := e.deps.Journals.Create(ctx, c)
	switch {
	case errors.Is(err, journal.ErrReused):
		return nil, rpcerr.RequestIDReused(requestID, "request id %q was used for another evaluation; use a new one", requestID)
	case err != nil:
		return nil, err
	case !isNew:
		return e.State(ctx, head.Name)
	}
	d, err := e.load(ctx, head)
	if err != nil {
		return nil, err
	}
	e.logBegin(state)
	e.drive(d) //nolint:contextcheck // A driver outlives the call that starts it.
	return state, nil
}

// check resolves all names in a specification and reads its samples. It returns a warning for each part of the
// specification that would not be honoured.
func (e *Engine) check(ctx context.Context, project string, spec *agentv1.EvalSpec) (*Samples, []*agentv1.EvalWarning, error) {
	if epochs := spec.GetEpochs(); epochs != nil && epochs.Count != nil && epochs.GetCount() < 1 {
		return nil, nil, rpcerr.InvalidField("spec.epochs.count", "every sample runs at least once, not %d times; leave epochs out for once", epochs.GetCount())
	}
	if err := checkRuns(spec, nil); err != nil {
		return nil, nil, err
	}
	if tries := spec.GetRetryOnError(); tries < 0 || tries > bound.EvalRetries {
		return nil, nil, rpcerr.InvalidField("spec.retry_on_error", "is %d; want 0 or more, and at most %d", tries, bound.EvalRetries)
	}
	if n := spec.GetFailOnError().GetThreshold(); !(n >= 0 && n < 1 || n == math.Trunc(n) && n >= 1 && n <= math.MaxFloat64) {
		return nil, nil, rpcerr.InvalidField("spec.fail_on_error", "is %v; want a part of the samples below 1, or a whole number of them", n)
	}
	if spec.MaxSamples != nil && spec.GetMaxSamples() < 1 {
		return nil, nil, rpcerr.InvalidField("spec.max_samples", "must be at least 1; leave it out for the server's bound")
	}
	if len(spec.GetSteps()) == 0 {
		spec.Steps = []*agentv1.AgentRef{{Name: "generate"}}
	}
	if err := e.deps.Runs.Pin(ctx, project, spec); err != nil {
		return nil, nil, err
	}
	if err := e.deps.Judges.check(spec); err != nil {
		return nil, nil, err
	}
	// One data set at a time: a large one takes much memory until it is stored.
	select {
	case e.reading <- struct{}{}:
		defer func() { <-e.reading }()
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	samples, err := readSamples(ctx, e.deps.Blobs, project, spec)
	if err != nil {
		return nil, nil, err
	}
	if err := checkRuns(spec, samples); err != nil {
		return nil, nil, err
	}
	if err := e.deps.Judges.checkTargets(ctx, spec, samples); err != nil {
		return nil, nil, err
	}
	if err := e.deps.Judges.checkMetadata(ctx, spec, samples); err != nil {
		return nil, nil, err
	}
	var warnings []*agentv1.EvalWarning
	for i, sample := range samples.All() {
		for model := range spec.GetModels() {
			if err := ctx.Err(); err != nil {
				return nil, nil, err
			}
			if i > 0 && model > 0 {
				break // A sample has the same needs with every model.
			}
			slot := &Slot{Sample: i, Epoch: 1, Model: model}
			run, err := runSpec("", spec, sample, slot)
			if err != nil {
				return nil, nil, err
			}
			switch {
			case i == 0: // The names are those of the task; one sample is enough for all of them.
				var more []*agentv1.EvalWarning
				more, err = e.deps.Runs.Validate(ctx, project, run)
				warnings = appendNew(warnings, more)
			case sample.GetSandbox() != nil:
				err = e.deps.Runs.CheckSandboxes(ctx, project, run)
			default:
				err = e.deps.Runs.CheckSample(project, run)
			}
			if err != nil { // Only the model has another path than in the run's specification.
				return nil, nil, rpcerr.Moved("spec.model", fmt.Sprintf("spec.models[%d]", model), err)
			}
		}
	}
	return samples, warnings, nil
}

// checkRuns bounds the runs of an evaluation. It is asked before the samples are read, with nil, and after.
func checkRuns(spec *agentv1.EvalSpec, samples *Samples) error {
	epochs, models := max(1, int64(spec.GetEpochs().GetCount())), int64(len(spec.GetModels()))
	runs, factors := epochs*models, fmt.Sprintf("%d epochs × %d models", epochs, models)
	if samples != nil {
		runs, factors = runs*int64(samples.Len()), fmt.Sprintf("%d samples × %s", samples.Len(), factors)
	}
	if runs <= bound.EvalRuns {
		return nil
	}
	field := "spec.dataset"
	switch {
	case epochs > 1:
		field = "spec.epochs.count"
	case models > 1:
		field = "spec.models"
	}
	return rpcerr.InvalidField(field, "%s are %d runs; an evaluation has at most %d", factors, runs, bound.EvalRuns)
}

// appendNew appends the warnings that are not in all yet. A warning for all calls of a model replaces an equal warning
// for a step.
func appendNew(all, more []*agentv1.EvalWarning) []*agentv1.EvalWarning {
	for _, w := range more {
		same := slices.IndexFunc(all, func(known *agentv1.EvalWarning) bool { return known.GetMessage() == w.GetMessage() })
		switch {
		case same < 0:
			all = append(all, w)
		case w.GetField() == "":
			all[same] = w
		}
	}
	return all
}
