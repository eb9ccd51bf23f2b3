package plan

import (
	"context"
	"fmt"
	"slices"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/workers"
)

// Pin writes the workers' offers into an evaluation's steps, tools and scorers, so that all its runs mean the same,
// even while a worker is disconnected. Unknown names stay unchanged, and Check judges them; but a scorer must be known.
func (c Checker) Pin(ctx context.Context, project string, spec *agentv1.EvalSpec) error {
	for i, ref := range spec.GetScorers() {
		if err := c.pinScorer(project, ref); err != nil {
			return rpcerr.In(fmt.Sprintf("spec.scorers[%d]", i), err)
		}
	}
	c.pinOffered(ctx, project, spec.GetTools())
	for i, step := range spec.GetSteps() {
		if err := c.pinFunctions(project, step); err != nil {
			return rpcerr.In(run.FieldOfStep(i), err)
		}
		c.pinOffered(ctx, project, step.GetTools())
	}
	return nil
}

// pinScorer pins the worker of a scorer that is not built in.
func (c Checker) pinScorer(project string, ref *agentv1.ScorerRef) error {
	if pinned := ref.GetWorker(); pinned != nil {
		if pinned.GetKind() != workers.Scorer || pinned.GetName() != ref.GetName() {
			return rpcerr.InvalidField("worker", "is not the scorer %s; leave it out", ref.GetName())
		}
		return nil
	}
	_, unknown := c.Scorers.Definition(ref.GetName())
	if unknown == nil || c.Workers == nil {
		return unknown
	}
	pinned, err := c.Workers.Pin(project, workers.Scorer, ref.GetName(), ref.GetParamsJson())
	switch {
	case rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_WORKER_NOT_CONNECTED):
		if e, ok := rpcerr.As(unknown); ok {
			return e.Saying("a worker may serve it, and none that does is connected")
		}
		return unknown
	case err != nil:
		return err
	}
	ref.Worker = pinned
	return nil
}

// pinFunctions pins the workers that a step's agent asks.
func (c Checker) pinFunctions(project string, step *agentv1.AgentRef) error {
	for _, wanted := range c.Agents.Workers(step) {
		has := func(ref *agentv1.WorkerRef) bool {
			return ref.GetKind() == wanted.GetKind() && ref.GetName() == wanted.GetName()
		}
		if slices.ContainsFunc(step.GetWorkers(), has) {
			continue
		}
		if c.Workers == nil {
			return rpcerr.WorkerNotConnected(wanted.GetKind(), wanted.GetName(), "there are no workers here to serve %s %s", wanted.GetKind(), wanted.GetName())
		}
		pinned, err := c.Workers.Pin(project, wanted.GetKind(), wanted.GetName(), "")
		if err != nil {
			return err
		}
		step.Workers = append(step.Workers, pinned)
	}
	return nil
}

// pinOffered pins the known definitions of workers' tools.
func (c Checker) pinOffered(ctx context.Context, project string, refs []*toolv1.ToolRef) {
	foreign := slices.DeleteFunc(slices.Clone(refs), func(ref *toolv1.ToolRef) bool { return ref.GetDefinition() != nil })
	if len(foreign) == 0 {
		return
	}
	answer, err := c.Tools.ResolveTools(ctx, &toolv1.ResolveToolsRequest{Parent: resource.Project(project), Tools: foreign})
	if err == nil {
		pinServed(foreign, answer.GetTools())
	}
}

// pinServed stores the definitions of workers' tools in their references, with the changes that the references make.
// Such a reference means the same while no worker is connected.
func pinServed(refs []*toolv1.ToolRef, definitions []*toolv1.ToolDefinition) {
	for _, ref := range refs {
		for _, d := range definitions {
			if d.GetInfo().GetName() == run.VisibleName(ref) {
				run.PinTool(ref, d)
			}
		}
	}
}
