package e2e_test

import (
	"encoding/xml"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// python is the interpreter with all that the package in clients/python needs, and the environment in which it imports
// the package from the checkout.
func python(t *testing.T) (program string, env []string) {
	t.Helper()
	root, err := filepath.Abs(repository)
	require.NoError(t, err)
	program = filepath.Join(root, ".tools/venv-python/bin/python")
	if !exists(program) {
		t.Skip("the packages for clients/python are not there; make setup fetches them")
	}
	return program, []string{"PATH=" + os.Getenv("PATH"), "PYTHONPATH=" + filepath.Join(root, "clients/python/src"), "PYTHONDONTWRITEBYTECODE=1"}
}

// report is the report of pytest, in the format of JUnit.
type report struct {
	Cases []struct {
		File   string  `xml:"classname,attr"`
		Name   string  `xml:"name,attr"`
		Failed *reason `xml:"failure"`
		Broken *reason `xml:"error"`
		Left   *reason `xml:"skipped"`
		Said   string  `xml:"system-err"`
	} `xml:"testsuite>testcase"`
}

type reason struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// The tests of the package for Python pass with the shipped program. Each of them is a test here.
func TestThePackageForPython(t *testing.T) {
	t.Parallel()
	program, env := python(t)
	evalfleet := shipped.program(t)
	slots <- struct{}{}
	defer func() { <-slots }()
	results := filepath.Join(t.TempDir(), "report.xml")
	pytest := exec.CommandContext(t.Context(), program, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb", "short", "-o", "junit_family=xunit1", "--junitxml", results)
	pytest.Dir = filepath.Join(repository, "clients/python")
	pytest.Env = append(env, "EVALFLEET_PROGRAM="+evalfleet, "HOME="+t.TempDir())
	pytest.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	out, runErr := pytest.CombinedOutput()
	text, err := os.ReadFile(results)
	require.NoError(t, err, string(out))
	var all report
	require.NoError(t, xml.Unmarshal(text, &all))
	failed := false
	for _, c := range all.Cases {
		t.Run(c.File+"."+c.Name, func(t *testing.T) {
			for _, bad := range []*reason{c.Failed, c.Broken} {
				if bad != nil {
					failed = true
					t.Errorf("%s\n%s\n%s", bad.Message, bad.Text, c.Said)
				}
			}
			if c.Left != nil {
				t.Skip(c.Left.Message)
			}
		})
	}
	assert.Greater(t, len(all.Cases), 80, string(out))
	if !failed {
		require.NoError(t, runErr, string(out))
	}
}

// The example of a client in Python finds the server by its data directory, and runs an evaluation to its end.
func TestTheClientInPython(t *testing.T) {
	t.Parallel()
	program, env := python(t)
	h := newHome(t, &shipped, single)
	h.serve()
	client := exec.CommandContext(t.Context(), program, filepath.Join(repository, "examples/client-python/client.py"), "mockllm/model")
	client.Env = append(env, "EVALFLEET_DATA_DIR="+h.dir)
	out, err := client.CombinedOutput()
	require.NoError(t, err, string(out))
	assert.Regexp(t, `(?s)^projects/default/evals/\S+\n(.*\n)?2 of 2 samples done\nsucceeded\nincludes accuracy 0\.000\n`, string(out))
}
