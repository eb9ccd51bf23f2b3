package e2e_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/config"
)

// inspectAI is the interpreter with inspect_ai, and an environment in which it finds the package in clients/inspect by
// its entry point.
func inspectAI(t *testing.T) (program string, env []string) {
	t.Helper()
	root, err := filepath.Abs(repository)
	require.NoError(t, err)
	program = filepath.Join(root, ".tools/venv-inspect/bin/python")
	if !exists(program) {
		t.Skip("inspect_ai is not there; make setup fetches it")
	}
	// What an installation would write beside the package.
	installed := t.TempDir()
	info := filepath.Join(installed, "evalfleet_inspect-0.1.0.dist-info")
	require.NoError(t, os.Mkdir(info, 0o700))
	project, err := os.ReadFile(filepath.Join(root, "clients/inspect/pyproject.toml"))
	require.NoError(t, err)
	entry := regexp.MustCompile(`(?m)^\[project\.entry-points\.inspect_ai\]\nevalfleet = "(.+)"$`).FindSubmatch(project)
	require.NotNil(t, entry)
	for name, text := range map[string]string{
		"METADATA": "Metadata-Version: 2.1\nName: evalfleet-inspect\nVersion: 0.1.0\n", "entry_points.txt": "[inspect_ai]\nevalfleet = " + string(entry[1]) + "\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(info, name), []byte(text), 0o600))
	}
	path := filepath.Join(root, "clients/python/src") + ":" + filepath.Join(root, "clients/inspect/src") + ":" + installed
	env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "PYTHONPATH=" + path, "PYTHONDONTWRITEBYTECODE=1"}
	if data, ok := config.Env("EVALFLEET_DATA"); ok {
		env = append(env, "EVALFLEET_DATA="+data)
	}
	return program, env
}

// The tests of the package for inspect_ai pass with the shipped program.
func TestThePackageForInspect(t *testing.T) {
	t.Parallel()
	assert.Greater(t, testsForInspect(t, nil), 150)
}

// In containers inspect_ai's own checks of sandboxes pass, all of them, and an agent with tools has the same results
// and events as in Inspect's sandbox.
func TestThePackageForInspectOnDocker(t *testing.T) {
	t.Parallel()
	env := docker.env(t)
	const image = "evalfleet/sandbox:inspect"
	docker.build(t, image, filepath.Join(repository, "clients/inspect/tests/image"))
	env = append(env, "EVALFLEET_TEST_DRIVERS=docker", "EVALFLEET_TEST_IMAGE="+image)
	assert.Greater(t, testsForInspect(t, env, "-k", "docker and (self_check or agentic)"), 44)
}

// testsForInspect runs tests of the package and returns how many passed. None may be skipped.
func testsForInspect(t *testing.T, env []string, args ...string) int {
	t.Helper()
	program, found := inspectAI(t)
	evalfleet := shipped.program(t)
	slots <- struct{}{}
	defer func() { <-slots }()
	// Inspect's own half of the comparison is the longer one: minutes on a busy machine.
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	pytest := exec.CommandContext(ctx, program, append([]string{"-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb", "short"}, args...)...)
	pytest.Dir = filepath.Join(repository, "clients/inspect")
	pytest.Env = slices.Concat(found, env, []string{"EVALFLEET_PROGRAM=" + evalfleet})
	pytest.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	out, err := pytest.CombinedOutput()
	require.NoError(t, err, string(out))
	t.Logf("processor time: %v", pytest.ProcessState.UserTime()+pytest.ProcessState.SystemTime())
	passed := regexp.MustCompile(`\n(\d+) passed(, \d+ (deselected|warnings?))* in `).FindSubmatch(out)
	require.NotNil(t, passed, string(out))
	count, err := strconv.Atoi(string(passed[1]))
	require.NoError(t, err)
	return count
}

// evalfleet inspect run starts a server, runs inspect with the models and sandboxes of evalfleet, says what it did, and
// exits as inspect does.
func TestInspectRun(t *testing.T) {
	t.Parallel()
	program, env := inspectAI(t)
	h := newHome(t, &shipped, single, env[2:]...)
	task := h.write("sees.py", `
from inspect_ai import Task, task
from inspect_ai.agent import react
from inspect_ai.dataset import Sample
from inspect_ai.scorer import match
from inspect_ai.tool import bash

@task
def sees():
    return Task(dataset=[Sample(id="a", input="go", target="yes")], solver=react(tools=[bash()]), scorer=match())
`)
	script := h.write("script.yaml", `
entries:
- outputs:
  - tool_calls: [{function: bash, arguments: {command: "id -un"}}]
  - tool_calls: [{function: submit, arguments: {answer: "yes"}}]
`)
	logs := filepath.Join(t.TempDir(), "logs")
	run := func(model string) (string, error) {
		c := h.command("inspect", "run", "--python", program, "sees.py", "--model", model, "-M", "script="+script, "--display", "plain", "--log-dir", logs)
		c.Dir = filepath.Dir(task) // Inspect takes relative paths of tasks.
		c.Env = append(c.Env, "EVALFLEET_DATA_DIR="+h.dir)
		out, err := c.CombinedOutput()
		return string(out), err
	}
	out, err := run("mockllm/model")
	require.NoError(t, err, out)
	assert.Contains(t, out, "running: inspect eval sees.py --model evalfleet/mockllm/model")
	assert.Contains(t, out, "--sandbox evalfleet")
	assert.Contains(t, out, "stopped the server")
	written, err := os.ReadDir(logs)
	require.NoError(t, err)
	assert.Len(t, written, 1)

	out, err = run("nobody/model")
	require.Error(t, err)
	assert.Contains(t, out, "MODEL_NOT_FOUND")
}
