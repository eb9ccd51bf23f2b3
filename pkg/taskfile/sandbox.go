package taskfile

import (
	"encoding/base64"
	"errors"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/evalfleet/evalfleet/pkg/bound"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
)

// sandboxes reads a driver's name, or a specification; under `environments` several by name.
func (r *reader) sandboxes(n *yaml.Node) error {
	s := r.task.Spec
	s.Sandboxes = map[string]*sandboxv1.SandboxSpec{}
	if n.Kind == yaml.MappingNode && len(n.Content) == 2 && n.Content[0].Value == "environments" {
		all := resolved(n.Content[1])
		if all.Kind != yaml.MappingNode {
			return r.fault(all, "environments must be a map from name to sandbox, not %s", show(all))
		}
		for _, e := range entries(all) {
			err := r.within("environments."+e.key.Value, func() (err error) {
				s.Sandboxes[e.key.Value], err = r.sandbox(e.value)
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
	spec, err := r.sandbox(n)
	s.Sandboxes["default"] = spec
	return err
}

// sandbox reads `local` (a driver), `true` (the server's default driver) or a specification.
func (r *reader) sandbox(n *yaml.Node) (*sandboxv1.SandboxSpec, error) {
	spec := &sandboxv1.SandboxSpec{}
	if n.Kind == yaml.ScalarNode {
		switch {
		case n.Tag == "!!bool" && n.Value == "true":
			return spec, nil
		case n.Tag == "!!bool" || n.Tag == "!!null":
			return nil, r.fault(n, "leave sandbox out for none; true takes the server's default driver")
		}
		return spec, decode(r, &spec.Driver)(n)
	}
	limits := &sandboxv1.Limits{}
	spec.Limits = limits
	return spec, r.mapping(n, "a sandbox", map[string]key{
		"driver":           decode(r, &spec.Driver),
		"image":            decode(r, &spec.Image),
		"env":              decode(r, &spec.Env),
		"workdir":          decode(r, &spec.Workdir),
		"user":             decode(r, &spec.User),
		"setup":            decode(r, &spec.Setup),
		"setup_timeout":    r.duration(&spec.SetupTimeout),
		"lease":            r.duration(&spec.Lease),
		"max_lifetime":     r.duration(&spec.MaxLifetime),
		"allow_unisolated": decode(r, &spec.AllowUnisolated),
		"config":           r.jsonText(&spec.DriverConfigJson),
		"files":            func(n *yaml.Node) error { return r.place(n, spec) },
		"memory":           r.bytes(&limits.MemoryBytes),
		"disk":             r.bytes(&limits.DiskBytes),
		"file_size":        r.bytes(&limits.FileSizeBytes),
		"pids":             optional(r, &limits.Pids),
		"open_files":       optional(r, &limits.OpenFiles),
		"cpus": func(n *yaml.Node) error {
			var cores float64
			if err := decode(r, &cores)(n); err != nil {
				return err
			}
			limits.CpuMillis = new(int64(cores * 1000))
			return nil
		},
		"allow_hosts": func(n *yaml.Node) error {
			spec.Network = &sandboxv1.Network{Mode: sandboxv1.NetworkMode_NETWORK_MODE_ALLOW_LIST}
			return r.texts(&spec.Network.AllowHosts)(n)
		},
	})
}

// place reads a map from path in the sandbox to content, or to {from: path on this machine, mode: 755}.
func (r *reader) place(n *yaml.Node, spec *sandboxv1.SandboxSpec) error {
	if n.Kind != yaml.MappingNode {
		return r.fault(n, "files must be a map from path to content, not %s", show(n))
	}
	for _, e := range entries(n) {
		file := &sandboxv1.FileToPlace{Path: e.key.Value}
		spec.Files = append(spec.Files, file)
		if e.value.Kind == yaml.ScalarNode {
			file.Body = &sandboxv1.FileToPlace_Content{Content: []byte(e.value.Value)}
			continue
		}
		content, mode, err := r.placed(e.value, bound.PlacedFileBytes)
		if err != nil {
			return err
		}
		file.Body, file.Mode = &sandboxv1.FileToPlace_Content{Content: content}, mode
	}
	return nil
}

// placed reads {from: path on this machine, mode: 755}. Without a mode it is 0.
func (r *reader) placed(n *yaml.Node, most int64) (content []byte, mode uint32, err error) {
	var from, octal string
	if err := r.mapping(n, "a file", map[string]key{"from": decode(r, &from), "mode": decode(r, &octal)}); err != nil {
		return nil, 0, err
	}
	content, err = r.files.Read(r.ctx, from, most)
	if missing, ok := errors.AsType[*MissingError](err); ok {
		return nil, 0, r.fault(n, "%w", missing)
	}
	if err != nil {
		return nil, 0, r.at(n, err)
	}
	if octal == "" {
		return content, 0, nil
	}
	bits, err := strconv.ParseUint(octal, 8, 12)
	if err != nil {
		return nil, 0, r.fault(n, "mode must be octal, such as 755, not “%s”", octal)
	}
	return content, uint32(bits), nil
}

// checkScorer is the scorer whose files are placed in the sandbox.
const checkScorer = "exec"

// checkFiles reads files of this machine among the files of a check, and returns the parameters with the content in
// place of the files.
func (r *reader) checkFiles(params *yaml.Node) (*yaml.Node, error) {
	out := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: params.Line, Column: params.Column}
	for _, e := range entries(params) {
		value := e.value
		if e.key.Value == "files" && value.Kind == yaml.MappingNode {
			files := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: value.Line, Column: value.Column}
			for _, f := range entries(value) {
				if f.value.Kind == yaml.ScalarNode {
					files.Content = append(files.Content, f.key, textNode(f.value.Value))
					continue
				}
				content, mode, err := r.placed(f.value, bound.CheckFiles)
				if err != nil {
					return nil, err
				}
				file := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: f.value.Line, Column: f.value.Column}
				file.Content = append(file.Content, textNode("base64"), textNode(base64.StdEncoding.EncodeToString(content)))
				if mode != 0 {
					file.Content = append(file.Content, textNode("mode"), textNode(strconv.FormatUint(uint64(mode), 8)))
				}
				files.Content = append(files.Content, f.key, file)
			}
			value = files
		}
		out.Content = append(out.Content, e.key, value)
	}
	return out, nil
}
