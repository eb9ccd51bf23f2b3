package goldentest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/evalfleet/evalfleet/pkg/goldentest/known"
	"github.com/evalfleet/evalfleet/pkg/goldentest/outcome"
)

// inFixture reports whether this process is the one that TestRunReportsEveryOutcome started.
const inFixture = "GOLDENTEST_FIXTURE"

func TestMain(m *testing.M) {
	if os.Getenv(inFixture) != "" {
		os.Exit(m.Run()) // it leaves goroutines behind on purpose
	}
	goleak.VerifyTestMain(m)
}

// runFixture runs TestFixture in a process of its own, since its cases fail on purpose, and returns what it printed.
func runFixture(t *testing.T, environment ...string) (output string, err error) {
	t.Helper()
	process := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFixture$", "-test.v")
	process.Env = append(os.Environ(), inFixture+"=1", "EVALFLEET_GOLDEN_REPORT=")
	process.Env = append(process.Env, environment...)
	text, err := process.CombinedOutput()
	return string(text), err
}

func TestRunReportsEveryOutcome(t *testing.T) {
	t.Parallel()
	reports := t.TempDir()
	output, err := runFixture(t, "EVALFLEET_GOLDEN=pkg/goldentest/testdata/cases",
		"EVALFLEET_GOLDEN_KNOWN=pkg/goldentest/testdata/known", "EVALFLEET_GOLDEN_REPORT="+reports)
	require.Error(t, err, "cases fail, so the test does\n%s", output)

	records, err := outcome.Read(reports)
	require.NoError(t, err)
	type verdict struct {
		result outcome.Result
		kind   known.Kind
		reason string
	}
	got, details := map[string]verdict{}, map[string]string{}
	for _, record := range records {
		got[record.Theme+" "+record.ID] = verdict{record.Result, record.Kind, record.Reason}
		details[record.ID] = record.Detail
	}
	const odd, six = "odd results are not built", "six is four here"
	assert.Equal(t, map[string]verdict{
		"core/demo passes":                   {result: outcome.Passed},
		"core/demo fails":                    {result: outcome.Failed},
		"core/demo within-tolerance":         {result: outcome.Passed},
		"core/demo beyond-tolerance":         {result: outcome.Failed},
		"core/demo of-no-driver":             {result: outcome.NoDriver, reason: `no driver for "triple"`},
		"core/demo panics":                   {result: outcome.Failed},
		"core/demo hangs":                    {result: outcome.Failed},
		"core/demo hangs-past-its-context":   {result: outcome.Failed},
		"core/demo blocks-a-bubble":          {result: outcome.Failed},
		"core/demo leaves-a-goroutine":       {result: outcome.Failed},
		"core/demo known-by-rule":            {outcome.Known, known.Later, odd},
		"core/demo known-by-rule-but-passes": {result: outcome.Passed},
		"core/demo known-by-id":              {outcome.Known, known.Design, six},
		"core/demo known-by-id-but-passes":   {outcome.Failed, known.Design, six},
		"core/demo known-and-hangs":          {outcome.Known, known.Later, odd},
		"core/demo not-to-be-run":            {outcome.Known, known.Design, "it would do harm"},
		"tools/other one":                    {result: outcome.Passed},
	}, got)
	assert.Contains(t, details["fails"], "$\n    want 5\n    got  4")
	assert.Contains(t, details["panics"], "panic: on purpose")
	assert.Contains(t, details["hangs"], "did not end within")
	assert.Contains(t, details["hangs-past-its-context"], "left behind")
	assert.Contains(t, details["blocks-a-bubble"], "deadlock")
	assert.Contains(t, details["leaves-a-goroutine"], "deadlock")
	assert.NotContains(t, details["leaves-a-goroutine"], "not reached")
	assert.Contains(t, details["known-by-id-but-passes"], "demo.yaml, entry 2")
	assert.Contains(t, details["known-by-id"], "want 6", "a known difference is executed")

	for _, line := range []string{
		"--- PASS: TestFixture/demo/known-by-rule ", "known difference (later): " + odd,
		"--- PASS: TestFixture/demo/of-no-driver", "no driver: no driver for",
		"--- FAIL: TestFixture/demo/known-by-id-but-passes", "passes unexpectedly",
		"--- PASS: TestFixture/other/one",
	} {
		assert.Contains(t, output, line)
	}
}

func TestAFolderGivenByTheUserNeedNotHoldEveryTheme(t *testing.T) {
	t.Parallel()
	output, err := runFixture(t, "EVALFLEET_GOLDEN="+t.TempDir(), "EVALFLEET_GOLDEN_KNOWN=pkg/goldentest/testdata/known")
	require.NoError(t, err, output)
	assert.Contains(t, output, "no such file of cases")
	assert.Contains(t, output, "holds none of this theme")
}

func TestFoldersThatAreNotThere(t *testing.T) {
	t.Parallel()
	absent := filepath.Join(t.TempDir(), "absent")
	output, err := runFixture(t, "EVALFLEET_GOLDEN="+absent)
	require.Error(t, err)
	assert.Contains(t, output, absent)

	output, err = runFixture(t, "EVALFLEET_GOLDEN=pkg/goldentest/testdata/cases", "EVALFLEET_GOLDEN_KNOWN="+absent)
	require.Error(t, err)
	assert.Contains(t, output, absent)

	output, err = runFixture(t, "EVALFLEET_GOLDEN=", "EVALFLEET_GOLDEN_KNOWN=")
	require.Error(t, err, "the repository's own cases have no theme demo")
	assert.Contains(t, output, `"core/demo.jsonl" in `)
}

// The repository's cases are found without any setting.
func TestRootIsTheRepositorysFolder(t *testing.T) {
	t.Setenv("EVALFLEET_GOLDEN", "")
	assert.FileExists(t, filepath.Join(Root(t), "README.md"))
	assert.NotEmpty(t, Load(t, "tools/bash.json"))
}
