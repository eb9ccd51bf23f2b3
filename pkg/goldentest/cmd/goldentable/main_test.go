package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func write(t *testing.T, folder, name, content string) {
	t.Helper()
	file := filepath.Join(folder, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o750))
	require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
}

func TestTableAndExitCode(t *testing.T) {
	t.Parallel()
	cases := t.TempDir()
	write(t, cases, "core/limits.jsonl", `{"id":"a"}`+"\n"+`{"id":"b"}`)
	write(t, cases, "bridge/replay.jsonl", `{"id":"a"}`)
	passed, failed := t.TempDir(), t.TempDir()
	write(t, passed, "1.jsonl", `{"theme":"core/limits","file":"core/limits.jsonl","id":"a","outcome":"passed"}`)
	write(t, failed, "1.jsonl", `{"theme":"core/limits","file":"core/limits.jsonl","id":"b","outcome":"failed","detail":"so"}`)
	faulty := t.TempDir()
	write(t, faulty, "core/limits.jsonl", `{"id":"a"}`)
	write(t, faulty, "core/faulty.json", `{`)

	differences := t.TempDir()
	write(t, differences, "core.yaml", "- {theme: [core/limits, bridge/replay], kind: later, issue: i, reason: not built, fails: 1, passes: 1}\n")
	differs := t.TempDir()
	write(t, differs, "1.jsonl", `{"theme":"core/limits","file":"core/limits.jsonl","id":"a","outcome":"passed"}`+"\n"+
		`{"theme":"core/limits","file":"core/limits.jsonl","id":"b","outcome":"known difference"}`)
	both := t.TempDir()
	write(t, both, "1.jsonl", `{"theme":"core/limits","file":"core/limits.jsonl","id":"a","outcome":"passed"}`+"\n"+
		`{"theme":"core/limits","file":"core/limits.jsonl","id":"b","outcome":"passed"}`)

	for _, test := range []struct {
		name   string
		args   []string
		code   int
		stdout []string
		stderr string
	}{
		{name: "all passed or without a driver", args: []string{"-cases", cases, passed}, code: 0, stdout: []string{"core/limits", "bridge/replay", "no driver"}},
		{name: "one failed", args: []string{"-cases", cases, failed}, code: 1, stdout: []string{"core/limits: b", "so"}},
		{name: "a file that holds no cases", args: []string{"-cases", faulty, passed}, code: 0, stdout: []string{"not read as cases", "core/faulty.json"}},
		{name: "a known difference that explains a case", args: []string{"-cases", cases, "-known", differences, differs}, code: 0},
		{
			name: "one fails less, as nothing executes it", args: []string{"-cases", cases, "-known", differences, passed}, code: 1,
			stdout: []string{"core.yaml, entry 1: 0 cases fail and 1 pass, where it says 1 and 1 (not built)"},
		},
		{
			name: "a known difference that explains nothing", args: []string{"-cases", cases, "-known", differences, both}, code: 1,
			stdout: []string{
				"core.yaml, entry 1: 0 cases fail and 2 pass, where it says 1 and 1 (not built)",
				"core.yaml, entry 1: theme core/limits: all 2 cases pass (not built)",
			},
		},
		{name: "no known differences", args: []string{"-cases", cases, "-known", filepath.Join(differences, "none"), both}, code: 2, stderr: "known differences"},
		{name: "no reports", args: []string{"-cases", cases, t.TempDir()}, code: 2, stderr: "holds no reports"},
		{name: "no cases", args: []string{"-cases", t.TempDir(), passed}, code: 2, stderr: "no cases in"},
		{name: "no argument", code: 2, stderr: "usage"},
		{name: "unknown flag", args: []string{"-x"}, code: 2, stderr: "usage"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr strings.Builder
			assert.Equal(t, test.code, run(test.args, &stdout, &stderr), stderr.String())
			for _, want := range test.stdout {
				assert.Contains(t, stdout.String(), want)
			}
			assert.Contains(t, stderr.String(), test.stderr)
		})
	}
}
