package taskfile_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/taskfile"
)

// folder makes a folder with files and returns it.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	return dir
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func blob(text string) *contentv1.BlobRef {
	return &contentv1.BlobRef{Hash: hash(text), Size: int64(len(text)), MediaType: "application/octet-stream"}
}

func equal(t *testing.T, want, got *agentv1.EvalSpec) {
	t.Helper()
	if d := cmp.Diff(want, got, protocmp.Transform(), protocmp.IgnoreFields(&modelv1.ChatMessage{}, "id")); d != "" {
		t.Errorf("spec (-want +got):\n%s", d)
	}
}

func bodies(t *testing.T, want, got []taskfile.Body) {
	t.Helper()
	if d := cmp.Diff(want, got, protocmp.Transform()); d != "" {
		t.Errorf("bodies (-want +got):\n%s", d)
	}
}

func TestEveryKeyIsRead(t *testing.T) {
	t.Parallel()
	const rows, answers, script = `{"input": "a"}` + "\n", "turns: []\n", "#!/bin/sh\n"
	dir := folder(t, map[string]string{"rows.jsonl": rows, "answers.yaml": answers, "check.sh": script, "task.yaml": `
task: sums
display_name: Sums
version: 2
dataset:
  file: rows.jsonl
  name: easy
  fields: {input: question, target: {column: answer, pattern: "#### (.*)", group: 1}}
  auto_id: true
  shuffle_choices: 7
solver:
  - system_message: {template: Be brief.}
  - react:
      attempts: 2
      tools: [bash, {python: {timeout: 30}}]
  - generate
tools: text_editor
sandbox:
  driver: local
  env: {A: b}
  workdir: /work
  user: nobody
  setup: touch ready
  setup_timeout: 1m
  lease: 90
  memory: 512MiB
  disk: 1GiB
  file_size: 4KiB
  pids: 64
  open_files: 100
  cpus: 1.5
  allow_hosts: [pypi.org]
  config: {b: 1, a: [1_000, 0x10, 1e3, 123456789012345678901234567890, yes, ~, 2001-01-01]}
  files:
    a.txt: text
    check.sh: {from: check.sh, mode: 755}
scorer:
  - match: {location: end, metrics: [accuracy, {stderr: {cluster: topic}}]}
  - exec: {command: ./check.sh, files: {n: 12, "t/want.txt": "{target}", check.sh: {from: check.sh, mode: 755}}}
  - includes
metrics: [mean]
epochs: {count: 3, reducer: [mean, max]}
model:
  - mockllm/one
  - {name: openai/two, account: team, base_url: "http://127.0.0.1:9", args: {x: 1}, config: {temperature: 0.5}}
model_args: {script: answers.yaml, strict: true}
model_roles:
  grader: openai/three
config: {max_tokens: 100, logit_bias: {50256: -100}}
limits: {messages: 10, turns: 5, tokens: "output:1.5m", cost: 0.25, time: 2m, working_time: 30}
samples: {limit: [2, 5], shuffle: 3}
max_samples: 4
fail_on_error: 0.1
continue_on_fail: true
retry_on_error: 1
score_on_error: true
record_calls: all
tags: [a, b]
metadata: {z: 1, a: {c: "x"}}
`})
	path := filepath.Join(dir, "task.yaml")
	task, err := taskfile.Load(t.Context(), path)
	require.NoError(t, err)
	args := `{"script":"blob:` + hash(answers) + `#answers.yaml","strict":true}`
	equal(t, &agentv1.EvalSpec{
		Task: "sums", DisplayName: "Sums", TaskVersion: "2", TaskFile: path,
		Dataset: &agentv1.Dataset{Name: "easy", Location: "rows.jsonl", Source: &agentv1.Dataset_File{File: &agentv1.DatasetFile{
			Blob: blob(rows), Format: agentv1.DatasetFormat_DATASET_FORMAT_JSONL, AutoId: true, ShuffleChoicesSeed: new(int64(7)),
			FieldsJson: `{"input":"question","target":{"column":"answer","pattern":"#### (.*)","group":1}}`,
		}}},
		Steps: []*agentv1.AgentRef{
			{Name: "system_message", ParamsJson: `{"template":"Be brief."}`},
			{Name: "react", ParamsJson: `{"attempts":2}`, Tools: []*toolv1.ToolRef{{Name: "bash"}, {Name: "python", OptionsJson: `{"timeout":30}`}}},
			{Name: "generate"},
		},
		Tools: []*toolv1.ToolRef{{Name: "text_editor"}},
		Sandboxes: map[string]*sandboxv1.SandboxSpec{"default": {
			Driver: "local", Env: map[string]string{"A": "b"}, Workdir: "/work", User: "nobody", Setup: "touch ready",
			SetupTimeout: durationpb.New(time.Minute), Lease: durationpb.New(90 * time.Second),
			Limits: &sandboxv1.Limits{
				MemoryBytes: new(int64(512 << 20)), DiskBytes: new(int64(1 << 30)), FileSizeBytes: new(int64(4096)), Pids: new(int64(64)),
				OpenFiles: new(int64(100)), CpuMillis: new(int64(1500)),
			},
			Network:          &sandboxv1.Network{Mode: sandboxv1.NetworkMode_NETWORK_MODE_ALLOW_LIST, AllowHosts: []string{"pypi.org"}},
			DriverConfigJson: `{"b":1,"a":[1000,16,1e3,123456789012345678901234567890,"yes",null,"2001-01-01"]}`,
			Files:            []*sandboxv1.FileToPlace{{Path: "a.txt", Body: &sandboxv1.FileToPlace_Content{Content: []byte("text")}}, {Path: "check.sh", Body: &sandboxv1.FileToPlace_Content{Content: []byte(script)}, Mode: 0o755}},
		}},
		Scorers: []*agentv1.ScorerRef{
			{Name: "match", ParamsJson: `{"location":"end"}`, Metrics: []*agentv1.MetricRef{{Name: "accuracy"}, {Name: "stderr", ParamsJson: `{"cluster":"topic"}`}}},
			{Name: "exec", ParamsJson: `{"command":"./check.sh","files":{"n":"12","t/want.txt":"{target}","check.sh":{"base64":"` + base64.StdEncoding.EncodeToString([]byte(script)) + `","mode":"755"}}}`},
			{Name: "includes"},
		},
		Metrics: []*agentv1.MetricRef{{Name: "mean"}},
		Epochs:  &agentv1.Epochs{Count: new(int32(3)), Reducers: []string{"mean", "max"}},
		Models: []*agentv1.ModelRef{
			{Model: "mockllm/one", ModelArgsJson: args},
			{Model: "openai/two", Account: "team", BaseUrl: "http://127.0.0.1:9", ModelArgsJson: `{"x":1}`, Config: &modelv1.GenerateConfig{Temperature: new(0.5)}},
		},
		ModelRoles: map[string]*agentv1.ModelRef{"grader": {Model: "openai/three", ModelArgsJson: args}},
		Config:     &modelv1.GenerateConfig{MaxTokens: new(int64(100)), LogitBias: &modelv1.LogitBias{Values: map[int64]float64{50256: -100}}},
		Limits: &agentv1.RunLimits{
			Messages: new(int32(10)), Turns: new(int32(5)), Tokens: new(int64(1_500_000)), TokenFormula: "output", Cost: new(0.25),
			Time: durationpb.New(2 * time.Minute), WorkingTime: durationpb.New(30 * time.Second),
		},
		Limit: &agentv1.SampleRange{Start: 2, End: 5}, ShuffleSeed: new(int64(3)), MaxSamples: new(int32(4)),
		FailOnError:    &agentv1.FailOnError{Rule: &agentv1.FailOnError_Threshold{Threshold: 0.1}},
		ContinueOnFail: true, RetryOnError: 1, ScoreOnError: true, RecordCalls: agentv1.RecordCalls_RECORD_CALLS_ALL, Tags: []string{"a", "b"}, MetadataJson: `{"z":1,"a":{"c":"x"}}`,
	}, task.Spec)
	bodies(t, []taskfile.Body{
		{Path: filepath.Join(dir, "rows.jsonl"), Ref: blob(rows)},
		{Path: filepath.Join(dir, "answers.yaml"), Ref: blob(answers)},
	}, task.Bodies)
}

func TestTheShortestFile(t *testing.T) {
	t.Parallel()
	task, err := taskfile.Parse(t.Context(), "dir/short.yaml", []byte(`
dataset:
  - {input: 1 + 1, target: 2, id: 7, choices: [x, y], files: {a: b}, setup: "true", sandbox: true, metadata: {k: v}}
  - input: [{role: system, content: s}, {role: user, content: u}]
    target: [a, b]
    id: "7a"
`))
	require.NoError(t, err)
	equal(t, &agentv1.EvalSpec{
		Task: "short", TaskFile: "dir/short.yaml", Steps: []*agentv1.AgentRef{{Name: "generate"}},
		Dataset: &agentv1.Dataset{Name: "short", Source: &agentv1.Dataset_Inline{Inline: &agentv1.SampleList{Samples: []*agentv1.Sample{
			{
				Input: []*modelv1.ChatMessage{{
					Role: modelv1.Role_ROLE_USER, Source: modelv1.MessageSource_MESSAGE_SOURCE_INPUT,
					Content: &contentv1.MessageContent{Form: &contentv1.MessageContent_Text{Text: "1 + 1"}},
				}},
				InputText: true, Id: "7", IntegerId: true, Target: &agentv1.Target{Values: []string{"2"}}, Choices: []string{"x", "y"},
				Files: map[string]*agentv1.SampleFile{"a": {Body: &agentv1.SampleFile_Content{Content: []byte("b")}}}, Setup: "true", Sandbox: &sandboxv1.SandboxSpec{}, MetadataJson: `{"k":"v"}`,
			},
			{
				Input: []*modelv1.ChatMessage{
					{Role: modelv1.Role_ROLE_SYSTEM, Content: &contentv1.MessageContent{Form: &contentv1.MessageContent_Text{Text: "s"}}},
					{Role: modelv1.Role_ROLE_USER, Content: &contentv1.MessageContent{Form: &contentv1.MessageContent_Text{Text: "u"}}},
				},
				Id: "7a", Target: &agentv1.Target{Values: []string{"a", "b"}, List: true},
			},
		}}}},
	}, task.Spec)
	assert.Empty(t, task.Bodies)
}

// Files that messages show travel by their content, as a dataset's file does.
func TestFilesInMessagesTravelByTheirContent(t *testing.T) {
	t.Parallel()
	dir := folder(t, map[string]string{"red.PNG": "p", "a.pdf": "d", "task.yaml": `
dataset:
  - input:
      - role: user
        content:
          - {type: text, text: look}
          - {type: image, image: red.PNG}
          - {type: document, document: a.pdf}
          - {type: image, image: "data:image/png;base64,eA=="}
          - {type: image, image: "https://v.example/p.png"}
`})
	task, err := taskfile.Load(t.Context(), filepath.Join(dir, "task.yaml"))
	require.NoError(t, err)
	var given []*contentv1.Media
	for _, part := range task.Spec.GetDataset().GetInline().GetSamples()[0].GetInput()[0].GetContent().GetList().GetParts()[1:] {
		given = append(given, chat.Media(part))
	}
	picture, document := blob("p"), blob("d")
	picture.MediaType, document.MediaType = "image/png", "application/pdf"
	want := []*contentv1.Media{
		{Source: &contentv1.Media_Blob{Blob: picture}},
		{Source: &contentv1.Media_Blob{Blob: document}},
		{Source: &contentv1.Media_Uri{Uri: "data:image/png;base64,eA=="}},
		{Source: &contentv1.Media_Uri{Uri: "https://v.example/p.png"}},
	}
	if d := cmp.Diff(want, given, protocmp.Transform()); d != "" {
		t.Errorf("media (-want +got):\n%s", d)
	}
	bodies(t, []taskfile.Body{{Path: filepath.Join(dir, "red.PNG"), Ref: blob("p")}, {Path: filepath.Join(dir, "a.pdf"), Ref: blob("d")}}, task.Bodies)

	_, err = taskfile.Parse(t.Context(), filepath.Join(dir, "u.yaml"), []byte("dataset:\n  - input:\n      - {role: user, content: [{type: image, image: no.png}]}\n"))
	require.ErrorContains(t, err, "there is no file "+filepath.Join(dir, "no.png"))
}

func TestFaultsNameThePlaceAndTheNextStep(t *testing.T) {
	t.Parallel()
	dir := folder(t, map[string]string{"rows.txt": ""})
	for name, tt := range map[string]struct{ text, want string }{
		"empty":                  {"", "t.yaml: the file is empty; begin with task, dataset, solver and scorer"},
		"no YAML":                {"a: [", "t.yaml: it cannot be read as YAML: yaml: line 1: did not find expected node content"},
		"no map":                 {"- a", "t.yaml:1: a task file must be a map; known keys: "},
		"unknown key":            {"task: a\ndatset: x", "t.yaml:2: a task file has no key \"datset\"; did you mean dataset? known keys: config, continue_on_fail, dataset, "},
		"unknown key, no guess":  {"dataset: []\nzzz: x", "t.yaml:2: a task file has no key \"zzz\"; known keys: "},
		"unknown key, nested":    {"dataset: [{input: a, targt: b}]", "t.yaml:1: a sample has no key \"targt\"; did you mean target? known keys: choices, files, id, "},
		"key twice":              {"task: a\ntask: b", "t.yaml:2: a task file has the key \"task\" twice"},
		"no dataset":             {"task: a", "t.yaml:1: a task needs a dataset: `dataset: samples.jsonl`, or a list of samples"},
		"dataset of no source":   {"dataset: {name: x}", "t.yaml:1: a dataset needs a file or samples"},
		"dataset of two sources": {"dataset: {file: x.csv, samples: []}", "t.yaml:1: a dataset has a file or samples, not both"},
		"dataset of no format":   {"dataset: rows.txt", "t.yaml:1: dataset rows.txt: its name tells no format; name it .jsonl, .json, .csv or .tsv (also .gz), or set format"},
		"dataset not there":      {"task: a\ndataset: no.jsonl", "t.yaml:2: there is no file " + filepath.Join(dir, "no.jsonl") + "; relative paths start at the task file"},
		"a field":                {"dataset:\n  file: rows.txt\n  fields: {inptu: q}", "t.yaml:3: fields has no key \"inptu\"; did you mean input? known keys: choices, files, id, input, "},
		"a dataset of a hub":     {"dataset: hf://openai/gsm8k", "t.yaml:1: dataset hf://openai/gsm8k: datasets of a hub, or at a URL, are not read; download it, and name the file"},
		"a tab":                  {"dataset:\n\t- {input: a}", "t.yaml:2: the line is indented with a tab; YAML is indented with spaces"},
		"no epochs":              {"epochs: 0\ndataset: []", "t.yaml:1: epochs: every sample runs at least once, not 0 times"},
		"fewer epochs":           {"epochs: {count: -1}\ndataset: []", "t.yaml:1: epochs: every sample runs at least once, not -1 times"},
		"sample without input":   {"dataset: [{target: b}]", "t.yaml:1: a sample needs an input"},
		"message of no role":     {"dataset: [{input: [{content: b}]}]", "t.yaml:1: a message needs a role: system, user, assistant or tool"},
		"a number":               {"max_samples: many\ndataset: []", "t.yaml:1: max_samples must be a whole number, not “many”"},
		"a part of a number":     {"epochs: 1.5\ndataset: []", "t.yaml:1: epochs must be a whole number, not “1.5”"},
		"a part of a message":    {"limits: {messages: 3.5}\ndataset: []", "t.yaml:1: limits.messages must be a whole number, not “3.5”"},
		"a huge number":          {"samples: {limit: 1e300}\ndataset: []", "t.yaml:1: samples.limit must be a whole number, not “1e300”"},
		"a huge negative number": {"sandbox: {pids: -1e300}\ndataset: []", "t.yaml:1: sandbox.pids must be a whole number, not “-1e300”"},
		"metadata of no map":     {"metadata: nightly\ndataset: []", "t.yaml:1: metadata must be a map, not “nightly”"},
		"metadata of a sample":   {"dataset: [{input: a, metadata: [b]}]", "t.yaml:1: metadata must be a map, not a list"},
		"a file not there":       {"sandbox: {files: {a: {from: no.csv}}}\ndataset: []", "t.yaml:1: there is no file " + filepath.Join(dir, "no.csv") + "; relative paths start at the task file"},
		"a scorer of two":        {"scorer: {a: {}, b: {}}\ndataset: []", "t.yaml:1: a scorer must be a name, or one name with its parameters, such as `match: {location: end}`"},
		"a tool of two":          {"tools: [{a: {}, b: {}}]\ndataset: []", "t.yaml:1: a tool must be a name, or one name with its parameters, such as `bash: {timeout: 60}`"},
		"parameters of a solver": {"solver: {system_message: Be brief.}\ndataset: []", "t.yaml:1: parameters of system_message must be a map, not “Be brief.”"},
		"a switch":               {"score_on_error: 3\ndataset: []", "t.yaml:1: score_on_error must be true or false, not “3”"},
		"a text":                 {"task: [a]\ndataset: []", "t.yaml:1: task must be a text, not a list"},
		"nothing":                {"task:\ndataset: []", "t.yaml:1: task must be a text, not nothing"},
		"a solver of two":        {"solver: {a: {}, b: {}}\ndataset: []", "t.yaml:1: a solver must be a name, or one name with its parameters, such as `system_message: {template: Be brief.}`"},
		"parameters of no map":   {"scorer: {match: end}\ndataset: []", "t.yaml:1: parameters of match must be a map, not “end”"},
		"a duration":             {"limits: {time: soon}\ndataset: []", "t.yaml:1: limits.time must be a duration like 90s or 5m, or a number of seconds, not “soon”"},
		"a negative duration":    {"limits: {time: -1}\ndataset: []", "t.yaml:1: limits.time must be a duration"},
		"an endless duration":    {"limits: {time: .inf}\ndataset: []", "t.yaml:1: limits.time must be a duration"},
		"tokens":                 {"limits: {tokens: 5kk}\ndataset: []", "t.yaml:1: limits.tokens: “5kk” is no number of tokens; write one like 500000, 500k or output:1m"},
		"a text cut in a letter": {"limits: {time: " + strings.Repeat("a", 39) + "é}\ndataset: []", "t.yaml:1: limits.time must be a duration like 90s or 5m, or a number of seconds, not “" + strings.Repeat("a", 39) + "…”"},
		"bytes":                  {"task: !!binary /w==\ndataset: []", "t.yaml:1: task must be a text"},
		"a size":                 {"sandbox: {memory: 1.5G}\ndataset: []", "t.yaml:1: sandbox.memory must be a size like 512MiB or 2GiB, not “1.5G”"},
		"a mode":                 {"sandbox: {files: {a: {from: rows.txt, mode: 999}}}\ndataset: []", "t.yaml:1: mode must be octal, such as 755, not “999”"},
		"no sandbox":             {"sandbox: false\ndataset: []", "t.yaml:1: leave sandbox out for none; true takes the server's default driver"},
		"an option":              {"config: {temprature: 1}\ndataset: []", "t.yaml:1: config: unknown field temprature; did you mean temperature? options of one provider belong into extra_body"},
		"an option of a role":    {"model_roles: {grader: {name: a/b, config: {sed: 1}}}\ndataset: []", "t.yaml:1: model_roles.grader.config: unknown field sed; did you mean seed? "},
		"a size of one of many":  {"sandbox: {environments: {web: {disk: much}}}\ndataset: []", "t.yaml:1: sandbox.environments.web.disk must be a size"},
		"a model of no name":     {"model: {account: a}\ndataset: []", "t.yaml:1: a model needs a name, such as `name: openai/gpt-4o`"},
		"errors":                 {"fail_on_error: often\ndataset: []", "t.yaml:1: fail_on_error must be true, false, a part of the samples such as 0.1, or a number of samples, not “often”"},
		"no number for JSON":     {"metadata: {a: .inf}\ndataset: []", "t.yaml:1: metadata: .inf is no number that JSON can hold"},
		"a deep value":           {"metadata: {a: " + strings.Repeat("[", 65) + strings.Repeat("]", 65) + "}\ndataset: []", "t.yaml:1: metadata nests deeper than 64 or is larger than"},
		"a value within itself":  {"metadata: &a {b: *a}\ndataset: []", "t.yaml: it cannot be read as YAML: line 1: *a: the value contains itself"},
		"a merge within itself":  {"metadata: &a {<<: {<<: *a}}\ndataset: []", "t.yaml: it cannot be read as YAML: line 1: *a: the value contains itself"},
		"many values":            {"dataset: [" + strings.Repeat("a, ", 100_000) + "]", "t.yaml: line 1: the YAML is too large: it unfolds to more than 100000 values; put samples into a dataset file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(dir, "t.yaml")
			_, err := taskfile.Parse(t.Context(), path, []byte(tt.text))
			require.Error(t, err)
			assert.Contains(t, err.Error(), dir+"/"+tt.want)
		})
	}
}

func TestAllFaultsAreTold(t *testing.T) {
	t.Parallel()
	_, err := taskfile.Parse(t.Context(), "t.yaml", []byte("tsk: a\nepochs: x\ndataset: [{inputs: a}, {input: b, idd: 1}]"))
	for _, want := range []string{"t.yaml:1: a task file has no key \"tsk\"", "t.yaml:2: epochs must be a whole number", `no key "inputs"`, `no key "idd"`} {
		assert.ErrorContains(t, err, want)
	}
}

func TestLoadTellsWhatIsNoTaskFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := taskfile.Load(t.Context(), dir)
	assert.EqualError(t, err, dir+" is a folder; name the task file in it, such as "+dir+"/task.yaml")
	_, err = taskfile.Load(t.Context(), dir+"/none.yaml")
	assert.EqualError(t, err, dir+"/none.yaml: there is no such task file")
}

// The content of parameters that is removed stays where an alias refers to it.
func TestParametersThatAnAliasStandsFor(t *testing.T) {
	t.Parallel()
	task, err := taskfile.Parse(t.Context(), "t.yaml", []byte("dataset: []\nsolver:\n  - {react: &p {tools: [bash], attempts: 2}}\n  - {react: *p}\n"))
	require.NoError(t, err)
	for _, step := range task.Spec.GetSteps() {
		assert.Len(t, step.GetTools(), 1)
		assert.JSONEq(t, `{"attempts": 2}`, step.GetParamsJson())
	}
}

func TestMergedMaps(t *testing.T) {
	t.Parallel()
	task, err := taskfile.Parse(t.Context(), "t.yaml", []byte("dataset: []\nmodel:\n  - &one {name: a/b, account: x, config: {seed: 1}}\n  - {<<: *one, account: y}\n"))
	require.NoError(t, err)
	require.Len(t, task.Spec.GetModels(), 2)
	second := task.Spec.GetModels()[1]
	assert.Equal(t, "a/b", second.GetModel())
	assert.Equal(t, "y", second.GetAccount())
	assert.Equal(t, int64(1), second.GetConfig().GetSeed())
}

func TestChanges(t *testing.T) {
	t.Parallel()
	dir := folder(t, map[string]string{"a.jsonl": "", "b.csv": "x"})
	path := filepath.Join(dir, "t.yaml")
	load := func(texts ...string) (*agentv1.EvalSpec, error) {
		var changes []taskfile.Change
		for _, text := range texts {
			c, err := taskfile.ParseChange(text)
			if err != nil {
				return nil, err
			}
			changes = append(changes, c)
		}
		task, err := taskfile.Parse(t.Context(), path, []byte("dataset: {file: a.jsonl, auto_id: true}\nlimits: {turns: 3}\n"), changes...)
		if err != nil {
			return nil, err
		}
		return task.Spec, nil
	}
	spec, err := load("samples.limit=5", "dataset.file=b.csv", "tags=[x, y]", "limits.time=1m", "limits.time=2m", "task=")
	require.NoError(t, err)
	assert.Equal(t, int32(5), spec.GetLimit().GetEnd())
	assert.Equal(t, blob("x").GetHash(), spec.GetDataset().GetFile().GetBlob().GetHash())
	assert.True(t, spec.GetDataset().GetFile().GetAutoId())
	assert.Equal(t, []string{"x", "y"}, spec.GetTags())
	assert.Equal(t, 2*time.Minute, spec.GetLimits().GetTime().AsDuration())
	assert.Equal(t, int32(3), spec.GetLimits().GetTurns())

	for text, want := range map[string]string{
		"limit":            `"limit" changes nothing; write key=value, such as samples.limit=5`,
		"a..b=1":           `"a..b=1" changes nothing; write key=value, such as samples.limit=5`,
		"a=[":              `"a=[": yaml: line 1: did not find expected node content`,
		"dataset.file.x":   `changes nothing`,
		"limits.turns.x=1": `cannot set limits.turns.x=1: limits.turns is no map`,
		"limits.turn=1":    path + `: limits has no key "turn"; did you mean turns? known keys: cost, messages, time, tokens, turns, working_time`,
		"limits.turns=x":   path + `: limits.turns must be a whole number, not “x”`,
	} {
		_, err := load(text)
		assert.ErrorContains(t, err, want, text)
	}
}

// A parameter cannot be set below a scorer that the file names alone or in a list. The whole can, as
// docs/from-inspect.md shows.
func TestAScorerIsSetAsAWhole(t *testing.T) {
	t.Parallel()
	for _, scorer := range []string{"match", "[match, includes]"} {
		file := []byte("dataset: []\nscorer: " + scorer + "\n")
		below, err := taskfile.ParseChange("scorer.match.numeric=true")
		require.NoError(t, err)
		_, err = taskfile.Parse(t.Context(), "t.yaml", file, below)
		assert.ErrorContains(t, err, "scorer is no map")
		whole, err := taskfile.ParseChange("scorer={match: {numeric: true}}")
		require.NoError(t, err)
		task, err := taskfile.Parse(t.Context(), "t.yaml", file, whole)
		require.NoError(t, err)
		require.Len(t, task.Spec.GetScorers(), 1)
		assert.Equal(t, "match", task.Spec.GetScorers()[0].GetName())
		assert.JSONEq(t, `{"numeric": true}`, task.Spec.GetScorers()[0].GetParamsJson())
	}
}

func TestModelArgs(t *testing.T) {
	t.Parallel()
	dir := folder(t, map[string]string{"s.yaml": "x"})
	text, got, err := taskfile.ModelArgs(t.Context(), dir, map[string]string{"script": "s.yaml", "n": "3", "list": "[a, b]", "none": ""})
	require.NoError(t, err)
	assert.JSONEq(t, `{"script": "blob:`+hash("x")+`#s.yaml", "n": 3, "list": ["a", "b"], "none": ""}`, text)
	bodies(t, []taskfile.Body{{Path: filepath.Join(dir, "s.yaml"), Ref: blob("x")}}, got)
	_, _, err = taskfile.ModelArgs(t.Context(), dir, map[string]string{"script": "none.yaml"})
	assert.ErrorContains(t, err, "model arguments: there is no file "+filepath.Join(dir, "none.yaml")+"; relative paths start in the working directory")
}

func FuzzParse(f *testing.F) {
	f.Add("dataset: [{input: a}]")
	f.Add("a: &a [*a]\ndataset: *a\nmetadata: {<<: *a, ? [x] : y}")
	f.Add("limits: {tokens: 1k, time: 3}\nsandbox: {environments: {a: local}}\nepochs: {count: 2}")
	f.Fuzz(func(t *testing.T, text string) {
		if task, err := taskfile.Parse(t.Context(), filepath.Join(t.TempDir(), "t.yaml"), []byte(text)); err == nil {
			assert.NotEmpty(t, task.Spec.GetSteps())
		}
	})
}

// A path that would never end, or never answer, is refused at once.
func TestOnlyRegularFilesAreRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe.jsonl")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	_, err := taskfile.Load(t.Context(), pipe)
	assert.ErrorContains(t, err, "pipe.jsonl is a pipe; save what it gives to a file and name that")
	_, err = taskfile.Load(t.Context(), "/dev/zero")
	assert.ErrorContains(t, err, "/dev/zero is a device")
	for text, want := range map[string]string{
		"dataset: pipe.jsonl":                       "pipe.jsonl is a pipe",
		"dataset: {file: /dev/zero, format: jsonl}": "/dev/zero is a device",
		"dataset: {file: ., format: jsonl}":         "is a folder",

		"dataset: [{input: a}]\nmodel: {name: mockllm/m, args: {script: pipe.jsonl}}": "pipe.jsonl is a pipe",

		"dataset: [{input: a}]\nsandbox: {files: {a: {from: pipe.jsonl}}}": "pipe.jsonl is a pipe",
	} {
		_, err := taskfile.Parse(t.Context(), filepath.Join(dir, "t.yaml"), []byte(text))
		assert.ErrorContains(t, err, want, text)
		assert.ErrorContains(t, err, "t.yaml:", text)
	}
}

func TestReadingALongDatasetEndsWithTheContext(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "rows.jsonl"), []byte("{}\n"), 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := taskfile.Parse(ctx, filepath.Join(dir, "t.yaml"), []byte("dataset: rows.jsonl"))
	assert.ErrorIs(t, err, context.Canceled)
}
