// Package taskfile reads task files, YAML that describes an evaluation, for the command line and for the server. The
// format is described in docs/task-file.md.
//
// A task file names other files (a dataset, a scripted model's answers) by paths relative to itself. The specification
// does not contain them: it names each by its content ([Files]). Those of this machine are listed in Bodies for the
// caller to upload first. So a task runs the same on a remote server and on this machine.
//
// The server validates names (of solvers, tools, scorers, models, drivers) and their parameters, since it knows them;
// this package validates only the structure.
package taskfile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"go.yaml.in/yaml/v3"

	"github.com/evalfleet/evalfleet/pkg/bound"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	"github.com/evalfleet/evalfleet/pkg/regularfile"
	"github.com/evalfleet/evalfleet/pkg/yamlnode"
)

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

// Load reads the task file at path, with changes applied to it in order. Every fault names the file, the line and a
// valid form; all faults are joined. Only regular files are read, the task file and those that it names; the end of ctx
// ends the reading.
func Load(ctx context.Context, path string, changes ...Change) (*Task, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s: there is no such task file", path)
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, fmt.Errorf("%s is a folder; name the task file in it, such as %s", path, filepath.Join(path, "task.yaml"))
	case info.Size() > bound.TaskFileBytes:
		return nil, fmt.Errorf("%s has %d bytes, more than %d for a task file; put samples into a dataset file", path, info.Size(), bound.TaskFileBytes)
	}
	b, err := regularfile.Read(ctx, path, bound.TaskFileBytes)
	if err != nil {
		return nil, err
	}
	return Parse(ctx, path, b, changes...)
}

// Parse reads a task file's text; path is for faults and for the folder that relative paths start in.
func Parse(ctx context.Context, path string, text []byte, changes ...Change) (*Task, error) {
	files := &folder{dir: filepath.Dir(path), start: "at the task file"}
	task, err := Read(ctx, path, text, files, changes...)
	if err != nil {
		return nil, err
	}
	task.Bodies = files.bodies
	return task, nil
}

// Read reads a task file's text, which names files of the given ones; path is for faults. It reads nothing else.
func Read(ctx context.Context, path string, text []byte, files Files, changes ...Change) (*Task, error) {
	root, err := yamlnode.Parse(text)
	if errors.Is(err, yamlnode.ErrTooLarge) {
		return nil, fmt.Errorf("%s: %w; put samples into a dataset file", path, err)
	}
	if line := tabbed(text); err != nil && line > 0 {
		return nil, fmt.Errorf("%s:%d: the line is indented with a tab; YAML is indented with spaces", path, line)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: it cannot be read as YAML: %w", path, err)
	}
	if root == nil {
		return nil, fmt.Errorf("%s: the file is empty; begin with task, dataset, solver and scorer", path)
	}
	for i, c := range changes {
		if err := c.apply(root, i); err != nil {
			return nil, err
		}
	}
	r := &reader{ctx: ctx, path: path, files: files, task: &Task{Spec: &agentv1.EvalSpec{TaskFile: path}}}
	if err := r.read(root); err != nil {
		return nil, err
	}
	return r.task, nil
}

// ModelArgs converts arguments of a model to JSON text. Relative paths in them are relative to the working directory,
// dir. Bodies are the files that they name.
func ModelArgs(ctx context.Context, dir string, args map[string]string) (text string, bodies []Body, err error) {
	files := workingDirectory(dir)
	text, err = modelArgs(ctx, files, args)
	return text, files.bodies, err
}

func workingDirectory(dir string) *folder {
	return &folder{dir: dir, start: "in the working directory"}
}

func modelArgs(ctx context.Context, files Files, args map[string]string) (text string, err error) {
	n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	for _, name := range sortedKeys(args) {
		value, err := parseValue(args[name])
		if err != nil {
			return "", fmt.Errorf("argument %s of the model: %w", name, err)
		}
		n.Content = append(n.Content, textNode(name), value)
	}
	r := &reader{ctx: ctx, path: "model arguments", files: files, task: &Task{}}
	err = r.args(n, &text)
	return text, err
}

// reader reads one file.
type reader struct {
	ctx   context.Context //nolint:containedctx // It is that of the one call that reads.
	path  string
	files Files
	task  *Task
	// key is the path of the key whose value is being read, for faults.
	key string
	// modelArgs are arguments of every model, from the top-level key model_args.
	modelArgs string
}

// fault is an error that names the place.
func (r *reader) fault(n *yaml.Node, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	switch {
	case n.Line == 0: // An argument of the command.
		return fmt.Errorf("%s: %w", r.path, err)
	case n.Line < 0:
		return &ChangeError{-1 - n.Line, fmt.Errorf("%s: %w", r.path, err)}
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

// body adds a file that the spec names by its content.
func (r *reader) body(n *yaml.Node, name string) (*contentv1.BlobRef, error) {
	ref, err := r.files.Body(r.ctx, name)
	if missing, ok := errors.AsType[*MissingError](err); ok {
		return nil, r.fault(n, "%w", missing)
	}
	return ref, r.at(n, err)
}

// tabbed is the number of the first line that a tab indents, from 1; 0 for none.
func tabbed(text []byte) int {
	number := 0
	for line := range bytes.Lines(text) {
		number++
		if bytes.HasPrefix(bytes.TrimLeft(line, " "), []byte("\t")) && len(bytes.TrimSpace(line)) > 0 {
			return number
		}
	}
	return 0
}
