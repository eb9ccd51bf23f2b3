package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// complete is a table with every id, where rows replaces the lines of the ids it names.
func complete(rows map[string]string) string {
	var b strings.Builder
	b.WriteString("# Head\n\n| id | symbol | status | RPC | test | note |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, m := range modules {
		for n := range m.last {
			id := fmt.Sprintf("%s%03d", m.letter, n+1)
			line, ok := rows[id]
			if !ok {
				line = "| " + id + " | `x` | planned | – | – | modelgw |"
			}
			if line != "" {
				b.WriteString(line + "\n")
			}
		}
	}
	return b.String()
}

func TestVerify(t *testing.T) {
	t.Parallel()
	rpcs := map[string]bool{"ModelService.Generate": true, "ModelService.StreamGenerate": true}
	tests := []struct {
		name string
		rows map[string]string
		want []string // each a part of the error; none: the table is right
	}{
		{name: "all planned"},
		{
			name: "done and deviating rows that are complete",
			rows: map[string]string{
				"M001": "| M001 | `x` | done | `ModelService.Generate`, ModelService.StreamGenerate | `pkg/limit.TestGate/first_come`, pkg/limit.TestGate | |",
				"T254": "| T254 | `x` | deviation | – | – | secrets stay in configuration |",
			},
		},
		{
			name: "ids missing",
			rows: map[string]string{"A265": "", "M001": ""},
			want: []string{"row M001 is missing", "row A265 is missing"},
		},
		{
			name: "an id twice",
			rows: map[string]string{"M002": "| M001 | `x` | planned | – | – | |"},
			want: []string{"M001 `x`: stands on line 5 already", "row M002 is missing"},
		},
		{
			name: "an id beyond the last",
			rows: map[string]string{"T254": "| T254 | `x` | planned | – | – | |\n| T255 | `x` | planned | – | – | |"},
			want: []string{"T255 is not an id in use"},
		},
		{
			name: "done without RPC and test",
			rows: map[string]string{"M001": "| M001 | `x` | done | – | – | |"},
			want: []string{"is done but names no RPC", "is done but names no test"},
		},
		{
			name: "an RPC that is not declared",
			rows: map[string]string{"M001": "| M001 | `x` | done | ModelService.Guess | pkg/limit.TestGate | |"},
			want: []string{"names ModelService.Guess, which no proto file declares"},
		},
		{
			name: "a deviation without a reason",
			rows: map[string]string{"M001": "| M001 | `x` | deviation | – | – | – |"},
			want: []string{"is a deviation but gives no reason"},
		},
		{
			name: "a status that is none",
			rows: map[string]string{"M001": "| M001 | `x` | later | – | – | |"},
			want: []string{`has status "later"`},
		},
		{
			name: "a test without its package",
			rows: map[string]string{"M001": "| M001 | `x` | done | ModelService.Generate | TestGate | |"},
			want: []string{`test "TestGate" is not of the form`},
		},
		{
			name: "a cell too few",
			rows: map[string]string{"M001": "| M001 | `x` | planned | – | – |"},
			want: []string{"M001 has 5 cells"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			rows, parseErr := parse(complete(tt.rows))
			verifyErr := verify(rows, rpcs)
			if len(tt.want) == 0 {
				require.NoError(t, parseErr)
				require.NoError(t, verifyErr)
				return
			}
			got := fmt.Sprint(parseErr, verifyErr)
			for _, want := range tt.want {
				assert.Contains(t, got, want)
			}
		})
	}
}

func TestDeclaredRPCs(t *testing.T) {
	t.Parallel()
	rpcs, err := declaredRPCs(fstest.MapFS{
		"model/v1/model_service.proto": {Data: []byte("// rpc Not(a)\nservice ModelService {\n  // Says rpc.\n  rpc Generate(A) returns (B);\n}\n\nservice CacheService {\n  rpc ClearCache (A) returns (B);\n}\n")},
		"model/v1/message.proto":       {Data: []byte("message A {}\n")},
		"README.md":                    {Data: []byte("service X {\n  rpc Y(\n")},
	})
	require.NoError(t, err)
	assert.Equal(t, map[string]bool{"ModelService.Generate": true, "CacheService.ClearCache": true}, rpcs)
}

func TestJudge(t *testing.T) {
	t.Parallel()
	results := map[string]string{"TestA": "pass", "TestA/sub": "pass", "TestB": "skip", "TestC": "fail"}
	require.NoError(t, judge([]testRef{{"pkg/x", "TestA"}, {"pkg/x", "TestA/sub"}}, results))

	err := judge([]testRef{{"pkg/x", "TestA/other"}, {"pkg/x", "TestB"}, {"pkg/x", "TestC"}}, results)
	require.ErrorContains(t, err, "pkg/x.TestA/other did not run")
	require.ErrorContains(t, err, "pkg/x.TestB was skipped")
	require.ErrorContains(t, err, "pkg/x.TestC failed")
}

func TestJudgeResults(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "results.json")
	const line = `{"Action":"pass","Package":"github.com/evalfleet/evalfleet/pkg/x","Test":"TestA/sub"}` + "\n"
	require.NoError(t, os.WriteFile(file, []byte(line), 0o600))
	rows := []row{
		{status: done, tests: []testRef{{"pkg/x", "TestA/sub"}}},
		{status: planned, tests: []testRef{{"pkg/x", "TestLater"}}},
	}
	require.NoError(t, judgeResults(file, rows))

	rows = append(rows, row{status: done, tests: []testRef{{"pkg/y", "TestA/sub"}}})
	require.ErrorContains(t, judgeResults(file, rows), "pkg/y.TestA/sub did not run")
}
