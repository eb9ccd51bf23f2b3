package eval

import (
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/suggest"
)

// defaultEnvironment is the sandbox of a sample's files that name none.
const defaultEnvironment = "default"

// runSpec returns the specification of one slot's run.
func runSpec(eval string, spec *agentv1.EvalSpec, sample *agentv1.Sample, slot *Slot) (*agentv1.RunSpec, error) {
	sandboxes, err := sandboxes(spec, sample)
	if err != nil {
		return nil, err
	}
	return &agentv1.RunSpec{
		Input:        sample.GetInput(),
		Steps:        spec.GetSteps(),
		Model:        spec.GetModels()[slot.Model],
		ModelRoles:   spec.GetModelRoles(),
		Config:       spec.GetConfig(),
		Tools:        spec.GetTools(),
		Sandboxes:    sandboxes,
		Limits:       spec.GetLimits(),
		Scorers:      spec.GetScorers(),
		Target:       sample.GetTarget(),
		Choices:      sample.GetChoices(),
		MetadataJson: sample.GetMetadataJson(),
		Approval:     spec.GetApproval(),
		Attribution:  &effectv1.Attribution{Eval: eval, Sample: sample.GetId(), Epoch: int32(slot.Epoch)},
		ScoreOnError: spec.GetScoreOnError(),
		RecordCalls:  spec.GetRecordCalls(),
	}, nil
}

// sandboxes lays a sample's own sandbox, files and set-up over the task's.
func sandboxes(spec *agentv1.EvalSpec, sample *agentv1.Sample) (map[string]*sandboxv1.SandboxSpec, error) {
	all := map[string]*sandboxv1.SandboxSpec{}
	for name, s := range spec.GetSandboxes() {
		all[name] = proto.CloneOf(s)
	}
	if own := sample.GetSandbox(); own != nil {
		if task := all[defaultEnvironment]; task != nil {
			proto.Merge(task, own)
		} else {
			all[defaultEnvironment] = proto.CloneOf(own)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(sample.GetFiles())) {
		environment, target := defaultEnvironment, path
		if before, after, ok := strings.Cut(path, ":"); ok {
			environment, target = before, after
		}
		box := all[environment]
		if box == nil {
			return nil, rpcerr.InvalidField("spec.sandboxes", "sample %s places the file %s in the sandbox %q, which the task does not have; %s",
				sample.GetId(), target, environment, suggest.Known(slices.Sorted(maps.Keys(all))))
		}
		box.Files = append(box.Files, fileToPlace(target, sample.GetFiles()[path]))
	}
	if setup := sample.GetSetup(); setup != "" {
		box := all[defaultEnvironment]
		if box == nil {
			return nil, rpcerr.InvalidField("spec.sandboxes", "sample %s has a setup script and the task has no sandbox to run it in; add sandbox: local", sample.GetId())
		}
		box.Setup = strings.TrimPrefix(box.GetSetup()+"\n"+setup, "\n")
	}
	return all, nil
}

func fileToPlace(path string, f *agentv1.SampleFile) *sandboxv1.FileToPlace {
	placed := &sandboxv1.FileToPlace{Path: path, Mode: f.GetMode()}
	switch body := f.GetBody().(type) {
	case *agentv1.SampleFile_Content:
		placed.Body = &sandboxv1.FileToPlace_Content{Content: body.Content}
	case *agentv1.SampleFile_Text:
		placed.Body = &sandboxv1.FileToPlace_Text{Text: body.Text}
	case *agentv1.SampleFile_Blob:
		placed.Body = &sandboxv1.FileToPlace_Blob{Blob: body.Blob}
	}
	return placed
}
