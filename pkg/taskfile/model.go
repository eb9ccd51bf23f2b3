package taskfile

import (
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
)

// scriptArg is the argument of a model that names a file of scripted answers; blobPrefix marks a reference to a body
// instead.
const (
	scriptArg  = "script"
	blobPrefix = "blob:"
)

// model reads `provider/name`, or a map with its configuration.
func (r *reader) model(n *yaml.Node) error {
	ref, err := r.modelRef(n)
	if err != nil {
		return err
	}
	r.task.Spec.Models = append(r.task.Spec.Models, ref)
	return nil
}

func (r *reader) modelRef(n *yaml.Node) (*agentv1.ModelRef, error) {
	ref := &agentv1.ModelRef{ModelArgsJson: r.modelArgs}
	if n.Kind == yaml.ScalarNode {
		return ref, decode(r, &ref.Model)(n)
	}
	err := r.mapping(n, "a model", map[string]key{
		"name":     decode(r, &ref.Model),
		"account":  decode(r, &ref.Account),
		"base_url": decode(r, &ref.BaseUrl),
		"args":     func(n *yaml.Node) error { return r.args(n, &ref.ModelArgsJson) },
		"config":   r.config(&ref.Config),
	})
	if err == nil && ref.GetModel() == "" {
		err = r.fault(n, "a model needs a name, such as `name: openai/gpt-4o`")
	}
	return ref, err
}

// args reads arguments of a model. `script` is a file of scripted answers, which travels as a body.
func (r *reader) args(n *yaml.Node, to *string) error {
	if n.Kind != yaml.MappingNode {
		return r.fault(n, "arguments of a model must be a map, not %s", show(n))
	}
	text, err := r.asJSON(n)
	if err != nil {
		return err
	}
	args, err := orderedjson.DecodeObject([]byte(text))
	if err != nil {
		return r.at(n, err)
	}
	script, _ := args.Get(scriptArg)
	if name, ok := script.(string); ok && !strings.HasPrefix(name, blobPrefix) {
		ref, err := r.body(n, name)
		if err != nil {
			return err
		}
		args.Set(scriptArg, blobPrefix+ref.GetHash()+"#"+filepath.Base(name)) // the name is for errors
	}
	*to = string(orderedjson.Append(nil, args))
	return nil
}

func (r *reader) roles(n *yaml.Node) error {
	if n.Kind != yaml.MappingNode {
		return r.fault(n, "model_roles must be a map from role to model, not %s", show(n))
	}
	r.task.Spec.ModelRoles = map[string]*agentv1.ModelRef{}
	for _, e := range entries(n) {
		err := r.within(e.key.Value, func() (err error) {
			r.task.Spec.ModelRoles[e.key.Value], err = r.modelRef(e.value)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// config reads options of generating into a new *to.
func (r *reader) config(to **modelv1.GenerateConfig) key {
	return func(n *yaml.Node) error {
		if n.Kind != yaml.MappingNode {
			return r.fault(n, "config must be a map of options, such as `temperature: 0`, not %s", show(n))
		}
		text, err := r.asJSON(n)
		if err != nil {
			return err
		}
		*to, err = chat.ParseConfig([]byte(text))
		return r.at(n, err)
	}
}
