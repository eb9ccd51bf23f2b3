package taskfile

import (
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// formats are the formats of dataset files by the ending of their names.
var formats = map[string]agentv1.DatasetFormat{
	".jsonl": agentv1.DatasetFormat_DATASET_FORMAT_JSONL,
	".json":  agentv1.DatasetFormat_DATASET_FORMAT_JSON,
	".csv":   agentv1.DatasetFormat_DATASET_FORMAT_CSV,
	".tsv":   agentv1.DatasetFormat_DATASET_FORMAT_CSV,
	".tab":   agentv1.DatasetFormat_DATASET_FORMAT_CSV,
}

// dataset reads a path, a map with a file and its mapping, or a list of samples.
func (r *reader) dataset(n *yaml.Node) error {
	d := &agentv1.Dataset{}
	r.task.Spec.Dataset = d
	switch n.Kind { //nolint:exhaustive // The rest is a map, or a fault that mapping reports.
	case yaml.SequenceNode:
		return r.inline(n, d)
	case yaml.ScalarNode:
		return r.datasetFile(n, n.Value, d, &agentv1.DatasetFile{})
	}
	file := &agentv1.DatasetFile{}
	var name string
	err := r.mapping(n, "a dataset", map[string]key{
		"file":            decode(r, &name),
		"name":            decode(r, &d.Name),
		"format":          word(r, &file.Format),
		"fields":          func(n *yaml.Node) error { return r.fields(n, &file.FieldsJson) },
		"auto_id":         decode(r, &file.AutoId),
		"delimiter":       decode(r, &file.Delimiter),
		"columns":         r.texts(&file.Columns),
		"samples":         func(n *yaml.Node) error { return r.inline(n, d) },
		"shuffle_choices": optional(r, &file.ShuffleChoicesSeed),
	})
	switch {
	case err != nil:
		return err
	case name == "" && d.Source == nil:
		return r.fault(n, "a dataset needs a file or samples")
	case name != "" && d.Source != nil:
		return r.fault(n, "a dataset has a file or samples, not both")
	case d.Source != nil:
		return nil
	}
	return r.datasetFile(n, name, d, file)
}

// fields reads a mapping from fields of a sample to columns. Its names are validated here, where their lines are known;
// the server validates the rest.
func (r *reader) fields(n *yaml.Node, to *string) error {
	if n.Kind == yaml.MappingNode {
		skip := func(*yaml.Node) error { return nil }
		err := r.mapping(n, "fields", map[string]key{
			"input": skip, "target": skip, "choices": skip, "id": skip, "metadata": skip, "sandbox": skip, "files": skip, "setup": skip,
		})
		if err != nil {
			return err
		}
	}
	return r.jsonText(to)(n)
}

func (r *reader) datasetFile(n *yaml.Node, name string, d *agentv1.Dataset, file *agentv1.DatasetFile) error {
	if strings.Contains(name, "://") {
		return r.fault(n, "dataset %s: datasets of a hub, or at a URL, are not read; download it, and name the file (.jsonl, .json, .csv or .tsv)", name)
	}
	base := strings.TrimSuffix(filepath.Base(name), ".gz")
	ending := strings.ToLower(filepath.Ext(base))
	if file.Format == 0 {
		file.Format = formats[ending]
	}
	if file.Format == 0 {
		return r.fault(n, "dataset %s: its name tells no format; name it .jsonl, .json, .csv or .tsv (also .gz), or set format", name)
	}
	if file.Delimiter == "" && (ending == ".tsv" || ending == ".tab") {
		file.Delimiter = "\t"
	}
	ref, err := r.body(n, name)
	if err != nil {
		return err
	}
	file.Blob = ref
	if d.Name == "" {
		d.Name = strings.TrimSuffix(base, filepath.Ext(base))
	}
	d.Location = name
	d.Source = &agentv1.Dataset_File{File: file}
	return nil
}

// inline reads samples in the task file itself.
func (r *reader) inline(n *yaml.Node, d *agentv1.Dataset) error {
	if n.Kind != yaml.SequenceNode {
		return r.fault(n, "samples must be a list, not %s", show(n))
	}
	list := &agentv1.SampleList{}
	d.Source = &agentv1.Dataset_Inline{Inline: list}
	return items(n, func(n *yaml.Node) error {
		s, err := r.sample(n)
		list.Samples = append(list.Samples, s)
		return err
	})
}

func (r *reader) sample(n *yaml.Node) (*agentv1.Sample, error) {
	s := &agentv1.Sample{}
	err := r.mapping(n, "a sample", map[string]key{
		"input": func(n *yaml.Node) error { return r.input(n, s) },
		"id": func(n *yaml.Node) error {
			s.IntegerId = n.Tag == "!!int"
			return decode(r, &s.Id)(n)
		},
		"target": func(n *yaml.Node) error {
			s.Target = &agentv1.Target{List: n.Kind == yaml.SequenceNode}
			return r.texts(&s.Target.Values)(n)
		},
		"choices":  r.texts(&s.Choices),
		"metadata": r.jsonMap(&s.MetadataJson),
		"setup":    decode(r, &s.Setup),
		"files": func(n *yaml.Node) error {
			var files map[string]string
			if err := decode(r, &files)(n); err != nil {
				return err
			}
			s.Files = make(map[string]*agentv1.SampleFile, len(files))
			for path, content := range files {
				s.Files[path] = &agentv1.SampleFile{Body: &agentv1.SampleFile_Content{Content: []byte(content)}}
			}
			return nil
		},
		"sandbox": func(n *yaml.Node) (err error) {
			s.Sandbox, err = r.sandbox(n)
			return err
		},
	})
	if err == nil && len(s.GetInput()) == 0 {
		err = r.fault(n, "a sample needs an input")
	}
	return s, err
}

// input reads a text, or a list of messages.
func (r *reader) input(n *yaml.Node, s *agentv1.Sample) error {
	if n.Kind == yaml.ScalarNode {
		s.InputText = true
		s.Input = []*modelv1.ChatMessage{chat.User(n.Value)}
		s.Input[0].Source = modelv1.MessageSource_MESSAGE_SOURCE_INPUT
		return nil
	}
	if err := items(n, r.message); err != nil {
		return err
	}
	text, err := r.asJSON(n)
	if err != nil {
		return err
	}
	if s.Input, err = chat.ParseMessages([]byte(text)); err != nil {
		return r.at(n, err)
	}
	return r.media(n, s.Input)
}

// media names the files that messages show by their content. Addresses stay, for the server to refuse.
func (r *reader) media(n *yaml.Node, messages []*modelv1.ChatMessage) error {
	for _, m := range messages {
		for _, part := range m.GetContent().GetList().GetParts() {
			media := chat.Media(part)
			name := media.GetUri()
			if name == "" || strings.HasPrefix(name, "data:") || strings.Contains(name, "://") {
				continue
			}
			ref, err := r.body(n, name)
			if err != nil {
				return err
			}
			ref = proto.CloneOf(ref)
			ref.MediaType = chat.MediaTypeOf(name)
			media.Source = &contentv1.Media_Blob{Blob: ref}
		}
	}
	return nil
}

// message checks the keys of a message; pkg/chat reads their values.
func (r *reader) message(n *yaml.Node) error {
	var role string
	skip := func(*yaml.Node) error { return nil }
	err := r.mapping(n, "a message", map[string]key{
		"role": decode(r, &role), "content": skip, "id": skip, "source": skip, "metadata": skip,
		"tool_calls": skip, "tool_call_id": skip, "function": skip, "error": skip, "model": skip,
	})
	if err == nil && role == "" {
		err = r.fault(n, "a message needs a role: system, user, assistant or tool")
	}
	return err
}
