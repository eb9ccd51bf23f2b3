// Package taskfile reads task files: YAML that describes an evaluation. The format is described in docs/task-file.md.
//
// A task file names other files (a dataset, a scripted model's answers) by paths relative to itself. They do not travel in the request: each is named there by its content, and listed in Bodies for
// the caller to upload first. So a task runs the same on the server next door and on this machine.
//
// Whatever the file says about names (of solvers, tools, scorers, models, drivers) and about their parameters is for the server to judge, which knows them; this package knows the shape alone.
package taskfile

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"go.yaml.in/yaml/v3"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
)

// maxFileBytes bounds a task file; samples beyond it belong into a dataset.
const maxFileBytes = 16 << 20

// Task is a task file that has been read.
type Task struct {
	// Spec is the evaluation.
	Spec *agentv1.EvalSpec
	// Bodies are the files that Spec names by their content.
	Bodies []Body
}

// Body is a file to upload before the evaluation is made.
type Body struct {
	// Path is where the file is.
	Path string
	// Ref names its content.
	Ref *contentv1.BlobRef
}

// Load reads the task file at path, with changes laid over it in order. Every fault names the file, the line and what would do; all faults are joined.
func Load(path string, changes ...Change) (*Task, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s: there is no such task file", path)
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, fmt.Errorf("%s is a folder; name the task file in it, such as %s", path, filepath.Join(path, "task.yaml"))
	case info.Size() > maxFileBytes:
		return nil, fmt.Errorf("%s has %d bytes, more than %d for a task file; put samples into a dataset file", path, info.Size(), maxFileBytes)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, b, changes...)
}

// Parse reads a task file's text; path is for faults and for the folder that relative paths start in.
func Parse(path string, text []byte, changes ...Change) (*Task, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(doc.Content) == 0 {
		return nil, fmt.Errorf("%s: the file is empty; begin with task, dataset, solver and scorer", path)
	}
	root := resolved(doc.Content[0])
	for _, c := range changes {
		if err := c.apply(root); err != nil {
			return nil, err
		}
	}
	r := &reader{path: path, dir: filepath.Dir(path), start: "at the task file", task: &Task{Spec: &agentv1.EvalSpec{TaskFile: path}}}
	if err := r.read(root); err != nil {
		return nil, err
	}
	return r.task, nil
}

// ModelArgs turns arguments of a model into JSON text. Relative paths in them start in the folder dir. Bodies are the files that they name.
func ModelArgs(dir string, args map[string]string) (text string, bodies []Body, err error) {
	n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	for _, name := range sortedKeys(args) {
		value, err := parseValue(args[name])
		if err != nil {
			return "", nil, fmt.Errorf("argument %s of the model: %w", name, err)
		}
		n.Content = append(n.Content, textNode(name), value)
	}
	r := &reader{path: "model arguments", dir: dir, start: "in the working directory", task: &Task{}}
	err = r.args(n, &text)
	return text, r.task.Bodies, err
}

// reader reads one file.
type reader struct {
	path, dir string
	// start says for faults where dir is.
	start string
	task  *Task
	// key is the key whose value is being read, for faults.
	key string
	// modelArgs are arguments of every model, from the top-level key model_args.
	modelArgs string
}

// fault is an error that names the place.
func (r *reader) fault(n *yaml.Node, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	if n.Line == 0 { // Not from the file: a change, or an argument of the command.
		return fmt.Errorf("%s: %w", r.path, err)
	}
	return fmt.Errorf("%s:%d: %w", r.path, n.Line, err)
}

// at puts the place before an error.
func (r *reader) at(n *yaml.Node, err error) error {
	if err == nil {
		return nil
	}
	return r.fault(n, "%s: %w", r.key, err)
}

// file returns where a file that is named in the task file is.
func (r *reader) file(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(r.dir, name)
}

// body adds a file that the spec names by its content.
func (r *reader) body(n *yaml.Node, name string) (*contentv1.BlobRef, error) {
	path := r.file(name)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, r.fault(n, "there is no file %s; relative paths start %s", path, r.start)
	}
	if err != nil {
		return nil, r.at(n, err)
	}
	defer f.Close()
	hash := sha256.New()
	size, err := io.Copy(hash, f)
	if err != nil {
		return nil, r.at(n, err)
	}
	ref := &contentv1.BlobRef{Hash: hex.EncodeToString(hash.Sum(nil)), Size: size, MediaType: "application/octet-stream"}
	r.task.Bodies = append(r.task.Bodies, Body{Path: path, Ref: ref})
	return ref, nil
}
