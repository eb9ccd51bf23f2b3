// Package exec is the scorer exec: it runs a program in the sample's sandbox, and the program's exit code is the
// verdict.
//
// The program's text is a template over the model's answer and the sample's data, such as `{completion}` and
// `{metadata.test}`. Missing metadata is an error; other unknown names stay unchanged. The program alone decides: exit
// code 0 is right, everything else is wrong, including a time-out. Its output is the score's explanation.
//
// The command is a check (evalfleet.sandbox.v1.ExecCheck): leftovers of the agent in the sandbox, above all its
// processes, cannot influence the verdict.
package exec

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/headtail"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/seconds"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/param"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/task/template"
)

const (
	// defaultTimeout bounds a program that names no other bound.
	defaultTimeout = 60 * time.Second
	// explanationBytes bounds the part of a program's output that a score keeps.
	explanationBytes = 4 << 10
	// defaultSandbox is the sandbox of programs that name none.
	defaultSandbox = "default"
	// metadataPrefix begins the names of placeholders for the sample's metadata.
	metadataPrefix = "metadata"

	// completionVariable and targetVariable are set for checks that name them. A long text in a variable keeps every
	// program from starting.
	completionVariable = "EVALFLEET_COMPLETION"
	targetVariable     = "EVALFLEET_TARGET"
)

// Command is the effect that the scorer asks for: a command in a sandbox of the run. Its result is an
// *[agentv1.ExecOutcome].
type Command struct {
	// Environment is the sandbox's name within the run.
	Environment string
	// Spec is the command.
	Spec *sandboxv1.ExecSpec
}

// Definition describes the scorer.
func Definition() score.Definition {
	return score.Definition{
		Name:        "exec",
		Description: "Runs a check program in the sandbox; exit code 0 is right.",
		Metrics:     []string{"accuracy", "stderr"},
		Params: param.List{
			{Name: "program", Type: param.String, Description: "Text of the program, with {completion}, {target}, {choices} and {metadata.key}."},
			{Name: "command", Type: param.String, Description: "In place of a program: a command for bash, with the same placeholders, of which {completion} does not belong there: the variables EVALFLEET_COMPLETION and EVALFLEET_TARGET cannot change the command."},
			{Name: "language", Type: param.String, Description: "What reads the program.", Default: json.RawMessage(`"python"`), Enum: []string{`"python"`, `"bash"`}},
			{Name: "argv", Type: param.Strings, Description: "In place of a language: the program's reader with its arguments. The program is its standard input."},
			{Name: "extract", Type: param.String, Description: "What {completion} is: all of it, or the last fenced block of code where there is one.", Default: json.RawMessage(`"all"`), Enum: []string{`"all"`, `"code"`}},
			{Name: "timeout", Type: param.Number, Description: "Seconds after which the program is killed, and the answer is wrong.", Default: json.RawMessage(`60`)},
			{Name: "sandbox", Type: param.String, Description: "Environment to run in.", Default: json.RawMessage(`"default"`)},
			{Name: "env", Type: param.Any, Description: "Environment variables, an object of texts."},
			{Name: "cwd", Type: param.String, Description: "Working directory; relative to the sandbox's, which is `.`. Default: an empty folder of the check's own, EVALFLEET_CHECK_DIR; that of the sandbox is EVALFLEET_WORKDIR."},
			{Name: "files", Type: param.Any, Description: "Files placed in the check's own folder before it starts: an object from path to text, with the same placeholders, or to {text or base64, mode}."},
			{Name: "keep_processes", Type: param.Boolean, Description: "Leave the agent's processes alive, for a check of a server that runs.", Default: json.RawMessage(`false`)},
		},
		NamesTarget: namesTarget,
		Warn:        warn,
		New:         func(raw json.RawMessage) (score.Scorer, error) { return newScorer(raw) },
	}
}

// howToBox explains how a task file gives its samples a sandbox of a name.
func howToBox(name string) string {
	if name == defaultSandbox {
		return "`sandbox: true`"
	}
	return "`sandbox: {environments: {" + name + ": {}}}`"
}

// namesTarget reports whether a program, a command or a file has the placeholder {target} or its variable. It is false
// for unreadable parameters; New refuses them.
func namesTarget(raw json.RawMessage) bool {
	s, err := newScorer(raw)
	return err == nil && strings.Contains(s.params.Program+s.params.Command+texts(s.params.Files), "{target}") || err == nil && s.names(targetVariable)
}

// warn describes what an answer could do as a part of a command.
func warn(raw json.RawMessage) string {
	if s, err := newScorer(raw); err != nil || !strings.Contains(s.params.Command, "{completion}") {
		return ""
	}
	return "the scorer exec puts {completion} into its command, where an answer can be written so that the command is right; let the command read the variable " +
		completionVariable + ", or a file with {completion}"
}

type params struct {
	Program  string            `json:"program"`
	Command  string            `json:"command"`
	Language string            `json:"language"`
	Argv     []string          `json:"argv"`
	Extract  string            `json:"extract"`
	Timeout  float64           `json:"timeout"`
	Sandbox  string            `json:"sandbox"`
	Env      map[string]string `json:"env"`
	Cwd      string            `json:"cwd"`
	Files    map[string]file   `json:"files"`
	Keep     bool              `json:"keep_processes"`
}

type scorer struct{ params params }

func newScorer(raw json.RawMessage) (*scorer, error) {
	p := params{Language: "python", Extract: "all", Timeout: defaultTimeout.Seconds(), Sandbox: defaultSandbox}
	if err := Definition().Params.Decode(raw, &p); err != nil {
		return nil, err
	}
	if (p.Program == "") == (p.Command == "") {
		return nil, param.Invalid("program", "give either program or command, a text that is not empty")
	}
	if !(p.Timeout > 0) {
		return nil, param.Invalid("timeout", "is %v; want seconds above 0", p.Timeout)
	}
	if err := checkFiles(p.Files); err != nil {
		return nil, err
	}
	return &scorer{params: p}, nil
}

// Next implements [score.Scorer].
func (s *scorer) Next(in score.Input, results []score.Result) (score.Step, error) {
	answer := s.answer(in.Completion)
	if len(results) == 0 {
		if err := s.known(in); err != nil {
			return score.Step{}, err
		}
		spec, err := s.spec(in, answer)
		if err != nil {
			return score.Step{}, err
		}
		return score.Step{Effect: Command{Environment: s.params.Sandbox, Spec: spec}}, nil
	}
	outcome, ok := results[0].(*agentv1.ExecOutcome)
	if !ok {
		return score.Step{}, fmt.Errorf("the check program's result is a %T", results[0])
	}
	if outcome.GetError() != nil {
		return score.Step{}, errors.New("the check program could not be run: " + outcome.GetError().GetMessage())
	}
	return score.Step{Score: s.judge(answer, outcome.GetContent())}, nil
}

// Demand implements [score.Demanding].
func (s *scorer) Demand(in score.Input, sandboxes []string) error {
	switch {
	case len(sandboxes) == 0:
		return rpcerr.InvalidField("sandboxes", "the scorer exec needs a sandbox; add one named %s, in a task file %s", s.params.Sandbox, howToBox(s.params.Sandbox))
	case !slices.Contains(sandboxes, s.params.Sandbox):
		return rpcerr.InvalidField("sandboxes", "the scorer exec runs in the sandbox %q, which there is not; known: %s", s.params.Sandbox, strings.Join(sandboxes, ", "))
	}
	if err := s.known(in); err != nil {
		return err
	}
	_, err := s.spec(in, "")
	return err
}

// known fails if the text names metadata that the sample does not have. Other unknown names may be the program's own
// braces.
func (s *scorer) known(in score.Input) error {
	missing := template.Missing(s.params.Program+s.params.Command+texts(s.params.Files), metadataPrefix+".", valuesOf(in, ""))
	if len(missing) == 0 {
		return nil
	}
	keys := "none"
	if in.Metadata != nil && in.Metadata.Len() > 0 {
		var all []string
		for key := range in.Metadata.All() {
			all = append(all, key)
		}
		keys = strings.Join(all, ", ")
	}
	return rpcerr.InvalidField("params_json", "the scorer exec names {%s}, which the sample's metadata does not have; its keys: %s", strings.Join(missing, "}, {"), keys)
}

// names reports whether the check names a variable.
func (s *scorer) names(variable string) bool {
	return strings.Contains(s.params.Program+s.params.Command, variable) || contain(s.params.Files, variable)
}

// spec fills the program or the command.
func (s *scorer) spec(in score.Input, answer string) (*sandboxv1.ExecSpec, error) {
	p := s.params
	spec := &sandboxv1.ExecSpec{Env: p.Env, Cwd: p.Cwd, Timeout: durationpb.New(seconds.Duration(p.Timeout))}
	values, room := valuesOf(in, answer), template.NewRoom()
	for variable, name := range map[string]string{completionVariable: "completion", targetVariable: "target"} {
		if value, known := values(name); known && s.names(variable) && p.Env[variable] == "" {
			spec.Env = maps.Clone(spec.Env)
			if spec.Env == nil {
				spec.Env = map[string]string{}
			}
			spec.Env[variable] = value
		}
	}
	files, err := filled(p.Files, values, room)
	if err != nil {
		return nil, err
	}
	spec.Check = &sandboxv1.ExecCheck{KeepProcesses: p.Keep, Files: files}
	switch {
	case p.Command != "":
		command, err := room.Program(p.Command, values)
		spec.Argv = []string{"bash", "--norc", "--noprofile", "-c", command}
		return spec, rpcerr.In("params_json/command", err)
	case len(p.Argv) > 0:
		spec.Argv = p.Argv
	case p.Language == "bash":
		spec.Argv = []string{"bash", "--norc", "--noprofile", "-c", readWhole}
	default:
		spec.Argv = []string{"python3", "-I", "-"} // without the folder, the user's modules and PYTHON* in its way
	}
	program, err := room.Program(p.Program, values)
	spec.Stdin = []byte(program)
	return spec, rpcerr.In("params_json/program", err)
}

// readWhole makes bash read its whole program before it runs any of it, and then have no input. With -s it would read
// while it runs, and a child process, such as the agent's own code, could read the rest: a program without more
// commands ends with 0.
const readWhole = `program=$(cat) || exit 126; exec </dev/null; eval "unset program; $program"`

func valuesOf(in score.Input, answer string) template.Values {
	texts := map[string]string{"completion": answer}
	if len(in.Targets) > 0 {
		texts["target"] = in.Targets[0]
	}
	var choices []string
	for _, c := range in.Choices {
		choices = append(choices, c.Value)
	}
	texts["choices"] = strings.Join(choices, "\n")
	metadata := ""
	if in.Metadata != nil {
		metadata = string(orderedjson.Append(nil, in.Metadata))
	}
	return template.First(template.Map(texts), template.Under(metadataPrefix, template.Object(metadata)))
}

func (s *scorer) judge(answer string, result *sandboxv1.ExecResult) *score.Score {
	value := score.Incorrect
	if result.GetExitCode() == 0 && !result.GetTimedOut() && !result.GetCancelled() {
		value = score.Correct
	}
	explanation := explain(s.params, result)
	return &score.Score{
		Value: score.Text(value), Answer: &answer, Explanation: &explanation,
		Metadata: map[string]json.RawMessage{
			"exit_code": fmt.Append(nil, result.GetExitCode()),
			"timed_out": fmt.Append(nil, result.GetTimedOut()),
		},
	}
}

func explain(p params, result *sandboxv1.ExecResult) string {
	verdict := fmt.Sprintf("the check program exited with %d", result.GetExitCode())
	switch {
	case result.GetTimedOut():
		verdict = fmt.Sprintf("the check program did not end within %v s", p.Timeout)
	case result.GetOom():
		verdict += ", after the kernel killed a process of the sandbox for its memory"
	}
	output := strings.TrimSpace(strings.ToValidUTF8(string(result.GetStdout())+string(result.GetStderr()), "\uFFFD"))
	if output == "" {
		return verdict
	}
	return verdict + "\n\n" + headtail.Cut(output, explanationBytes)
}

// answer is the value of {completion}.
func (s *scorer) answer(completion string) string {
	if s.params.Extract == "code" {
		if code, ok := lastBlock(completion, s.params.Language); ok {
			return code
		}
	}
	return completion
}
