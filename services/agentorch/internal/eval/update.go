package eval

import (
	"encoding/json"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// Update is a change of an evaluation that goes on, as EvalUpdated.changes_json holds it. Members that are nil change nothing.
type Update struct {
	Tags         *[]string `json:"tags,omitempty"`
	MetadataJSON *string   `json:"metadata_json,omitempty"`
	MaxSamples   *int32    `json:"max_samples,omitempty"`
}

// ParseUpdate reads what paths name of a specification: `spec.tags`, `spec.metadata_json`, `spec.max_samples`.
func ParseUpdate(spec *agentv1.EvalSpec, paths []string) (Update, error) {
	var u Update
	if len(paths) == 0 {
		return u, rpcerr.InvalidField("update_paths", "name what to change: spec.tags, spec.metadata_json or spec.max_samples")
	}
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
			if spec.GetMaxSamples() < 1 {
				return u, rpcerr.InvalidField("eval.spec.max_samples", "at least one sample must be at work; cancel the evaluation to stop it")
			}
			u.MaxSamples = new(spec.GetMaxSamples())
		default:
			return u, rpcerr.InvalidField("update_paths", "%q cannot be changed; spec.tags, spec.metadata_json and spec.max_samples can", path)
		}
	}
	return u, nil
}

func (u Update) text() string {
	b, _ := json.Marshal(u) // Strings and numbers only.
	return string(b)
}

// applyUpdate changes a specification as an event says. Members of later versions are passed over.
func applyUpdate(spec *agentv1.EvalSpec, changes string) {
	var u Update
	if json.Unmarshal([]byte(changes), &u) != nil {
		return
	}
	if u.Tags != nil {
		spec.Tags = *u.Tags
	}
	if u.MetadataJSON != nil {
		spec.MetadataJson = *u.MetadataJSON
	}
	if u.MaxSamples != nil {
		spec.MaxSamples = u.MaxSamples
	}
}
