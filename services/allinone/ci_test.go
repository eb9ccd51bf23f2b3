package allinone_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/allinone"
)

// The script of docs/rest.md for CI works as it is written: it ends well above the bound, badly below it, and is the
// same evaluation when it runs again.
func TestTheScriptForCI(t *testing.T) {
	for _, program := range []string{"curl", "jq", "sha256sum"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed", program)
		}
	}
	text, err := os.ReadFile("../../docs/rest.md")
	require.NoError(t, err)
	helper := regexp.MustCompile(`(?m)^call\(\) .*$`).Find(text)
	require.NotEmpty(t, helper)
	_, section, _ := strings.Cut(string(text), "\n## Evaluations in CI\n")
	script := regexp.MustCompile("(?s)```sh\n(.*?)```").FindStringSubmatch(section)
	require.Len(t, script, 2)

	dir, lock := folder(t, t.TempDir())
	server, stop := start(t, configured(t, "127.0.0.1:0"), allinone.Deps{Dir: dir, Lock: lock})
	defer stop()
	checkout := t.TempDir()
	write := func(name, content string) {
		require.NoError(t, os.WriteFile(filepath.Join(checkout, name), []byte(content), 0o600))
	}
	run := func(build string) (string, error) {
		c := exec.CommandContext(waittest.Context(t), "bash", "-c", string(helper)+"\n"+script[1])
		c.Dir = checkout
		c.Env = []string{
			"PATH=" + os.Getenv("PATH"), "token=" + server.Token().Reveal(), "api=http://" + server.Address() + "/api/v1/projects/default",
			"MODEL=mockllm/model", "BUILD=" + build,
		}
		out, err := c.CombinedOutput()
		return string(out), err
	}
	const right, wrong = `{"input": "?", "target": "Default output from mockllm/model"}` + "\n", `{"input": "?", "target": "another"}` + "\n"
	write("rows.jsonl", right+right)
	write("task.yaml", "dataset: rows.jsonl\nscorer: match\n")
	made := map[string]bool{}
	for range 2 {
		out, err := run("build-1")
		require.NoError(t, err, out)
		assert.Contains(t, out, "EVAL_STATE_SUCCEEDED 2 of 2 samples")
		text, err := os.ReadFile(filepath.Join(checkout, "eval.json"))
		require.NoError(t, err)
		made[regexp.MustCompile(`"name":\s*"[^"]+"`).FindString(string(text))] = true
	}
	assert.Len(t, made, 1, "the second run took the evaluation of the first")
	assert.FileExists(t, filepath.Join(checkout, "log.eval"))

	write("rows.jsonl", right+wrong)
	out, err := run("build-2")
	require.Error(t, err, out)
	assert.Contains(t, out, "EVAL_STATE_SUCCEEDED 2 of 2 samples")

	write("task.yaml", "dataset: rows.jsonl\nscorrer: match\n")
	out, err = run("build-3")
	require.Error(t, err, out)
	assert.Contains(t, out, `task.yaml:2: a task file has no key "scorrer"`)
}
