package taskfile

import (
	"os"
	"strconv"

	"go.yaml.in/yaml/v3"

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
			spec, err := r.sandbox(e.value)
			if err != nil {
				return err
			}
			s.Sandboxes[e.key.Value] = spec
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
		"files":            func(n *yaml.Node) error { return r.files(n, spec) },
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

// files reads a map from path in the sandbox to content, or to {from: path on this machine, mode: 755}.
func (r *reader) files(n *yaml.Node, spec *sandboxv1.SandboxSpec) error {
	if n.Kind != yaml.MappingNode {
		return r.fault(n, "files must be a map from path to content, not %s", show(n))
	}
	for _, e := range entries(n) {
		file := &sandboxv1.FileToPlace{Path: e.key.Value}
		spec.Files = append(spec.Files, file)
		if e.value.Kind == yaml.ScalarNode {
			file.Content = []byte(e.value.Value)
			continue
		}
		var from, mode string
		err := r.mapping(e.value, "a file", map[string]key{"from": decode(r, &from), "mode": decode(r, &mode)})
		if err != nil {
			return err
		}
		if file.Content, err = os.ReadFile(r.file(from)); err != nil {
			return r.at(e.value, err)
		}
		if mode == "" {
			continue
		}
		bits, err := strconv.ParseUint(mode, 8, 12)
		if err != nil {
			return r.fault(e.value, "mode must be octal, such as 755, not “%s”", mode)
		}
		file.Mode = uint32(bits)
	}
	return nil
}
