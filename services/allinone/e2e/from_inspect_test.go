package e2e_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// docs/from-inspect.md shows how to use Inspect's own texts; with them the model receives the same texts as with
// Inspect.
func TestTextsOfInspectCanBeUsed(t *testing.T) {
	t.Parallel()
	python, err := filepath.Abs(filepath.Join(repository, ".tools/venv-inspect/bin/python"))
	require.NoError(t, err)
	if !exists(python) {
		t.Skip("inspect_ai is not there; make setup fetches it")
	}
	page, err := os.ReadFile(filepath.Join(repository, "docs/from-inspect.md"))
	require.NoError(t, err)
	shown := regexp.MustCompile("(?s)```python\n(.*?)```").FindSubmatch(page)
	require.NotNil(t, shown)
	out, err := exec.CommandContext(within(t), python, "-c", string(shown[1])+`
from inspect_ai.agent._react import _prompt_to_system_message
from inspect_ai.solver._multiple_choice import prompt
from inspect_ai.solver import Choices
print(json.dumps({
    "react": _prompt_to_system_message(texts.AgentPrompt(), [], "submit").content,
    "multiple_choice": prompt("Which?", Choices(["one", "two"]), MultipleChoiceTemplate.SINGLE_ANSWER.value),
}))`).Output()
	require.NoError(t, err, "%s", out)
	printed, expected, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	var solvers map[string]json.RawMessage
	var messages map[string]string
	require.NoError(t, json.Unmarshal([]byte(printed), &solvers))
	require.NoError(t, json.Unmarshal([]byte(expected), &messages))

	h := newHome(t, &shipped, single)
	for solver, params := range solvers {
		task := h.write(solver+".yaml", `
dataset: [{input: "Which?", choices: [one, two], target: A}]
scorer: match
model: {name: mockllm/model, args: {outputs: [{output: "ANSWER: A"}]}}
limits: {turns: 1}
solver: {`+solver+": "+string(params)+"}\n")
		end := h.run("eval", "run", "--no-log", task)
		require.Zero(t, end.code, end.err)
		id := regexp.MustCompile(`evals/(\S+)`).FindStringSubmatch(end.out)[1]
		log := h.run("logs", "export", id, "--format", "json", "-o", "-")
		require.Zero(t, log.code, log.err)
		assert.Equal(t, messages[solver], at(parsed(t, log.out), "samples", 0, "messages", 0, "content"), solver)
	}
}
