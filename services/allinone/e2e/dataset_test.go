package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/datatest"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
)

// HumanEval, with the built program and sandboxes on this machine: a model with the canonical solution of every
// even-numbered problem, and a broken one for the others, has half of them right: 82 of 164.
func TestHumanEval(t *testing.T) {
	inEachForm(t, func(t *testing.T, f form) { humanEval(t, f) })
}

// Sandboxes that are containers have the same results.
func TestHumanEvalOnDocker(t *testing.T) {
	t.Parallel()
	humanEval(t, single, docker.env(t)...)
}

func humanEval(t *testing.T, f form, env ...string) {
	t.Helper()
	file := datatest.Find(t, datatest.HumanEval)
	var script bytes.Buffer
	for i, row := range rowsOf(t, file) {
		answer := []string{
			row["canonical_solution"].(string),
			"    raise NotImplementedError('not today')\n",
			"```python\n" + row["prompt"].(string) + row["canonical_solution"].(string) + "```\nThat should do.",
			"    return (\n",
		}[i%4]
		fmt.Fprintln(&script, text(t, object{"sample": row["task_id"], "output": answer}))
	}
	samples := evaluated(t, f, "humaneval", file, script.String(), env...)
	right := 0
	for i, s := range samples {
		assert.Equal(t, fmt.Sprintf("HumanEval/%d", i), s.GetId())
		want := "I"
		if i%2 == 0 {
			want = "C"
		}
		got := s.GetScores()[0].GetScore()
		assert.Equal(t, want, got.GetValue().GetText(), "%s: %s", s.GetId(), got.GetExplanation())
		if got.GetValue().GetText() == "C" {
			right++
		}
	}
	assert.Equal(t, file.Rows/2, right)
	if file.Published {
		assert.Equal(t, 82, right)
	}
}

// GSM8K: a model that is right about every even-numbered row, with thousands separators, and wrong about the others has
// half of them right: 100 of 200.
func TestGSM8K(t *testing.T) {
	file := datatest.Find(t, datatest.GSM8K)
	var script bytes.Buffer
	for i, row := range rowsOf(t, file) {
		_, answer, found := strings.Cut(row["answer"].(string), "#### ")
		require.True(t, found)
		number, err := strconv.Atoi(strings.ReplaceAll(answer, ",", ""))
		require.NoError(t, err)
		if i%2 == 1 {
			number = 2*number + 1
		}
		fmt.Fprintln(&script, text(t, object{"sample": i + 1, "output": fmt.Sprintf("Of 3 steps this is the last.\n\nANSWER: **%s**.", separated(number))}))
	}
	inEachForm(t, func(t *testing.T, f form) {
		samples := evaluated(t, f, "gsm8k", file, script.String())
		right := 0
		for _, s := range samples {
			if s.GetScores()[0].GetScore().GetValue().GetText() == "C" {
				right++
			}
		}
		assert.Equal(t, file.Rows/2, right)
		if file.Published {
			assert.Equal(t, 100, right)
		}
	})
}

// separated writes a number with thousands separators.
func separated(n int) string {
	digits := strconv.Itoa(n)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// rowsOf reads a file of JSON lines, perhaps gzipped.
func rowsOf(t *testing.T, file datatest.File) []object {
	t.Helper()
	var rows []object
	lines := json.NewDecoder(bytes.NewReader(datatest.Read(t, file.Path)))
	for lines.More() {
		var row object
		require.NoError(t, lines.Decode(&row))
		rows = append(rows, row)
	}
	require.Len(t, rows, file.Rows)
	return rows
}

// evaluated runs an example's task file over a data set, with scripted answers, and returns the samples, half of which
// are right. The single binary is started by the command itself.
func evaluated(t *testing.T, f form, example string, file datatest.File, script string, env ...string) []*agentv1.EvalSample {
	t.Helper()
	h := newHome(t, &shipped, f, env...)
	if f != single {
		h.serve()
	}
	end := h.run("eval", "run", "--json", filepath.Join("examples", example, "task.yaml"),
		"--set", "dataset.file="+file.Path, "-m", "mockllm/model", "-M", "script="+h.write("answers.jsonl", script))
	require.Zero(t, end.code, end.err)
	eval := evalOf(t, end)
	require.Equal(t, agentv1.EvalState_EVAL_STATE_SUCCEEDED, eval.GetState())
	require.Len(t, eval.GetResults().GetScores(), 1)
	assert.InDelta(t, 0.5, metric(t, eval, eval.GetSpec().GetScorers()[0].GetName(), "accuracy"), 1e-12)
	samples := h.serve().samples(t, eval.GetName())
	require.Len(t, samples, file.Rows)
	return samples
}
