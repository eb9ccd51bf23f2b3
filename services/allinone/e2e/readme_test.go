package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The README's tour works as it is typed, in the checkout, after the evaluation that `make demo` runs, of which the
// first samples are enough. Of the commands that need a key, or something that is running, the test asks only that they
// and their flags exist.
func TestTheTourOfTheReadme(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(repository, "README.md"))
	require.NoError(t, err)
	_, tour, ok := strings.Cut(string(text), "\n## A tour\n")
	require.True(t, ok)
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(tour, 2)
	require.Len(t, blocks, 2)
	typed, withKey := blocks[0][1], blocks[1][1]

	h := newHome(t, &shipped, single)
	checkout, home := t.TempDir(), filepath.Dir(h.dir)
	link(t, filepath.Dir(shipped.program(t)), filepath.Join(checkout, "bin"))
	link(t, filepath.Join(repository, "examples"), filepath.Join(checkout, "examples"))
	shell := func(script string) string {
		c := exec.CommandContext(within(t), "bash", "-eu", "-c", script)
		c.Dir = checkout
		c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "EVALFLEET_LISTEN=127.0.0.1:0"}
		out, err := c.CombinedOutput()
		require.NoError(t, err, "%s\n%s", script, out)
		return string(out)
	}

	makefile, err := os.ReadFile(filepath.Join(repository, "Makefile"))
	require.NoError(t, err)
	demo := "bin/evalfleet eval run examples/demo/task.yaml"
	require.Contains(t, string(makefile), demo)
	shell(demo + " --limit 5")
	out := shell(typed)
	for _, shown := range []string{
		`demo +mockllm/demo +succeeded +5/5`, `roman-numerals +1 +succeeded +C`, `the check program exited with 0`, `3/3 done`,
	} {
		assert.Regexp(t, shown, out)
	}
	logs, err := filepath.Glob(filepath.Join(checkout, "logs", "*_demo_*.eval"))
	require.NoError(t, err)
	assert.NotEmpty(t, logs)

	for line := range strings.Lines(withKey) {
		command, _, _ := strings.Cut(line, " #")
		command, _, _ = strings.Cut(command, " -- ")
		command = "bin/" + strings.TrimSpace(command)
		assert.Contains(t, shell(command+" --help"), "Usage:", command)
	}
}

func link(t *testing.T, to, name string) {
	t.Helper()
	path, err := filepath.Abs(to)
	require.NoError(t, err)
	require.NoError(t, os.Symlink(path, name))
}
