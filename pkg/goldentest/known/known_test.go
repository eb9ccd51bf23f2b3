package known_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/goldentest/corpus"
	"github.com/evalfleet/evalfleet/pkg/goldentest/known"
)

// load reads a list from one file with the text.
func load(t *testing.T, text string) (*known.List, error) {
	t.Helper()
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "a.yaml"), []byte(text), 0o600))
	return known.Load(folder)
}

// recorded is a case of the theme with the fields.
func recorded(t *testing.T, theme, id, fields string) corpus.Case {
	t.Helper()
	c := corpus.Case{Theme: theme, ID: id, Raw: json.RawMessage(fields)}
	decoder := json.NewDecoder(strings.NewReader(fields))
	decoder.UseNumber()
	require.NoError(t, decoder.Decode(&c.Fields))
	return c
}

func TestEntriesCoverByThemeIDAndRule(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, entry string
		theme, id   string
		fields      string
		covers      bool
	}{
		{name: "whole theme", entry: `theme: a/b`, theme: "a/b", covers: true},
		{name: "another theme", entry: `theme: a/b`, theme: "a/c"},
		{name: "pattern", entry: `theme: a/b*`, theme: "a/bc", covers: true},
		{name: "pattern does not cross folders", entry: `theme: a/*`, theme: "a/b/c"},
		{name: "everything below", entry: `theme: a/**`, theme: "a/b/c", covers: true},
		{name: "everything below another", entry: `theme: a/**`, theme: "ab/c"},
		{name: "one of several themes", entry: `theme: [x, a/b]`, theme: "a/b", covers: true},
		{name: "id", entry: `{theme: a, id: one}`, theme: "a", id: "one", covers: true},
		{name: "another id", entry: `{theme: a, id: one}`, theme: "a", id: "one-1"},
		{name: "one of several ids", entry: `{theme: a, ids: [one, two]}`, theme: "a", id: "two", covers: true},
		{name: "member is there", entry: `{theme: a, rule: has(case.agent.approval)}`, theme: "a", fields: `{"agent":{"approval":[]}}`, covers: true},
		{name: "member is not there", entry: `{theme: a, rule: has(case.agent.approval)}`, theme: "a", fields: `{"agent":{}}`},
		{name: "member's object is not there", entry: `{theme: a, rule: has(case.agent.approval)}`, theme: "a"},
		{name: "of another type", entry: `{theme: a, rule: 'case.x.contains("y")'}`, theme: "a", fields: `{"x":1}`},
		{name: "whole number", entry: `{theme: a, rule: case.n >= 10485760}`, theme: "a", fields: `{"n":10485765}`, covers: true},
		{name: "decimal number", entry: `{theme: a, rule: case.n > 2.5}`, theme: "a", fields: `{"n":2.6}`, covers: true},
		{name: "number beyond int", entry: `{theme: a, rule: case.n > 1e29}`, theme: "a", fields: `{"n":1000000000000000000000000000000}`, covers: true},
		{name: "in a list of several types", entry: `{theme: a, rule: 'case.tools.exists(t, has(t.handoff))'}`, theme: "a", fields: `{"tools":["add",{"handoff":{}}]}`, covers: true},
		{name: "text of a value", entry: `{theme: a, rule: 'text(case.x) == "{\"a\":[1,null,\"<b>\"]}"'}`, theme: "a", fields: `{"x":{"a":[1,null,"<b>"]}}`, covers: true},
		{name: "text of null and of made values", entry: `{theme: a, rule: 'text(case.x) + text([1, "b"]) + text({"c": 2}) == "null[1,\"b\"]{\"c\":2}"'}`, theme: "a", fields: `{"x":null}`, covers: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			entry := strings.TrimSuffix(test.entry, "}")
			separator, end := "\n  ", ""
			if entry != test.entry {
				separator, end = ", ", "}"
			}
			list, err := load(t, "- "+entry+separator+"kind: later"+separator+"issue: i"+separator+"reason: r"+end)
			require.NoError(t, err)
			require.Len(t, list.Entries(), 1)
			fields := test.fields
			if fields == "" {
				fields = "{}"
			}
			assert.Equal(t, test.covers, list.Entries()[0].Covers(recorded(t, test.theme, test.id, fields)))
		})
	}
}

func TestAnEntryByIDGoesBeforeOneByRule(t *testing.T) {
	t.Parallel()
	list, err := load(t, `
- {theme: a, rule: "true", kind: later, issue: i, reason: first rule}
- {theme: a, rule: "true", kind: design, reason: second rule}
- {theme: a, id: one, kind: design, reason: id, run: false}
- {theme: a, id: one, kind: design, reason: id again}
`)
	require.NoError(t, err)
	byID := list.Find(recorded(t, "a", "one", `{}`))
	require.NotNil(t, byID)
	assert.Equal(t, "id", byID.Reason)
	assert.True(t, byID.Exact())
	assert.False(t, byID.Runs())
	assert.Equal(t, "a.yaml, entry 3", byID.Source)

	byRule := list.Find(recorded(t, "a", "two", `{}`))
	require.NotNil(t, byRule)
	assert.Equal(t, "first rule", byRule.Reason)
	assert.False(t, byRule.Exact())
	assert.True(t, byRule.Runs())

	assert.Nil(t, list.Find(recorded(t, "b", "one", `{}`)))
}

func TestFaultyEntriesAreNamed(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, text, want string }{
		{"no theme", `- {kind: later, issue: i, reason: r}`, "a.yaml, entry 1: names no theme"},
		{"no kind", `- {theme: a, reason: r}`, `kind is ""`},
		{"another kind", `- {theme: a, kind: never, reason: r}`, `kind is "never"`},
		{"later without an issue", `- {theme: a, kind: later, reason: r}`, "is to name an issue"},
		{"an issue of what stays", `- {theme: a, kind: design, issue: i, reason: r}`, "is to name an issue"},
		{"no reason", `- {theme: a, kind: later, issue: i, reason: " "}`, "gives no reason"},
		{"ids and a rule", `- {theme: a, id: b, rule: "true", kind: later, issue: i, reason: r}`, "both ids and a rule"},
		{"unknown field", `- {theme: a, kind: later, issue: i, reason: r, when: x}`, "when"},
		{"rule that does not compile", `- {theme: a, rule: "case.", kind: later, issue: i, reason: r}`, "entry 1: rule:"},
		{"rule of an unknown name", `- {theme: a, rule: "cas.x", kind: later, issue: i, reason: r}`, "undeclared reference"},
		{"rule that is no condition", `- {theme: a, rule: "1 + 1", kind: later, issue: i, reason: r}`, "not true or false"},
		{"theme that is no pattern", `- {theme: "[", kind: later, issue: i, reason: r}`, "syntax error in pattern"},
		{"empty entry", `- {}`, "entry 1: names no theme"},
		{"no list", `theme: a`, "cannot unmarshal"},
		{"second entry", "- {theme: a, kind: later, issue: i, reason: r}\n- {theme: a}", "entry 2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := load(t, test.text)
			require.ErrorContains(t, err, test.want)
		})
	}
	_, err := known.Load(filepath.Join(t.TempDir(), "absent"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestAnEmptyFolderKnowsNothing(t *testing.T) {
	t.Parallel()
	list, err := load(t, "# nothing\n")
	require.NoError(t, err)
	assert.Nil(t, list.Find(recorded(t, "a", "b", `{}`)))
}

// The list of this repository says nothing about cases that are not there: a rule with a misspelt member would cover
// none, and an id may have gone.
func TestEveryEntryOfTheRepositoryCoversCases(t *testing.T) {
	t.Parallel()
	list, err := known.Load("../../../testdata/known-differences")
	require.NoError(t, err)
	cases, err := corpus.All("../../../testdata/golden")
	require.NoError(t, err)
	covered := map[*known.Entry]map[string]bool{}
	for _, entry := range list.Entries() {
		covered[entry] = map[string]bool{}
		for _, c := range cases {
			if entry.Covers(c) {
				covered[entry][c.ID] = true
			}
		}
		assert.Equal(t, entry.Unseen, len(covered[entry]) == 0, "%s covers %d cases", entry.Source, len(covered[entry]))
		for _, id := range entry.IDs {
			assert.True(t, covered[entry][id], "%s names %s, which is no case of its themes", entry.Source, id)
		}
	}
	require.NotEmpty(t, covered)
}
