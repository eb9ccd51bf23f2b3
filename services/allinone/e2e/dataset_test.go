package e2e_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
)

// HumanEval, through the built program and sandboxes on this machine: a model that gives the canonical solution of every even-numbered problem, and something broken for the others, gets 82 of 164.
func TestHumanEval(t *testing.T) {
	inEachForm(t, func(t *testing.T, f form) { humanEval(t, f) })
}

// The same comes of sandboxes that are containers.
func TestHumanEvalOnDocker(t *testing.T) {
	t.Parallel()
	humanEval(t, single, docker.env(t)...)
}

func humanEval(t *testing.T, f form, env ...string) {
	t.Helper()
	file := data(t, "HumanEval.jsonl.gz")
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
	samples := evaluated(t, f, "humaneval", file, script.String(), 82./164, env...)
	require.Len(t, samples, 164)
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
	assert.Equal(t, 82, right)
}

// GSM8K: a model that is right about every even-numbered row, thousands separated, and wrong about the others gets 100 of 200.
func TestGSM8K(t *testing.T) {
	file := data(t, "gsm8k_test_200.jsonl")
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
		samples := evaluated(t, f, "gsm8k", file, script.String(), 100./200)
		require.Len(t, samples, 200)
		right := 0
		for _, s := range samples {
			if s.GetScores()[0].GetScore().GetValue().GetText() == "C" {
				right++
			}
		}
		assert.Equal(t, 100, right)
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

// data returns the path of a public data set, or skips the test.
func data(t *testing.T, name string) string {
	t.Helper()
	folder := os.Getenv("EVALFLEET_DATA")
	if folder == "" {
		t.Skip("SKIP: set EVALFLEET_DATA to a folder that holds " + name)
	}
	path, err := filepath.Abs(filepath.Join(folder, name))
	require.NoError(t, err)
	require.FileExists(t, path)
	return path
}

// rowsOf reads a file of JSON lines, perhaps gzipped.
func rowsOf(t *testing.T, path string) []object {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	var r io.Reader = f
	if strings.HasSuffix(path, ".gz") {
		r, err = gzip.NewReader(f)
		require.NoError(t, err)
	}
	var rows []object
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var row object
		require.NoError(t, json.Unmarshal(lines.Bytes(), &row))
		rows = append(rows, row)
	}
	require.NoError(t, lines.Err())
	return rows
}

// evaluated runs an example's task file over a data set, with scripted answers, and returns the samples. The single binary is started by the command itself.
func evaluated(t *testing.T, f form, example, file, script string, accuracy float64, env ...string) []*agentv1.EvalSample {
	t.Helper()
	h := newHome(t, &shipped, f, env...)
	if f != single {
		h.serve()
	}
	end := h.run("eval", "run", "--json", filepath.Join("examples", example, "task.yaml"),
		"--set", "dataset.file="+file, "-m", "mockllm/model", "-M", "script="+h.write("answers.jsonl", script))
	require.Zero(t, end.code, end.err)
	eval := evalOf(t, end)
	require.Equal(t, agentv1.EvalState_EVAL_STATE_SUCCEEDED, eval.GetState())
	require.Len(t, eval.GetResults().GetScores(), 1)
	assert.InDelta(t, accuracy, metric(t, eval, eval.GetSpec().GetScorers()[0].GetName(), "accuracy"), 1e-12)
	return h.serve().samples(t, eval.GetName())
}
