package exec

import (
	"bytes"
	"encoding/json"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/evalfleet/evalfleet/pkg/bound"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/task/choice"
)

func made(t *testing.T, params string) score.Scorer {
	t.Helper()
	s, err := Definition().New(json.RawMessage(params))
	require.NoError(t, err)
	return s
}

func ask(t *testing.T, s score.Scorer, in score.Input) Command {
	t.Helper()
	step, err := s.Next(in, nil)
	require.NoError(t, err)
	exec, ok := step.Effect.(Command)
	require.True(t, ok)
	return exec
}

func TestCommandLines(t *testing.T) {
	t.Parallel()
	in := score.Input{
		Completion: "def f(): return {x}\n", Targets: []string{"42", "43"}, Choices: choice.New([]string{"a", "b"}), Metadata: &orderedjson.Object{},
	}
	in.Metadata.Set("test", "assert f() == {1}")
	in.Metadata.Set("n", json.Number("7"))
	command := ask(t, made(t, `{"program": "{completion}{metadata.test} # {target} {metadata.n} {unknown} {choices}", "timeout": 1.5, "env": {"A": "b"}, "cwd": "w"}`), in)
	assert.Equal(t, "default", command.Environment)
	assert.Equal(t, []string{"python3", "-I", "-"}, command.Spec.GetArgv())
	assert.Equal(t, "def f(): return {x}\nassert f() == {1} # 42 7 {unknown} a\nb", string(command.Spec.GetStdin()), "what is put in is not read again")
	assert.InDelta(t, 1.5, command.Spec.GetTimeout().AsDuration().Seconds(), 0)
	assert.Equal(t, map[string]string{"A": "b"}, command.Spec.GetEnv())
	assert.Equal(t, "w", command.Spec.GetCwd())

	assert.Equal(t, []string{"bash", "--norc", "--noprofile", "-c", "test 42 = 42"}, ask(t, made(t, `{"command": "test 42 = {target}", "sandbox": "box"}`), in).Spec.GetArgv())
	assert.Equal(t, "x 42", string(ask(t, made(t, `{"program": "x {target}", "language": "bash"}`), in).Spec.GetStdin()))
	assert.Equal(t, []string{"node", "-"}, ask(t, made(t, `{"program": "x", "argv": ["node", "-"]}`), in).Spec.GetArgv())
}

// An answer in a variable is data, where one in a command is a part of it.
func TestAnAnswerIsAVariable(t *testing.T) {
	t.Parallel()
	in := score.Input{Completion: `" = "" -o "x`, Targets: []string{"42"}}
	for params, want := range map[string]map[string]string{
		`{"command": "test \"$EVALFLEET_COMPLETION\" = \"$EVALFLEET_TARGET\"", "env": {"A": "b"}}`:   {"A": "b", "EVALFLEET_COMPLETION": in.Completion, "EVALFLEET_TARGET": "42"},
		`{"program": "import os; assert os.environ['EVALFLEET_TARGET'] == '42'"}`:                    {"EVALFLEET_TARGET": "42"},
		`{"command": "./run", "files": {"run": {"base64": "ZWNobyAkRVZBTEZMRUVUX0NPTVBMRVRJT04="}}}`: {"EVALFLEET_COMPLETION": in.Completion},
		`{"command": "./run"}`: nil,
		`{"command": "$EVALFLEET_TARGET", "env": {"EVALFLEET_TARGET": "its own"}}`: {"EVALFLEET_TARGET": "its own"},
	} {
		assert.Equal(t, want, ask(t, made(t, params), in).Spec.GetEnv(), params)
	}
	for params, warned := range map[string]bool{
		`{"command": "test {completion} = 42"}`: true, `{"command": "test {target} = $EVALFLEET_COMPLETION"}`: false, `{"program": "{completion}"}`: false, `{`: false,
	} {
		assert.Equal(t, warned, Definition().Warn(json.RawMessage(params)) != "", params)
	}
	assert.True(t, Definition().Compares(json.RawMessage(`{"command": "test $EVALFLEET_TARGET"}`)), "without a target it would mean nothing")
}

func TestATimeoutOfMoreThanALifetimeIsOne(t *testing.T) {
	t.Parallel()
	assert.Greater(t, ask(t, made(t, `{"command": "x", "timeout": 1e300}`), score.Input{}).Spec.GetTimeout().AsDuration(), 100*365*24*time.Hour)
}

// What a program of bash starts reads none of the program.
func TestAProgramOfBashIsReadWhole(t *testing.T) {
	t.Parallel()
	for program, want := range map[string]struct {
		exit int
		out  string
	}{
		"cat\necho read\nexit 3":                                         {3, "read\n"},
		"#!/bin/bash\nset -eu\ncat > /dev/null\nfalse\nexit 0":           {1, ""},
		"echo before\n)\nexit 0":                                         {2, "before\n"},
		"echo $LINENO $# ${program-unset}; cat <<END\nhere\nEND\nread x": {1, "1 0 unset\nhere\n"},
		"trap 'exit 7' EXIT\nexec cat":                                   {0, ""},
		"":                                                               {0, ""},
	} {
		spec := ask(t, made(t, `{"program": "{completion}", "language": "bash"}`), score.Input{Completion: program}).Spec
		cmd := exec.CommandContext(t.Context(), spec.GetArgv()[0], spec.GetArgv()[1:]...)
		cmd.Stdin = bytes.NewReader(spec.GetStdin())
		out, err := cmd.Output()
		if ended := (*exec.ExitError)(nil); !errors.As(err, &ended) {
			require.NoError(t, err, program)
		}
		assert.Equal(t, want.exit, cmd.ProcessState.ExitCode(), program)
		assert.Equal(t, want.out, string(out), program)
	}
}

func TestEveryCommandIsACheck(t *testing.T) {
	t.Parallel()
	in := score.Input{Completion: "42", Targets: []string{"7"}, Metadata: &orderedjson.Object{}}
	in.Metadata.Set("test", "assert {completion}")
	for _, params := range []string{`{"command": "x"}`, `{"program": "x"}`, `{"program": "x", "argv": ["node"], "cwd": "."}`} {
		spec := ask(t, made(t, params), in).Spec
		require.NotNil(t, spec.GetCheck(), params)
		assert.False(t, spec.GetCheck().GetKeepProcesses(), params)
		assert.Empty(t, spec.GetCheck().GetFiles(), params)
	}
	got := ask(t, made(t, `{"command": "./run", "keep_processes": true, "files": {
		"t/test.py": "{metadata.test} {completion} {own}", "run": {"base64": "e3RhcmdldH0=", "mode": "755"}, "want": {"text": "{target}", "mode": "600"}, "none": {"base64": ""}}}`), in).Spec.GetCheck()
	assert.Empty(t, cmp.Diff(&sandboxv1.ExecCheck{KeepProcesses: true, Files: []*sandboxv1.FileToPlace{
		{Path: "none", Body: &sandboxv1.FileToPlace_Content{}},
		{Path: "run", Body: &sandboxv1.FileToPlace_Content{Content: []byte("{target}")}, Mode: 0o755},
		{Path: "t/test.py", Body: &sandboxv1.FileToPlace_Content{Content: []byte("assert {completion} 42 {own}")}},
		{Path: "want", Body: &sandboxv1.FileToPlace_Content{Content: []byte("7")}, Mode: 0o600},
	}}, got, protocmp.Transform()))
}

func TestFilesThatCannotBePlaced(t *testing.T) {
	t.Parallel()
	for files, want := range map[string]string{
		`{"../x": "a"}`:                        `"../x" is not a path below the check's folder`,
		`{"/x": "a"}`:                          `"/x" is not a path below the check's folder`,
		`{"": "a"}`:                            `"" is not a path below the check's folder`,
		`{"x": 7}`:                             "want a text, or an object with text or base64, and mode",
		`{"x": {}}`:                            "want a text, or an object with text or base64, and mode",
		`{"x": {"text": "a", "base64": "YQ"}}`: "want a text, or an object with text or base64, and mode",
		`{"x": {"text": "a", "mod": "755"}}`:   "want a text, or an object with text or base64, and mode",
		`{"x": {"text": "a", "mode": "999"}}`:  "mode must be octal, such as 755, not 999",
		`{"x": "` + strings.Repeat("a", bound.CheckFiles+1) + `"}`: "are larger than 3145728 bytes",
	} {
		_, err := Definition().New(json.RawMessage(`{"command": "true", "files": ` + files + `}`))
		assert.ErrorContains(t, err, want)
		assert.ErrorContains(t, err, "params_json/files")
	}
	_, err := made(t, `{"command": "true", "files": {"x": "{metadata.zz}"}}`).Next(score.Input{}, nil)
	assert.ErrorContains(t, err, "{metadata.zz}")
}

func TestUnknownMetadataIsNamed(t *testing.T) {
	t.Parallel()
	in := score.Input{Metadata: &orderedjson.Object{}}
	in.Metadata.Set("test", "x")
	in.Metadata.Set("n", json.Number("7"))
	s := made(t, `{"command": "echo {metadata.test} {metadata.zz} {own} {metadata.zz}"}`)
	_, err := s.Next(in, nil)
	require.EqualError(t, err, "params_json: the scorer exec names {metadata.zz}, which the sample's metadata does not have; its keys: test, n")
	demanding, ok := s.(score.Demanding)
	require.True(t, ok)
	require.ErrorContains(t, demanding.Demand(in, []string{"default"}), "{metadata.zz}", "before the run too")
	_, err = s.Next(score.Input{}, nil)
	require.ErrorContains(t, err, "its keys: none")
}

// The size of the texts with the sample's data is known before the run; the size of the model's answer is not.
func TestWhatPlaceholdersMakeIsBounded(t *testing.T) {
	t.Parallel()
	in := score.Input{Metadata: &orderedjson.Object{}}
	in.Metadata.Set("big", strings.Repeat("x", 1<<20))
	many := func(name string) string { return strings.Repeat("{"+name+"}", 17) }
	for params, place := range map[string]string{
		`{"program": "` + many("metadata.big") + `"}`:                                                "params_json/program: the text would have more than 16777216 bytes",
		`{"command": "` + many("metadata.big") + `"}`:                                                "params_json/command: ",
		`{"command": "true", "files": {"a": "{metadata.big}", "b": "` + many("metadata.big") + `"}}`: "params_json/files/b: ",
	} {
		s := made(t, params)
		err := s.(score.Demanding).Demand(in, []string{"default"})
		require.ErrorContains(t, err, place)
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_REQUEST_TOO_LARGE), "%v", err)
		_, err = s.Next(in, nil)
		require.ErrorContains(t, err, place)
	}
	s := made(t, `{"program": "`+many("completion")+`"}`)
	require.NoError(t, s.(score.Demanding).Demand(in, []string{"default"}))
	_, err := s.Next(score.Input{Completion: strings.Repeat("x", 1<<20)}, nil)
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_REQUEST_TOO_LARGE), "%v", err)
}

func TestASandboxIsNeeded(t *testing.T) {
	t.Parallel()
	s, ok := made(t, `{"program": "x", "sandbox": "box"}`).(score.Demanding)
	require.True(t, ok)
	require.NoError(t, s.Demand(score.Input{}, []string{"box"}))
	require.ErrorContains(t, s.Demand(score.Input{}, nil), "add one named box, in a task file `sandbox: {environments: {box: {}}}`")
	require.ErrorContains(t, s.Demand(score.Input{}, []string{"default"}), "known: default")
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	s := made(t, `{"program": "{completion}", "timeout": 5}`)
	for name, c := range map[string]struct {
		result  *sandboxv1.ExecResult
		value   string
		explain string
	}{
		"right":     {&sandboxv1.ExecResult{Stdout: []byte("ok\n")}, "C", "the check program exited with 0\n\nok"},
		"wrong":     {&sandboxv1.ExecResult{ExitCode: new(int32(1)), Stderr: []byte("no\xff")}, "I", "the check program exited with 1\n\nno\uFFFD"},
		"timed out": {&sandboxv1.ExecResult{TimedOut: true}, "I", "the check program did not end within 5 s"},
		"killed":    {&sandboxv1.ExecResult{ExitCode: new(int32(137)), Oom: true}, "I", "the check program exited with 137, after the kernel killed a process of the sandbox for its memory"},
	} {
		step, err := s.Next(score.Input{Completion: "said"}, []score.Result{&agentv1.ExecOutcome{Content: c.result}})
		require.NoError(t, err, name)
		assert.Equal(t, c.value, step.Score.Value.Text(), name)
		assert.Equal(t, c.explain, *step.Score.Explanation, name)
		assert.Equal(t, "said", *step.Score.Answer, name)
	}
	step, err := s.Next(score.Input{}, []score.Result{&agentv1.ExecOutcome{Content: &sandboxv1.ExecResult{Stdout: []byte(strings.Repeat("x", 1<<20))}}})
	require.NoError(t, err)
	assert.Less(t, len(*step.Score.Explanation), explanationBytes+100)
	_, err = s.Next(score.Input{}, []score.Result{&agentv1.ExecOutcome{Error: &agentv1.RunError{Message: "lost"}}})
	assert.ErrorContains(t, err, "lost")
}

func TestExtract(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"no code":                             "no code",
		"x\n```python\na = 1\n```\ny":         "a = 1\n",
		"```\none\n```\n```\ntwo\n```":        "two\n",
		"```py\none\n```\n```bash\ntwo\n```":  "one\n",
		"```python\ncut off":                  "cut off",
		"````md\n```\ninner\n```\n````\nz":    "```\ninner\n```\n",
		"~~~\ntilde\n~~~\n":                   "tilde\n",
		"  ```python title=\"a\"\n  b\n  ```": "  b\n",
	} {
		command := ask(t, made(t, `{"program": "{completion}", "extract": "code"}`), score.Input{Completion: text})
		assert.Equal(t, want, string(command.Spec.GetStdin()), text)
	}
}

func TestBadParams(t *testing.T) {
	t.Parallel()
	for _, params := range []string{`{}`, `{"program": "a", "command": "b"}`, `{"program": "a", "timeout": 0}`, `{"program": "a", "language": "perl"}`, `{"program": "a", "nope": 1}`, `{"program": "a", "env": [1]}`} {
		_, err := Definition().New(json.RawMessage(params))
		assert.Error(t, err, params)
	}
}

func TestAFenceMayBeLong(t *testing.T) {
	t.Parallel()
	fence := strings.Repeat("`", 1<<21)
	begun := time.Now()
	block, found := lastBlock(fence+"python\n```\n"+fence+"\n", "python")
	assert.True(t, found)
	assert.Equal(t, "```\n", block)
	assert.Less(t, time.Since(begun), waittest.Bound)
}
