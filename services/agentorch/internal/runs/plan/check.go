package plan

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/enum"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/decide"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/limit"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
)

// Check checks a specification and resolves every name in it. Its errors name the field and the accepted values.
func (c Checker) Check(ctx context.Context, project string, spec *agentv1.RunSpec) (*Plan, error) {
	p, err := c.checkTools(ctx, project, spec)
	if err != nil {
		return nil, err
	}
	if p.Warnings, err = c.checkModels(ctx, p); err != nil {
		return nil, err
	}
	unknown, err := c.pinWindows(ctx, p.spec)
	if err != nil {
		return nil, err
	}
	p.Warnings = append(p.Warnings, unknown...)
	p.Warnings = append(p.Warnings, c.warnOfSteps(p.spec)...)
	p.Warnings = append(p.Warnings, c.warnOfScorers(p.spec)...)
	if err := c.checkSandboxes(ctx, p); err != nil {
		return nil, err
	}
	return p, nil
}

// CheckSandboxes is Check without the models, for a sample with a sandbox of its own: all samples of an evaluation have
// the same models.
func (c Checker) CheckSandboxes(ctx context.Context, project string, spec *agentv1.RunSpec) error {
	p, err := c.checkTools(ctx, project, spec)
	if err != nil {
		return err
	}
	return c.checkSandboxes(ctx, p)
}

// checkTools is checkOwn, and pins the tools.
func (c Checker) checkTools(ctx context.Context, project string, spec *agentv1.RunSpec) (*Plan, error) {
	p, err := c.checkOwn(project, spec)
	if err != nil {
		return nil, err
	}
	for i, step := range p.spec.GetSteps() {
		if err := c.pinTools(ctx, p, i, step); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// CheckSample checks the parts of a specification that depend on the run's sample, such as the choices of a step. It
// calls no other service, so that all samples of an evaluation can be checked.
func (c Checker) CheckSample(project string, spec *agentv1.RunSpec) error {
	_, err := c.checkOwn(project, spec)
	return err
}

// checkOwn does the checks that need no other service, and pins agents, functions and scorers.
func (c Checker) checkOwn(project string, spec *agentv1.RunSpec) (*Plan, error) {
	if err := checkForm(spec); err != nil {
		return nil, err
	}
	resolved := proto.CloneOf(spec)
	if text := resolved.GetPrompt(); text != "" {
		resolved.Prompt, resolved.Input = "", []*modelv1.ChatMessage{{Role: modelv1.Role_ROLE_USER, Content: chat.TextContent(text)}}
	}
	p := &Plan{project: project, spec: resolved, shared: map[int]bool{}}
	for i, step := range resolved.GetSteps() {
		if len(step.GetTools()) == 0 {
			step.Tools, p.shared[i] = resolved.GetTools(), true
		}
		pinned, err := c.Agents.Resolve(step)
		if err != nil {
			return nil, rpcerr.In(run.FieldOfStep(i), err)
		}
		if err := c.pinFunctions(project, pinned); err != nil {
			return nil, rpcerr.In(run.FieldOfStep(i), err)
		}
		machine, err := c.Agents.New(pinned)
		if demanding, ok := machine.(agent.Demanding); ok && err == nil {
			err = ofSample(demanding.Demand(resolved), resolved)
		}
		if err != nil {
			return nil, rpcerr.In(run.FieldOfStep(i), err)
		}
		asks, told := asksOf(machine)
		p.asks, p.closed = append(p.asks, asks), p.closed || !told
		resolved.Steps[i] = pinned
	}
	return p, c.checkScorers(project, resolved)
}

// ofSample names the sample in the fault of a run that is of one.
func ofSample(err error, spec *agentv1.RunSpec) error {
	if id := spec.GetAttribution().GetSample(); err != nil && id != "" {
		return rpcerr.Wrap(err, "sample %s", id)
	}
	return err
}

// checkForm does the checks that need no look-up.
func checkForm(spec *agentv1.RunSpec) error {
	if err := checkCounts(spec); err != nil {
		return err
	}
	if _, err := limit.New(spec.GetLimits()); err != nil {
		return rpcerr.In("spec.limits", err)
	}
	if err := checkJSON("spec", spec.ProtoReflect()); err != nil {
		return err
	}
	if text := spec.GetMetadataJson(); text != "" && json.Unmarshal([]byte(text), &map[string]json.RawMessage{}) != nil {
		return rpcerr.InvalidField("spec.metadata_json", "want the text of a JSON object")
	}
	for _, key := range slices.Sorted(maps.Keys(spec.GetStore())) {
		if !json.Valid([]byte(spec.GetStore()[key])) {
			return rpcerr.InvalidField(fmt.Sprintf("spec.store[%q]", key), "want the text of a JSON value")
		}
	}
	if spec.GetPrompt() != "" && len(spec.GetInput()) > 0 {
		return rpcerr.InvalidField("spec.prompt", "stands in place of input; give one of them")
	}
	if spec.GetOnPark() != agentv1.OnPark_ON_PARK_UNSPECIFIED && spec.GetOnPark() != agentv1.OnPark_ON_PARK_KEEP {
		return rpcerr.NotBuiltField("spec.on_park", "parking sandboxes by "+enum.Word(spec.GetOnPark()))
	}
	for i, policy := range spec.GetApproval() {
		if policy.GetApprover() == "human" {
			return rpcerr.NotBuiltField(fmt.Sprintf("spec.approval[%d].approver", i), "asking a person about a tool call")
		}
	}
	return nil
}

// checkCounts bounds the numbers of steps, tools and the like, whose cost grows faster than their number.
func checkCounts(spec *agentv1.RunSpec) error {
	if n := len(spec.GetSteps()); n > bound.Steps {
		return rpcerr.InvalidField("spec.steps", "%d are too many; at most %d", n, bound.Steps)
	}
	if n := len(spec.GetTools()); n > bound.Tools {
		return rpcerr.InvalidField("spec.tools", "%d are too many; at most %d", n, bound.Tools)
	}
	for i, step := range spec.GetSteps() {
		if n := len(step.GetTools()); n > bound.Tools {
			return rpcerr.InvalidField(run.FieldOfStep(i)+".tools", "%d are too many; at most %d", n, bound.Tools)
		}
	}
	return nil
}

// pinTools resolves a step's tools and pins their definitions.
func (c Checker) pinTools(ctx context.Context, p *Plan, index int, step *agentv1.AgentRef) error {
	var foreign []*toolv1.ToolRef
	var places []int
	for i, ref := range step.GetTools() {
		if d := ref.GetDefinition(); d == nil {
			foreign, places = append(foreign, ref), append(places, i)
		} else if err := p.pin(index, d); err != nil {
			return err
		}
	}
	if len(foreign) == 0 {
		return nil
	}
	answer, err := c.Tools.ResolveTools(ctx, &toolv1.ResolveToolsRequest{Parent: resource.Project(p.project), Tools: foreign})
	if err != nil {
		return p.ofTools(index, places, err)
	}
	for _, d := range answer.GetTools() {
		if err := p.pin(index, d); err != nil {
			return err
		}
	}
	pinServed(foreign, answer.GetTools())
	for _, ref := range foreign {
		if p.tool(run.VisibleName(ref)) == nil {
			return rpcerr.InvalidField(run.FieldOfStep(index)+".tools", "%q resolves to no tool of that name", run.VisibleName(ref))
		}
	}
	return nil
}

// ofTools rewrites the fields of an error from a request with some tools of a step, those at places, to the fields of
// the specification.
func (p *Plan) ofTools(index int, places []int, err error) error {
	tools := run.FieldOfStep(index) + ".tools"
	if p.shared[index] {
		tools = "spec.tools"
	}
	for i, place := range places {
		if asked := fmt.Sprintf("tools[%d]", i); rpcerr.Concerns(asked, err) {
			return rpcerr.Moved(asked, fmt.Sprintf("%s[%d]", tools, place), err)
		}
	}
	return rpcerr.Wrap(err, "%s", tools)
}

func (p *Plan) tool(name string) *toolv1.ToolDefinition {
	for _, d := range p.tools {
		if d.GetInfo().GetName() == name {
			return d
		}
	}
	return nil
}

// pin adds a definition. A name means one tool throughout a run.
func (p *Plan) pin(index int, d *toolv1.ToolDefinition) error {
	switch known := p.tool(d.GetInfo().GetName()); {
	case known == nil:
		p.tools = append(p.tools, d)
	case !proto.Equal(known, d):
		return rpcerr.InvalidField(run.FieldOfStep(index)+".tools", "%q is another tool than in an earlier step; rename one of them", d.GetInfo().GetName())
	}
	return nil
}

func (c Checker) checkScorers(project string, spec *agentv1.RunSpec) error {
	if n := len(spec.GetScorers()); n > bound.Scorers {
		return rpcerr.InvalidField("spec.scorers", "%d are too many; at most %d", n, bound.Scorers)
	}
	in, err := decide.SampleInput(spec)
	if err != nil {
		return err
	}
	for i, ref := range spec.GetScorers() {
		err := c.pinScorer(project, ref)
		if err == nil && ref.GetWorker() == nil {
			err = c.checkScorer(ref, in, spec)
		}
		if err != nil {
			return rpcerr.In(fmt.Sprintf("spec.scorers[%d]", i), err)
		}
	}
	return nil
}

// warnOfSteps warns of parameters of steps that probably do not say what was meant. Runs of samples get no such
// warning: their evaluation did.
func (c Checker) warnOfSteps(spec *agentv1.RunSpec) []*agentv1.EvalWarning {
	if spec.GetAttribution().GetEval() != "" {
		return nil
	}
	var warnings []*agentv1.EvalWarning
	for i, step := range spec.GetSteps() {
		machine, err := c.Agents.New(step)
		cautious, ok := machine.(agent.Cautious)
		if err != nil || !ok {
			continue
		}
		if text := cautious.Warn(spec); text != "" {
			warnings = append(warnings, &agentv1.EvalWarning{Message: text, Field: run.FieldOfStep(i)})
		}
	}
	return warnings
}

// warnOfScorers warns of verdicts that an answer could forge. Runs of samples get no such warning: their evaluation
// did.
func (c Checker) warnOfScorers(spec *agentv1.RunSpec) []*agentv1.EvalWarning {
	if spec.GetAttribution().GetEval() != "" {
		return nil
	}
	var warnings []*agentv1.EvalWarning
	for i, ref := range spec.GetScorers() {
		definition, _ := c.Scorers.Definition(ref.GetName())
		if ref.GetWorker() != nil || definition.Warn == nil {
			continue
		}
		if text := definition.Warn(json.RawMessage(ref.GetParamsJson())); text != "" {
			warnings = append(warnings, &agentv1.EvalWarning{Message: text, Field: fmt.Sprintf("spec.scorers[%d]", i)})
		}
	}
	return warnings
}

func (c Checker) checkScorer(ref *agentv1.ScorerRef, in score.Input, spec *agentv1.RunSpec) error {
	scorer, err := c.Scorers.New(ref.GetName(), json.RawMessage(ref.GetParamsJson()))
	if err != nil {
		return err
	}
	if demanding, ok := scorer.(score.Demanding); ok {
		if err := demanding.Demand(in, slices.Sorted(maps.Keys(spec.GetSandboxes()))); err != nil {
			return ofSample(err, spec)
		}
	}
	if spec.GetAttribution().GetEval() != "" {
		return nil // Targets were checked with the evaluation, perhaps by an older version, whose samples still run.
	}
	definition, _ := c.Scorers.Definition(ref.GetName())
	if definition.Compares(json.RawMessage(ref.GetParamsJson())) && definition.Lacks(in.Targets) {
		says := "the scorer %s needs a target to compare with; give one"
		if definition.NeedsTarget {
			says += " that is not blank"
		}
		return ofSample(rpcerr.InvalidRequest(says, ref.GetName()), spec)
	}
	return nil
}

// checkSandboxes checks that the sandboxes can be created, and that tools that need one have it. The sandboxes of a
// sample were checked with its evaluation; the run waits for drivers that became unavailable since.
func (c Checker) checkSandboxes(ctx context.Context, p *Plan) error {
	boxes := p.spec.GetSandboxes()
	if len(boxes) == 0 {
		for _, d := range p.tools {
			if d.GetNeedsSandbox() {
				return rpcerr.InvalidField("spec.sandboxes", "the tool %s needs a sandbox; add one named default, in a task file `sandbox: true`", d.GetInfo().GetName())
			}
		}
		return nil
	}
	if p.spec.GetAttribution().GetEval() != "" {
		return nil
	}
	for _, environment := range slices.Sorted(maps.Keys(boxes)) {
		request := &sandboxv1.CreateSandboxRequest{Parent: resource.Project(p.project), Spec: withoutContent(boxes[environment]), ValidateOnly: true}
		if _, err := c.Sandboxes.CreateSandbox(ctx, request); err != nil {
			return ofSandbox(fmt.Sprintf("spec.sandboxes[%q]", environment), err)
		}
	}
	return nil
}

// ofSandbox is an error about the specification of a sandbox at its place.
func ofSandbox(at string, err error) error {
	if rpcerr.Concerns("spec", err) {
		return rpcerr.Moved("spec", at, err)
	}
	return rpcerr.Wrap(err, "%s", at)
}

// withoutContent returns a specification without the content of its files, which is large and not checked.
func withoutContent(spec *sandboxv1.SandboxSpec) *sandboxv1.SandboxSpec {
	bare := proto.CloneOf(spec)
	for _, file := range bare.GetFiles() {
		if file.GetBlob() == nil { // Parts that are not built must be refused.
			file.Body = nil
		}
	}
	return bare
}
