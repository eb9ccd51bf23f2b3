package eval

import (
	"encoding/json"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// Update is a change of an active evaluation, as EvalUpdated.changes_json holds it. Nil members change nothing.
type Update struct {
	Tags         *[]string `json:"tags,omitempty"`
	MetadataJSON *string   `json:"metadata_json,omitempty"`
	// MaxSamples of 0 lifts the bound of the specification.
	MaxSamples *int32 `json:"max_samples,omitempty"`
}

// ParseUpdate reads the fields of an evaluation that a mask names.
func ParseUpdate(changed *agentv1.Eval, mask *fieldmaskpb.FieldMask) (Update, error) {
	var u Update
	paths, err := resource.Mask(mask, changed, updatable()...)
	if err != nil {
		return u, err
	}
	spec := changed.GetSpec()
	for _, path := range paths {
		switch path {
		case "spec.tags":
			u.Tags = new(append([]string{}, spec.GetTags()...))
		case "spec.metadata_json":
			if text := spec.GetMetadataJson(); text != "" && !json.Valid([]byte(text)) {
				return u, rpcerr.InvalidField("eval.spec.metadata_json", "it is no JSON")
			}
			u.MetadataJSON = new(spec.GetMetadataJson())
		case "spec.max_samples":
			if spec != nil && spec.MaxSamples != nil && spec.GetMaxSamples() < 1 {
				return u, rpcerr.InvalidField("eval.spec.max_samples", "at least one sample must be at work; cancel the evaluation to stop it")
			}
			u.MaxSamples = new(spec.GetMaxSamples())
		}
	}
	return u, nil
}

func (u Update) text() string {
	b, _ := json.Marshal(u) // Strings and numbers only.
	return string(b)
}

// updatable returns the fields of an evaluation that an update can set.
func updatable() []string { return []string{"spec.tags", "spec.metadata_json", "spec.max_samples"} }

// etagOf returns the etag of an evaluation.
func etagOf(e *agentv1.Eval) string { return resource.EtagOf(e, updatable(), e.GetState()) }

// updated returns a specification with the changes that an event records. It ignores members of later versions. The
// given specification, which states share, is not changed.
func updated(spec *agentv1.EvalSpec, by *agentv1.EvalUpdated) *agentv1.EvalSpec {
	var u Update
	if by.GetOutdated() || json.Unmarshal([]byte(by.GetChangesJson()), &u) != nil {
		return spec
	}
	spec = proto.CloneOf(spec)
	if u.Tags != nil {
		spec.Tags = *u.Tags
	}
	if u.MetadataJSON != nil {
		spec.MetadataJson = *u.MetadataJSON
	}
	if u.MaxSamples != nil {
		if spec.MaxSamples = u.MaxSamples; *u.MaxSamples == 0 {
			spec.MaxSamples = nil
		}
	}
	return spec
}
