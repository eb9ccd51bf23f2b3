// Package plan checks the specification of a run, resolves every name in it and pins everything that determines the
// run's course. It creates nothing.
package plan

import (
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
)

// Services are the other services that a check calls.
type Services struct {
	Models    modelv1.ModelServiceClient
	Tools     toolv1.ToolServiceClient
	Sandboxes sandboxv1.SandboxServiceClient
}

// Checker checks specifications. It has no state of its own: a copy with other services is another checker. Its methods
// are safe for concurrent use.
type Checker struct {
	Services

	Agents  *agent.Registry
	Scorers *score.Registry
	// Workers holds the offers of workers; nil if there are none.
	Workers Workers
}

// Workers holds the offers of workers other than tools. [workers.Workers] implements it.
type Workers interface {
	// Pin returns the record of an offer, or the reason why it is unavailable.
	Pin(project, kind, name, params string) (*agentv1.WorkerRef, error)
}

// Plan is a checked specification: the values that a run pins. It is immutable.
type Plan struct {
	// Warnings name the parts of the specification that would not be honoured.
	Warnings []*agentv1.EvalWarning

	project string
	spec    *agentv1.RunSpec
	tools   []*toolv1.ToolDefinition
	// asks are the model calls that the steps may make, by step.
	asks [][]agent.Generate
	// closed is set if a step does not declare which calls it may make.
	closed bool
	// shared are the steps that use the run's tools because they have none of their own.
	shared map[int]bool
}

// Project returns the project's id.
func (p *Plan) Project() string { return p.project }

// Spec returns the resolved specification. It must not be changed.
func (p *Plan) Spec() *agentv1.RunSpec { return p.spec }

// Tools returns the definitions of the tools that the steps may call. They must not be changed.
func (p *Plan) Tools() []*toolv1.ToolDefinition { return p.tools }
