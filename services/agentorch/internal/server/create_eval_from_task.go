package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/bound"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/taskfile"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/redact"
)

// Bodies are the bodies that projects keep.
type Bodies interface {
	// Size is how many bytes a body has. It fails with RESOURCE_NOT_FOUND.
	Size(ctx context.Context, project, hash string) (int64, error)
	// Open reads a body. It fails with RESOURCE_NOT_FOUND.
	Open(ctx context.Context, project, hash string) (io.ReadCloser, error)
}

// CreateEvalFromTask checks the evaluation of a task file and makes it.
func (s *Evals) CreateEvalFromTask(ctx context.Context, req *agentv1.CreateEvalFromTaskRequest) (*agentv1.Eval, error) {
	project, err := resource.ParseProject("parent", req.GetParent())
	if err != nil {
		return nil, err
	}
	spec, err := s.task(ctx, project, req)
	if err != nil {
		return nil, err
	}
	of := proto.CloneOf(req) // Each reading of a file gives its messages other ids.
	of.RequestId = ""
	state, err := s.deps.Engine.CreateAs(ctx, project, spec, of, req.GetRequestId(), req.GetValidateOnly())
	if err != nil {
		return nil, inFileWords(err, spec, req)
	}
	e, err := s.deps.Live.Eval(ctx, state.Eval)
	return redact.Content(e), err
}

// task reads the task file of a request.
func (s *Evals) task(ctx context.Context, project string, req *agentv1.CreateEvalFromTaskRequest) (*agentv1.EvalSpec, error) {
	if req.GetLimit() != nil && len(req.GetSampleIds()) > 0 {
		return nil, rpcerr.InvalidField("limit", "excludes sample_ids; send one of them")
	}
	var changes []taskfile.Change
	for i, text := range req.GetSets() {
		change, err := taskfile.ParseChange(text)
		if err != nil {
			return nil, rpcerr.InvalidField(fmt.Sprintf("sets[%d]", i), "%v", err)
		}
		changes = append(changes, change)
	}
	files := &uploaded{bodies: s.deps.Bodies, project: project, hashes: req.GetFiles()}
	name := cmp.Or(req.GetFileName(), "task.yaml")
	task, err := taskfile.Read(ctx, name, []byte(req.GetTask()), files, changes...)
	if err != nil {
		field := "task"
		if change, ok := errors.AsType[*taskfile.ChangeError](err); ok {
			field = fmt.Sprintf("sets[%d]", change.Index)
		}
		return nil, fault(files.fault(field, err), err)
	}
	if len(req.GetModels())+len(task.Spec.GetModels()) == 0 {
		return nil, rpcerr.InvalidField("models", "%s names no model; name one here, PROVIDER/MODEL", name)
	}
	err = task.Override(ctx, taskfile.Override{
		Models: req.GetModels(), ModelArgs: req.GetModelArgs(), Limit: req.GetLimit(), SampleIDs: req.GetSampleIds(), Epochs: req.GetEpochs(),
		MaxSamples: req.GetMaxSamples(), Driver: req.GetDriver(), AllowUnisolated: req.GetAllowUnisolated(), Tags: req.GetTags(),
	}, files)
	if err != nil {
		return nil, fault(files.fault("model_args", err), err)
	}
	task.Spec.Revision = req.GetRevision()
	return task.Spec, nil
}

// fault is the error for the value of a field. An error of a store keeps its kind.
func fault(field string, err error) error {
	if e, ok := rpcerr.As(err); ok && !errors.As(err, new(*taskfile.MissingError)) {
		return e
	}
	return rpcerr.InvalidField(field, "%v", err)
}

// uploaded are the bodies of a project under the names that a task file has for them.
type uploaded struct {
	bodies  Bodies
	project string
	hashes  map[string]string
	read    int64 // bytes so far
	missing string
}

// fault is the field at fault: of a missing file the entry of `files` that a client has to add, so that a program can
// add it.
func (u *uploaded) fault(field string, err error) string {
	if u.missing != "" && errors.As(err, new(*taskfile.MissingError)) {
		return entry(u.missing)
	}
	return field
}

// entry is the path of a file's entry in a request.
func entry(name string) string { return fmt.Sprintf("files[%q]", name) }

// Body implements [taskfile.Files].
func (u *uploaded) Body(ctx context.Context, name string) (*contentv1.BlobRef, error) {
	hash, err := u.hash(name)
	if err != nil {
		return nil, err
	}
	size, err := u.bodies.Size(ctx, u.project, hash)
	return &contentv1.BlobRef{Hash: hash, Size: size, MediaType: taskfile.BodyType}, absent(err, name, hash)
}

// Read implements [taskfile.Files]. Every read counts toward the size of the specification, even repeated reads of a
// file, so the sum of all reads is bounded.
func (u *uploaded) Read(ctx context.Context, name string, most int64) ([]byte, error) {
	hash, err := u.hash(name)
	if err != nil {
		return nil, err
	}
	body, err := u.bodies.Open(ctx, u.project, hash)
	if err != nil {
		return nil, absent(err, name, hash)
	}
	defer body.Close()
	left := bound.TaskFilesBytes - u.read
	text, err := io.ReadAll(io.LimitReader(body, min(most, left)+1))
	switch size := int64(len(text)); {
	case err != nil:
		return nil, err
	case size > most:
		return nil, fmt.Errorf("%s has more than %d bytes", name, most)
	case size > left:
		return nil, rpcerr.RequestTooLarge("files", bound.TaskFilesBytes, "the files that the task puts into sandboxes have more than %d bytes together with %s, each counted as often as it is placed; have a sandbox's image or its set-up bring them", bound.TaskFilesBytes, name)
	default:
		u.read += size
		return text, nil
	}
}

// absent is the error for a body that the request names and the project does not have.
func absent(err error, name, hash string) error {
	if rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_RESOURCE_NOT_FOUND) {
		return rpcerr.InvalidField(entry(name), "the project keeps no body %s; upload it first", hash)
	}
	return err
}

func (u *uploaded) hash(name string) (string, error) {
	if hash, ok := u.hashes[name]; ok {
		return hash, nil
	}
	u.missing = name
	return "", &taskfile.MissingError{Message: fmt.Sprintf("%s is a file of your machine; upload it (UploadBlob, over REST PUT …/blobs:upload), and send its hash in %s", name, entry(name))}
}

// inFileWords rewrites an error about a specification to one about the task file, or about the request field that
// replaces part of it.
func inFileWords(err error, spec *agentv1.EvalSpec, req *agentv1.CreateEvalFromTaskRequest) error {
	e, ok := rpcerr.As(taskfile.InWords(err, taskfile.Words))
	if !ok {
		return err
	}
	if e.Reason == errorsv1.ErrorReason_ERROR_REASON_REQUEST_ID_REUSED {
		return err // It is not about the file.
	}
	said := *e
	said.Message = spec.GetTaskFile() + ": " + e.Message
	said.Fields = slices.Clone(e.Fields)
	for i, f := range said.Fields {
		said.Fields[i].Path = fieldOf(f.Path, req)
	}
	return &said
}

// modelPath matches the path of a model, or of a part of it, in a specification. The first group is its place, such as
// `[1]`; the second is set for the model's arguments.
var modelPath = regexp.MustCompile(`^spec\.models?(\[\d+\])?(?:\.(model_args_json\b)?|$)`)

// fieldOf is the field of the request that sets a field of the specification.
func fieldOf(path string, req *agentv1.CreateEvalFromTaskRequest) string {
	if of := modelPath.FindStringSubmatch(path); of != nil {
		switch {
		case of[2] != "" && len(req.GetModelArgs()) > 0:
			return "model_args"
		case len(req.GetModels()) > 0:
			return "models" + of[1]
		}
	}
	for _, set := range []struct {
		given       bool
		path, field string
	}{
		{req.GetLimit() != nil, "spec.limit", "limit"},
		{len(req.GetSampleIds()) > 0, "spec.sample_ids", "sample_ids"},
		{req.Epochs != nil, "spec.epochs.count", "epochs"},
		{req.MaxSamples != nil, "spec.max_samples", "max_samples"},
	} {
		if set.given && (path == set.path || strings.HasPrefix(path, set.path+".")) {
			return set.field
		}
	}
	return "task"
}
