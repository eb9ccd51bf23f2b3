package outcome_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/goldentest/corpus"
	"github.com/evalfleet/evalfleet/pkg/goldentest/known"
	"github.com/evalfleet/evalfleet/pkg/goldentest/outcome"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

func TestRecordsOfSeveralProcessesAreRead(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "made", "when", "needed")
	first, second := outcome.NewFolder(path), outcome.NewFolder(path)
	_, err := outcome.Read(path)
	require.ErrorContains(t, err, "holds no reports")

	var group sync.WaitGroup
	for range 20 {
		group.Go(func() { assert.NoError(t, first.Add(outcome.Record{File: "f", ID: "a", Result: outcome.Passed})) })
		group.Go(func() {
			assert.NoError(t, second.Add(outcome.Record{Theme: "x", File: "f", ID: "b", Result: outcome.Known, Kind: known.Design, Reason: "so", Detail: "a\nb"}))
		})
	}
	waittest.Return(t, group.Wait, "every record to be added")

	records, err := outcome.Read(path)
	require.NoError(t, err)
	require.Len(t, records, 40)
	assert.Contains(t, records, outcome.Record{Theme: "x", File: "f", ID: "b", Result: outcome.Known, Kind: known.Design, Reason: "so", Detail: "a\nb"})
}

func TestNoFolderDropsRecords(t *testing.T) {
	t.Parallel()
	var none *outcome.Folder
	require.NoError(t, none.Add(outcome.Record{}))
}

func TestDetailsAreBounded(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	require.NoError(t, outcome.NewFolder(path).Add(outcome.Record{Detail: strings.Repeat("x", 1<<20)}))
	records, err := outcome.Read(path)
	require.NoError(t, err)
	require.Len(t, records, 1)
	assert.Less(t, len(records[0].Detail), 5<<10)
}

func TestReportsThatCannotBeReadOrWritten(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	file := filepath.Join(path, "x.jsonl")
	require.NoError(t, os.WriteFile(file, []byte("{"), 0o600))
	_, err := outcome.Read(path)
	require.ErrorContains(t, err, file)
	require.Error(t, outcome.NewFolder(file).Add(outcome.Record{}), "a file is no folder")
}

func TestTable(t *testing.T) {
	t.Parallel()
	var cases []corpus.Case
	for theme, ids := range map[string]string{"tools/bash": "a b c d e f", "tools/memory": "x y", "core/limits": "a", "core/paths": "a b"} {
		for _, id := range strings.Fields(ids) {
			cases = append(cases, corpus.Case{File: theme + ".json", Theme: theme, ID: id})
		}
	}
	record := func(id string, result outcome.Result, kind known.Kind) outcome.Record {
		return outcome.Record{Theme: "another name", File: "tools/bash.json", ID: id, Result: result, Kind: kind, Detail: "first line\nsecond line"}
	}
	differences := t.TempDir()
	entries := "- {theme: core/paths, id: a, kind: design, reason: so, run: false}\n- {theme: tools/memory, kind: design, reason: so}\n"
	require.NoError(t, os.WriteFile(filepath.Join(differences, "core.yaml"), []byte(entries), 0o600))
	list, err := known.Load(differences)
	require.NoError(t, err)
	table := outcome.NewTable(cases, []outcome.Record{
		record("a", outcome.Passed, ""),
		record("b", outcome.Known, known.Later),
		record("c", outcome.Known, known.Design),
		record("d", outcome.Failed, ""),
		record("e", outcome.NoDriver, ""),
		record("e", outcome.Passed, ""),
		record("f", outcome.Failed, ""),
		record("f", outcome.Passed, ""),
		record("gone", outcome.Passed, ""),
		{Theme: "core/limits", File: "core/limits.json", ID: "a", Result: outcome.Passed},
		{Theme: "core/gone", File: "core/gone.json", ID: "z", Result: outcome.Failed, Detail: "why"},
	}, list)
	var text strings.Builder
	require.NoError(t, table.Write(&text))
	assert.Equal(t, strings.TrimPrefix(`
  passed  later  by design  failed  no driver  total  theme
       ·      ·          ·       1          ·      1  core/gone
       1      ·          ·       ·          ·      1  core/limits
       ·      ·          1       ·          1      2  core/paths
       2      1          1       2          ·      6  tools/bash
       ·      ·          ·       ·          2      2  tools/memory

       1      ·          1       1          1      4  core
       2      1          1       2          2      8  tools
       3      1          2       3          3     12  all

failed:
  core/gone: z
      why
  tools/bash: d
      first line
  tools/bash: f
      first line
`, "\n"), text.String())
	assert.Len(t, table.Failed(), 3)
}
