package server_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/evalfleet/evalfleet/pkg/bound"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/taskfile"
)

const taskText = `
display_name: Sums
dataset: {file: data/rows.jsonl, fields: {target: answer}}
sandbox: {driver: local, files: {a.txt: hello, b.sh: {from: b.sh, mode: "755"}}}
scorer: match
model: mockllm/model
model_args: {script: answers.yaml}
limits: {turns: 3}
tags: [nightly]
`

// taskFiles are the files that the task names.
func taskFiles() map[string]string {
	return map[string]string{
		"data/rows.jsonl": `{"input": "1+1?", "answer": "2"}` + "\n" + `{"input": "1+2?", "answer": "3"}` + "\n",
		"b.sh":            "echo b\n", "answers.yaml": `outputs: ["2"]`, "other.yaml": `outputs: ["3"]`,
	}
}

// A task file over RPC is the evaluation that the command line makes of it.
func TestATaskFileIsTheSameOverRPCAsOnTheCommandLine(t *testing.T) {
	r := serveEvals(t)
	dir, hashes := t.TempDir(), map[string]string{}
	t.Chdir(dir)
	for name, text := range taskFiles() {
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o700))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		hashes[name] = r.kept.named(text)
	}
	for name, tt := range map[string]struct {
		sets     []string
		override taskfile.Override
		req      *agentv1.CreateEvalFromTaskRequest
	}{
		"as it is": {nil, taskfile.Override{}, &agentv1.CreateEvalFromTaskRequest{}},
		"with all that flags say": {
			[]string{"limits.turns=5", "config.seed=7"},
			taskfile.Override{
				Models: []string{"mockllm/a", "mockllm/b"}, ModelArgs: map[string]string{"script": "other.yaml"}, Limit: &agentv1.SampleRange{End: 1},
				Epochs: 2, MaxSamples: 3, Driver: "docker", AllowUnisolated: true, Tags: []string{"more"},
			},
			&agentv1.CreateEvalFromTaskRequest{
				Sets: []string{"limits.turns=5", "config.seed=7"}, Models: []string{"mockllm/a", "mockllm/b"}, ModelArgs: map[string]string{"script": "other.yaml"},
				Limit: &agentv1.SampleRange{End: 1}, Epochs: new(int32(2)), MaxSamples: new(int32(3)), Driver: "docker", AllowUnisolated: true, Tags: []string{"more"},
			},
		},
		"some samples": {nil, taskfile.Override{SampleIDs: []string{"2"}}, &agentv1.CreateEvalFromTaskRequest{SampleIds: []string{"2"}}},
	} {
		var changes []taskfile.Change
		for _, set := range tt.sets {
			change, err := taskfile.ParseChange(set)
			require.NoError(t, err)
			changes = append(changes, change)
		}
		task, err := taskfile.Parse(r.within(), "sums.yaml", []byte(taskText), changes...)
		require.NoError(t, err)
		require.NoError(t, task.Override(r.within(), tt.override, nil))
		byCLI := r.create(task.Spec)
		req := tt.req
		req.Parent, req.Task, req.FileName, req.Files = project, taskText, "sums.yaml", hashes
		byRPC, err := r.CreateEvalFromTask(r.within(), req)
		require.NoError(t, err, name)
		specs := make([]*agentv1.EvalSpec, 0, 2)
		for _, eval := range []string{byCLI, byRPC.GetName()} {
			e, err := r.GetEval(r.within(), &agentv1.GetEvalRequest{Name: eval, Content: true})
			require.NoError(t, err)
			specs = append(specs, e.GetSpec())
		}
		if d := cmp.Diff(specs[0], specs[1], protocmp.Transform(), protocmp.IgnoreFields(&modelv1.ChatMessage{}, "id")); d != "" {
			t.Errorf("%s (-command line +RPC):\n%s", name, d)
		}
	}
}

// Reading a file again gives messages other ids; a repeated request is the same one all the same.
func TestATaskFileWithTheSameKeyIsTheSameEvaluation(t *testing.T) {
	t.Parallel()
	r := serveEvals(t)
	req := &agentv1.CreateEvalFromTaskRequest{Parent: project, Task: "dataset: [{input: hi, target: hi}]\nscorer: match\nmodel: mockllm/model", RequestId: "k"}
	first, err := r.CreateEvalFromTask(r.within(), req)
	require.NoError(t, err)
	again, err := r.CreateEvalFromTask(r.within(), req)
	require.NoError(t, err)
	assert.Equal(t, first.GetName(), again.GetName())
	assert.Equal(t, "task", first.GetSpec().GetTask(), "it is called by its file")
	other := proto.CloneOf(req)
	other.Tags = []string{"another"}
	_, err = r.CreateEvalFromTask(r.within(), other)
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_REQUEST_ID_REUSED), "%v", err)
	reused, _ := rpcerr.As(rpcerr.FromStatus(err))
	assert.True(t, strings.HasPrefix(reused.Message, "request id"), "it is not about the file: %v", err)

	checked := proto.CloneOf(req)
	checked.RequestId, checked.ValidateOnly = "", true
	only, err := r.CreateEvalFromTask(r.within(), checked)
	require.NoError(t, err)
	assert.Empty(t, only.GetName())
	assert.EqualValues(t, 1, only.GetProgress().GetTotal())
}

func TestWhatIsWrongWithATaskFileOverRPC(t *testing.T) {
	t.Parallel()
	r := serveEvals(t)
	const inline = "dataset: [{input: hi, target: hi}]\nscorer: match\n"
	for name, tt := range map[string]struct {
		req    *agentv1.CreateEvalFromTaskRequest
		reason errorsv1.ErrorReason
		field  string
		says   []string
	}{
		"no YAML":              {&agentv1.CreateEvalFromTaskRequest{Task: "a: ["}, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, "task", []string{"my.yaml: it cannot be read as YAML"}},
		"an unknown key":       {&agentv1.CreateEvalFromTaskRequest{Task: "dataset: []\nscorerr: match"}, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, "task", []string{"my.yaml:2", `no key "scorerr"`}},
		"a file":               {&agentv1.CreateEvalFromTaskRequest{Task: "scorer: match\ndataset: rows.csv"}, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, `files["rows.csv"]`, []string{"my.yaml:2", "rows.csv is a file of your machine", "blobs:upload", `files["rows.csv"]`}},
		"a file of the server": {&agentv1.CreateEvalFromTaskRequest{Task: "dataset: /etc/passwd.csv"}, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, `files["/etc/passwd.csv"]`, []string{"/etc/passwd.csv is a file of your machine"}},
		"a placed file":        {&agentv1.CreateEvalFromTaskRequest{Task: "dataset: []\nsandbox: {files: {a: {from: ../a}}}"}, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, `files["../a"]`, []string{"my.yaml:2", "../a is a file of your machine"}},
		"a script":             {&agentv1.CreateEvalFromTaskRequest{Task: inline + "model: m/m", ModelArgs: map[string]string{"script": "s.yaml"}}, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, `files["s.yaml"]`, []string{"s.yaml is a file of your machine"}},
		"no such body":         {&agentv1.CreateEvalFromTaskRequest{Task: "dataset: rows.csv", Files: map[string]string{"rows.csv": hash0}}, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, `files["rows.csv"]`, []string{hash0}},
		"no hash":              {&agentv1.CreateEvalFromTaskRequest{Task: inline, Files: map[string]string{"rows.csv": "x"}}, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, `files["rows.csv"]`, nil},
		"no model":             {&agentv1.CreateEvalFromTaskRequest{Task: inline}, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, "models", []string{"my.yaml names no model"}},
		"a change":             {&agentv1.CreateEvalFromTaskRequest{Task: inline, Sets: []string{"a.b=1", "x"}}, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, "sets[1]", []string{"write key=value"}},
		"a change of no key":   {&agentv1.CreateEvalFromTaskRequest{Task: inline, Sets: []string{"epochs=2", "epoch=3"}}, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, "sets[1]", []string{`no key "epoch"`}},
		"a change's value":     {&agentv1.CreateEvalFromTaskRequest{Task: inline, Sets: []string{"epochs=2", "limits.turns=many"}}, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, "sets[1]", []string{"limits.turns must be"}},
		"a change of no map":   {&agentv1.CreateEvalFromTaskRequest{Task: inline, Sets: []string{"scorer.a.b=1"}}, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, "sets[0]", []string{"is no map"}},
		"limit and ids":        {&agentv1.CreateEvalFromTaskRequest{Task: inline, Limit: &agentv1.SampleRange{End: 1}, SampleIds: []string{"1"}}, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, "limit", []string{"excludes sample_ids"}},
		"epochs":               {&agentv1.CreateEvalFromTaskRequest{Task: inline, Epochs: new(int32(0))}, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, "epochs", nil},
		"no such sample":       {&agentv1.CreateEvalFromTaskRequest{Task: inline, Models: []string{"m/m"}, SampleIds: []string{"nine"}}, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, "sample_ids", []string{"my.yaml: samples.ids"}},
		"no such scorer":       {&agentv1.CreateEvalFromTaskRequest{Task: "dataset: [{input: hi}]\nscorer: mtch\nmodel: m/m"}, errorsv1.ErrorReason_ERROR_REASON_SCORER_NOT_FOUND, "", []string{"my.yaml: scorer[0].name: unknown scorer"}},
	} {
		tt.req.Parent, tt.req.FileName = project, "my.yaml"
		_, err := r.CreateEvalFromTask(r.within(), tt.req)
		e, ok := rpcerr.As(rpcerr.FromStatus(err))
		require.True(t, ok, "%s: %v", name, err)
		assert.Equal(t, tt.reason, e.Reason, "%s: %v", name, err)
		for _, said := range tt.says {
			assert.Contains(t, e.Message, said, name)
		}
		if tt.field != "" && assert.NotEmpty(t, e.Fields, "%s: %v", name, err) {
			assert.Equal(t, tt.field, e.Fields[0].Path, name)
		}
	}
}

// A file that is placed repeatedly is read each time, so the sum of all reads has a bound.
func TestTheFilesOfATaskAreBoundedTogether(t *testing.T) {
	t.Parallel()
	r := serveEvals(t)
	hash := r.kept.named(strings.Repeat("x", bound.TaskFilesBytes/2))
	placed := func(n int) *agentv1.CreateEvalFromTaskRequest {
		task := "dataset: [{input: hi, target: hi}]\nscorer: match\nmodel: m/m\nsandbox:\n  files:\n"
		for i := range n {
			task += fmt.Sprintf("    f%d: {from: big}\n", i)
		}
		return &agentv1.CreateEvalFromTaskRequest{Parent: project, Task: task, Files: map[string]string{"big": hash}, ValidateOnly: true}
	}
	_, err := r.CreateEvalFromTask(r.within(), placed(3))
	e, ok := rpcerr.As(rpcerr.FromStatus(err))
	require.True(t, ok, "%v", err)
	assert.Equal(t, errorsv1.ErrorReason_ERROR_REASON_REQUEST_TOO_LARGE, e.Reason, "%v", err)
	_, err = r.CreateEvalFromTask(r.within(), placed(2))
	assert.False(t, rpcerr.Is(rpcerr.FromStatus(err), errorsv1.ErrorReason_ERROR_REASON_REQUEST_TOO_LARGE), "%v", err)
}

const hash0 = "0000000000000000000000000000000000000000000000000000000000000000"
