package corpus_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/goldentest/corpus"
)

// folder writes files below a new folder.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		file := filepath.Join(root, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o750))
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
	}
	return root
}

type identity struct{ file, theme, id string }

func identities(cases []corpus.Case) []identity {
	var found []identity
	for _, c := range cases {
		found = append(found, identity{c.File, c.Theme, c.ID})
	}
	return found
}

var threeForms = map[string]string{
	"README.md":                       "# no case",
	"tools/bash.json":                 `{"theme":"bash","about":"x","cases":[{"id":"bash-1","tool":"bash"},{"id":"bash-2"}]}`,
	"tools/more.json":                 `{"theme":"bash","cases":[{"id":"bash-3"}]}`,
	"tools/untitled.json":             `{"cases":[{"id":"u"}]}`,
	"tools/none.json":                 `{"theme":"none","cases":[]}`,
	"core/limits.jsonl":               "{\"id\":\"a\",\"op\":\"limit\",\"input\":1,\"expect\":1e400}\n\n{\"id\":\"b\",\"op\":\"limit\"}\n",
	"providers/request/openai/x.json": `{"name":"named","kind":"request"}`,
	"providers/request/openai/y.json": `{"kind":"request"}`,
	"eval/logs/log.json":              `{"version":2}`,
	"eval/logs/log.json.summary.json": `{"file":"log.json"}`,
	"eval/logs/log.eval":              "zip",
	"eval/logs/log.eval.summary.json": `{"file":"log.eval"}`,
}

func TestTheThreeFormsOfFiles(t *testing.T) {
	t.Parallel()
	root := folder(t, threeForms)
	cases, err := corpus.All(root)
	require.NoError(t, err)
	assert.ElementsMatch(t, []identity{
		{"core/limits.jsonl", "core/limits", "a"},
		{"core/limits.jsonl", "core/limits", "b"},
		{"eval/logs/log.eval.summary.json", "eval/logs", "log.eval"},
		{"eval/logs/log.json.summary.json", "eval/logs", "log.json"},
		{"providers/request/openai/x.json", "providers/request/openai", "named"},
		{"providers/request/openai/y.json", "providers/request/openai", "y"},
		{"tools/bash.json", "tools/bash", "bash-1"},
		{"tools/bash.json", "tools/bash", "bash-2"},
		{"tools/more.json", "tools/bash", "bash-3"},
		{"tools/untitled.json", "tools/untitled", "u"},
	}, identities(cases))
}

func TestLoadByPattern(t *testing.T) {
	t.Parallel()
	root := folder(t, threeForms)

	cases, err := corpus.Load(root, "tools/bash.json", "providers/request/openai/*.json")
	require.NoError(t, err)
	assert.Equal(t, []identity{
		{"tools/bash.json", "tools/bash", "bash-1"},
		{"tools/bash.json", "tools/bash", "bash-2"},
		{"providers/request/openai/x.json", "providers/request/openai", "named"},
		{"providers/request/openai/y.json", "providers/request/openai", "y"},
	}, identities(cases))

	cases, err = corpus.Load(root, "tools/absent*.json", "core/*.jsonl")
	require.ErrorIs(t, err, corpus.ErrNoFile)
	require.ErrorContains(t, err, "tools/absent*.json")
	assert.Len(t, cases, 2, "the cases of the other patterns")

	_, err = corpus.Load(root, "eval/logs/log.json")
	require.ErrorIs(t, err, corpus.ErrNoFile, "a log is data")

	_, err = corpus.Load(root, "[")
	require.Error(t, err)
}

func TestFaultyFilesAreNamed(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, content, want string }{
		{"a.json", `{`, "a.json"},
		{"a.json", `[]`, "a.json"},
		{"a.json", `{"cases":[{}]}`, "case 1 has no id"},
		{"a.json", `{"cases":[{"id":"x"},1]}`, "case 2"},
		{"a.json", `{"cases":[{"id":"x"},{"id":"x"}]}`, `two cases with the id "x"`},
		{"a.jsonl", `{"id":"x"} {`, "case 2"},
		{"a.jsonl", `{"op":"x"}`, "case 1 has no id"},
		{"a.jsonl", `1`, "case 1"},
	} {
		root := folder(t, map[string]string{test.name: test.content, "b.json": `{"name":"good"}`})
		_, err := corpus.Load(root, test.name)
		require.ErrorContains(t, err, test.want, test.content)
		cases, err := corpus.All(root)
		require.ErrorContains(t, err, test.want, test.content)
		assert.Equal(t, []identity{{"b.json", ".", "good"}}, identities(cases), "the others are read")
	}
	_, err := corpus.All(filepath.Join(t.TempDir(), "absent"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestReadingACase(t *testing.T) {
	t.Parallel()
	root := folder(t, map[string]string{"core/x.jsonl": `{"id":"a","op":"o","input":{"n":100000000000000000000,"deep":{"er":true}}}`})
	cases, err := corpus.Load(root, "core/x.jsonl")
	require.NoError(t, err)
	require.Len(t, cases, 1)
	c := cases[0]
	assert.Equal(t, "o", c.Op())
	assert.Equal(t, json.Number("100000000000000000000"), c.At("input", "n"))
	assert.Equal(t, true, c.At("input", "deep", "er"))
	assert.Nil(t, c.At("input", "n", "deeper"))
	assert.Nil(t, c.At("absent", "n"))
	assert.Equal(t, filepath.Join(root, "core", "beside.txt"), c.Path("beside.txt"))
	var typed struct{ ID string }
	require.NoError(t, c.Decode(&typed))
	assert.Equal(t, "a", typed.ID)
	var wrong struct{ ID int }
	require.ErrorContains(t, c.Decode(&wrong), "core/x.jsonl, case a")
}

func decode(t *testing.T, text string) any {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var value any
	require.NoError(t, decoder.Decode(&value))
	return value
}

func TestExpandWritesOutAbbreviations(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, value, want string }{
		{"plain", `{"a":[1,null,"x"]}`, `{"a":[1,null,"x"]}`},
		{"long", `[{"$long":{"bytes":7,"runs":[["ab",2],["\n",1],["",5],["日",1]]}}]`, `["abab\n日"]`},
		{"nested arrays", `{"$nested_arrays_under":"x","depth":3}`, `{"x":[[[]]]}`},
		{"one array", `{"$nested_arrays_under":"x","depth":1}`, `{"x":[]}`},
		{"number", `{"value":{"$number":"1e400"}}`, `{"value":1e400}`},
	} {
		expanded, err := corpus.Expand(decode(t, test.value))
		require.NoError(t, err, test.name)
		assert.Equal(t, decode(t, test.want), expanded, test.name)
	}
	for _, faulty := range []string{
		`[{"a":{"$long":{"head":"x","tail":"y"}}}]`,
		`{"$long":{"runs":[["a"]]}}`,
		`{"$long":{"runs":[[1,"a"]]}}`,
		`{"$long":{"runs":[["a",-1]]}}`,
		`{"$long":{"runs":[["a",99999999999]]}}`,
		`{"$nested_arrays_under":"x","depth":"3"}`,
	} {
		_, err := corpus.Expand(decode(t, faulty))
		require.Error(t, err, faulty)
	}
}

func TestSubstituteGoesBothWays(t *testing.T) {
	t.Parallel()
	recorded := decode(t, `{"<workdir>/f.txt":["see <workdir>",1,true,null]}`)
	given := corpus.Substitute(recorded, "<workdir>", "/box")
	assert.Equal(t, decode(t, `{"/box/f.txt":["see /box",1,true,null]}`), given)
	assert.Equal(t, recorded, corpus.Substitute(given, "/box", "<workdir>"))
	assert.Equal(t, decode(t, `{"<workdir>/f.txt":["see <workdir>",1,true,null]}`), recorded, "the value itself stays")
}

// The copy in testdata is complete: its README counts the cases of each folder.
func TestTheRepositorysCasesAreAllRead(t *testing.T) {
	t.Parallel()
	cases, err := corpus.All("../../../testdata/golden")
	require.NoError(t, err)
	counts := map[string]int{}
	for _, c := range cases {
		if c.Theme != "eval/logs" {
			counts[strings.Split(c.File, "/")[0]]++
		}
	}
	assert.Equal(t, map[string]int{
		"providers": 2150, "core": 863, "tools": 614, "agents": 288, "eval": 786, "bridge": 429,
	}, counts)
}
