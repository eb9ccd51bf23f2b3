package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/enum"
)

// The demonstration has the scores that its answers were written for, and prints a table, the path of the log, and the
// next commands to try.
func TestDemo(t *testing.T) {
	t.Parallel()
	demo(t, newHome(t, &shipped, single))
}

// It does so in containers too.
func TestDemoOnDocker(t *testing.T) {
	t.Parallel()
	demo(t, newHome(t, &shipped, single, docker.env(t)...), "--driver", "docker")
}

func demo(t *testing.T, h *home, flags ...string) {
	t.Helper()
	known, err := os.ReadFile(filepath.Join(repository, "examples/demo/expected.json"))
	require.NoError(t, err)
	var expected map[string]struct{ Score, Limit string }
	require.NoError(t, json.Unmarshal(known, &expected))
	end := h.run(append([]string{"eval", "run", "examples/demo/task.yaml"}, flags...)...)
	require.Zero(t, end.code, end.err)
	name := regexp.MustCompile(`^projects/default/evals/\S+`).FindString(end.out)
	right := 0
	samples := h.serve().samples(t, name)
	require.Len(t, samples, len(expected))
	for _, s := range samples {
		want := expected[s.GetId()]
		require.Nil(t, s.GetError(), s.GetId())
		got := s.GetScores()[0].GetScore()
		assert.Equal(t, want.Score, got.GetValue().GetText(), "%s: %s", s.GetId(), got.GetExplanation())
		assert.Equal(t, want.Limit, enum.Word(s.GetLimit().GetType()), s.GetId())
		if want.Score == "C" {
			right++
		}
	}
	assert.Regexp(t, fmt.Sprintf(`(?m)^SCORER +SAMPLES +ACCURACY +STDERR\n^exec +%d +%.3f +0\.\d{3}$`, len(expected), float64(right)/float64(len(expected))), end.out)
	assert.Contains(t, end.out, "evalfleet logs "+filepath.Base(name)+" --data-dir "+h.dir+"\n")
	assert.Regexp(t, `evalfleet eval run examples/demo/task\.yaml (--driver docker )?-m openai/gpt-4o --limit 5 --data-dir `+regexp.QuoteMeta(h.dir)+"\n", end.out, "the options stay")
	assert.Regexp(t, `(?m)^24/24 done · 1 at a limit · `, end.err, "in a pipe, progress is plain lines")
}

// One file is enough to run: the program of `make build`, alone in a folder, has the guest program within it.
func TestOneFileIsEnough(t *testing.T) {
	t.Parallel()
	built := t.TempDir()
	build := exec.CommandContext(t.Context(), "make", "build", "BIN="+built)
	build.Dir = repository
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	alone := filepath.Join(t.TempDir(), "evalfleet")
	require.NoError(t, os.Rename(filepath.Join(built, "evalfleet"), alone))
	require.NoError(t, os.RemoveAll(built))
	program, err := os.ReadFile(alone)
	require.NoError(t, err)
	linked := bytes.Contains(program, []byte("text/template.(*state).evalField"))
	assert.False(t, linked, "where a template may call any method, the linker keeps all of them; see scripts/build.sh")

	run := newHome(t, &shipped, single).command("eval", "run", "examples/demo/task.yaml", "--sample-id", "roman-numerals")
	run.Path = alone
	out, err = run.CombinedOutput()
	require.NoError(t, err, string(out))
	assert.Regexp(t, `(?m)^exec +1 +1\.000`, string(out))
}
