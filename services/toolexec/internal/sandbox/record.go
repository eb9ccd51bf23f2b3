package sandbox

import (
	"encoding/json"
	"strings"

	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/headtail"
)

const (
	// shownLines and shownBytes bound the part of a command's input and output that the transcript shows.
	shownLines = 20
	shownBytes = 4 << 10
)

func (a *Access) recordExec(sandbox string, spec *sandboxv1.ExecSpec, response *sandboxv1.ExecResponse, err error) {
	action := &toolv1.SandboxAction{
		Action:      toolv1.SandboxActionType_SANDBOX_ACTION_TYPE_EXEC,
		Sandbox:     sandbox,
		Command:     quote(spec.GetArgv()),
		OptionsJson: options(spec),
		Input:       shorten(string(spec.GetStdin())),
		Timing:      response.GetTiming(),
	}
	if result := response.GetResult(); result != nil {
		action.ExitCode = new(result.GetExitCode())
		action.Output = shorten(joined(result))
		if result.GetTimedOut() {
			action.Error = "timed out"
		}
	}
	a.add(action, err)
}

func (a *Access) recordFile(action toolv1.SandboxActionType, sandbox, file string, err error) {
	a.add(&toolv1.SandboxAction{Action: action, Sandbox: sandbox, File: file}, err)
}

// options returns the set options of a command, as JSON.
func options(spec *sandboxv1.ExecSpec) string {
	set := struct {
		Cwd            string            `json:"cwd,omitempty"`
		Env            map[string]string `json:"env,omitempty"`
		User           string            `json:"user,omitempty"`
		TimeoutSeconds float64           `json:"timeout,omitempty"`
	}{Cwd: spec.GetCwd(), Env: spec.GetEnv(), User: spec.GetUser(), TimeoutSeconds: spec.GetTimeout().AsDuration().Seconds()}
	text, err := json.Marshal(set)
	if err != nil || string(text) == "{}" {
		return ""
	}
	return string(text)
}

func joined(result *sandboxv1.ExecResult) string {
	if len(result.GetStderr()) == 0 {
		return string(result.GetStdout())
	}
	return string(result.GetStderr()) + "\n" + string(result.GetStdout())
}

// shorten keeps the first lines of a text, as valid UTF-8.
func shorten(text string) string {
	lines := strings.SplitAfterN(text, "\n", shownLines+1)
	if len(lines) > shownLines {
		text = strings.Join(lines[:shownLines], "") + "…"
	}
	return strings.ToValidUTF8(headtail.Cut(text, shownBytes), "\uFFFD")
}

// quote writes a command in shell syntax.
func quote(argv []string) string {
	quoted := make([]string, len(argv))
	for i, word := range argv {
		quoted[i] = word
		if word == "" || strings.ContainsFunc(word, special) {
			quoted[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}

// special reports whether a character may have a meaning in shell syntax.
func special(r rune) bool {
	switch {
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
		return false
	default:
		return !strings.ContainsRune("%+,-./:=@_", r)
	}
}
