package editor_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/evalfleet/evalfleet/pkg/goldentest"
	"github.com/evalfleet/evalfleet/pkg/goldentest/corpus"
	"github.com/evalfleet/evalfleet/pkg/goldentest/match"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/editor"
)

// TestRecordedCalls compares the engine with recorded calls of another one. Calls that the tool's schema refuses never
// reach the engine and are left to the tool.
func TestRecordedCalls(t *testing.T) {
	t.Parallel()
	for _, c := range goldentest.Load(t, "tools/text_editor.json") {
		if strings.Contains(string(c.Raw), "prose:invalid-arguments") {
			continue
		}
		t.Run(c.ID, func(t *testing.T) {
			t.Parallel()
			work, err := filepath.EvalSymlinks(t.TempDir())
			require.NoError(t, err)
			place(t, work, c)
			e := editor.Editor{History: filepath.Join(t.TempDir(), "history")}
			calls, _ := c.Fields["calls"].([]any)
			var opts []match.Option
			if c.Fields["compare"] == "lines in any order" {
				opts = append(opts, match.AnyLines())
			}
			var results []any
			for _, call := range calls {
				expanded, err := corpus.Expand(call)
				require.NoError(t, err)
				args, err := json.Marshal(corpus.Substitute(expanded.(map[string]any)["arguments"], "<workdir>", work))
				require.NoError(t, err)
				answer := e.Answer(args)
				if answer.Error != nil {
					results = append(results, map[string]any{"error": map[string]any{"type": answer.Error.Type, "message": answer.Error.Message}})
				} else {
					results = append(results, map[string]any{"content": answer.Content})
				}
			}
			assert.Empty(t, match.Equal(c.Fields["results"], corpus.Substitute(results, work, "<workdir>"), opts...))
			for name, want := range object(c.Fields["files_after"]) {
				got, err := os.ReadFile(filepath.Join(work, name))
				if want == nil {
					assert.ErrorIs(t, err, os.ErrNotExist)
					continue
				}
				require.NoError(t, err)
				assert.Equal(t, want, string(got), name)
			}
		})
	}
}

// place creates the initial files of a case.
func place(t *testing.T, work string, c goldentest.Case) {
	t.Helper()
	for name, content := range object(c.Fields["initial_files"]) {
		path := filepath.Join(work, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		var data []byte
		expanded, err := corpus.Expand(content)
		require.NoError(t, err)
		switch v := expanded.(type) {
		case string:
			data = []byte(v)
		case map[string]any:
			for _, b := range v["bytes"].([]any) {
				n, err := b.(json.Number).Int64()
				require.NoError(t, err)
				data = append(data, byte(n))
			}
		}
		require.NoError(t, os.WriteFile(path, data, 0o644))
	}
	if setup, ok := c.Fields["setup"].(string); ok {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", setup)
		cmd.Dir = work
		require.NoError(t, cmd.Run())
	}
}

func object(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

func call(e editor.Editor, format string, args ...any) editor.Answer {
	return e.Answer(fmt.Appendf(nil, format, args...))
}

func newEditor(t *testing.T) (e editor.Editor, file string) {
	t.Helper()
	work, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	return editor.Editor{History: filepath.Join(t.TempDir(), "history")}, filepath.Join(work, "f.txt")
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	e, file := newEditor(t)
	require.NoError(t, os.WriteFile(file, []byte("a\nb\nc"), 0o644))
	require.NoError(t, unix.Mkfifo(file+".fifo", 0o644))
	for _, tt := range []struct {
		request, kind string
		says          []string
	}{
		{`nothing`, "parsing", nil},
		{`{"command":"fly","path":"F"}`, "parsing", []string{"fly", "undo_edit"}},
		{`{"command":"str_replace","path":"F"}`, "parsing", []string{"str_replace.old_str"}},
		{`{"command":"view","path":"F","view_range":[1]}`, "unknown", []string{"two"}},
		{`{"command":"view","path":"F","view_range":[1.5,2]}`, "unknown", []string{"two"}},
		{`{"command":"view","path":"F","view_range":"12"}`, "unknown", []string{"two"}},
		{`{"command":"view","path":"F","view_range":[0,2]}`, "unknown", []string{"[0, 2]", "[1, 3]"}},
		{`{"command":"view","path":"F","view_range":[3,2]}`, "unknown", []string{"[3, 2]"}},
		{`{"command":"view","path":"F","view_range":[2,-2]}`, "unknown", []string{"[2, -2]"}},
		{`{"command":"view","path":"F.fifo"}`, "unknown", []string{"read", "F.fifo"}},
		{`{"command":"create","path":"F/below","file_text":""}`, "unknown", []string{"write to F/below"}},
		{`{"command":"create","path":"D/no/such","file_text":""}`, "unknown", []string{"write to D/no/such"}},
		{`{"command":"undo_edit","path":"F"}`, "unknown", []string{"F", "10"}},
	} {
		paths := strings.NewReplacer("F", file, "D", filepath.Dir(file))
		answer := e.Answer([]byte(paths.Replace(tt.request)))
		require.NotNil(t, answer.Error, tt.request)
		assert.Equal(t, tt.kind, answer.Error.Type, tt.request)
		for _, s := range tt.says {
			assert.Contains(t, answer.Error.Message, paths.Replace(s), tt.request)
		}
	}
}

func TestLongFilesAreClippedAndSaySo(t *testing.T) {
	t.Parallel()
	e, file := newEditor(t)
	require.NoError(t, os.WriteFile(file, []byte(strings.Repeat("é", 16_001)), 0o644))
	answer := call(e, `{"command":"view","path":%q}`, file)
	require.Nil(t, answer.Error)
	assert.Equal(t, 16_000, strings.Count(answer.Content, "é"))
	assert.Contains(t, answer.Content, "é[clipped")
}

func TestACorruptHistoryIsNone(t *testing.T) {
	t.Parallel()
	e, file := newEditor(t)
	require.Nil(t, call(e, `{"command":"create","path":%q,"file_text":"one"}`, file).Error)
	names, err := filepath.Glob(e.History + "/*")
	require.NoError(t, err)
	require.Len(t, names, 1)
	require.NoError(t, os.WriteFile(names[0], []byte("{"), 0o600))
	assert.Equal(t, "unknown", call(e, `{"command":"undo_edit","path":%q}`, file).Error.Type)
	require.Nil(t, call(e, `{"command":"str_replace","path":%q,"old_str":"one","new_str":"two"}`, file).Error)
	require.Nil(t, call(e, `{"command":"undo_edit","path":%q}`, file).Error, "the history begins anew")
	got, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, "one", string(got))
}

func TestAFolderOfSomeoneElseIsNoHistory(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root to make a folder of someone else")
	}
	e, file := newEditor(t)
	require.NoError(t, os.Mkdir(e.History, 0o777))
	require.NoError(t, os.Chown(e.History, 12345, 12345))
	require.Nil(t, call(e, `{"command":"create","path":%q,"file_text":"one"}`, file).Error, "the edit itself is done")
	assert.NotNil(t, call(e, `{"command":"undo_edit","path":%q}`, file).Error)
}

func TestMainAnswersInJSON(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var out, errs bytes.Buffer
	assert.Zero(t, editor.Main(strings.NewReader(`{"command":"view","path":"/no/such/<file>"}`), &out, &errs))
	var answer editor.Answer
	require.NoError(t, json.Unmarshal(out.Bytes(), &answer))
	assert.Equal(t, "unknown", answer.Error.Type)
	assert.Contains(t, out.String(), "<file>")
	assert.Empty(t, errs.String())
}
