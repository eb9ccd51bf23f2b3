package main

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/scripts/internal/testevent"
)

// summarize folds a recorded stream and returns what was printed.
func summarize(t *testing.T, stream string) string {
	t.Helper()
	var out strings.Builder
	sum := newSummary(&out)
	for e, err := range testevent.Read(strings.NewReader(stream)) {
		require.NoError(t, err)
		sum.add(e, "")
	}
	sum.close()
	return out.String()
}

func TestSummary(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		stream string
		want   string
	}{
		{
			name: "subtests count, their parent does not",
			stream: `
				{"Action":"run","Package":"p","Test":"TestA"}
				{"Action":"output","Package":"p","Test":"TestA/x","Output":"hidden\n"}
				{"Action":"pass","Package":"p","Test":"TestA/x"}
				{"Action":"pass","Package":"p","Test":"TestA/y"}
				{"Action":"pass","Package":"p","Test":"TestA"}
				{"Action":"pass","Package":"p","Elapsed":1.5}`,
			want: "ok   p: 2 passed, 0 failed, 0 skipped (1.5s)\n2 passed, 0 failed, 0 skipped\n",
		},
		{
			name: "a failed test shows what it printed",
			stream: `
				{"Action":"output","Package":"p","Test":"TestA","Output":"got 1, want 2\n"}
				{"Action":"fail","Package":"p","Test":"TestA"}
				{"Action":"fail","Package":"p","Elapsed":0}`,
			want: "got 1, want 2\nFAIL p: 0 passed, 1 failed, 0 skipped (0.0s)\n0 passed, 1 failed, 0 skipped\n",
		},
		{
			name: "a test without an end has failed",
			stream: `
				{"Action":"output","Package":"p","Test":"TestA","Output":"panic\n"}
				{"Action":"fail","Package":"p","Elapsed":0}`,
			want: "panic\nFAIL p: 0 passed, 1 failed, 0 skipped (0.0s)\n0 passed, 1 failed, 0 skipped\n",
		},
		{
			name: "what a dying program prints under the name of a test that has passed",
			stream: `
				{"Action":"output","Package":"p","Test":"TestA","Output":"hidden\n"}
				{"Action":"output","Package":"p","Test":"TestA","Output":"--- PASS: TestA (0.00s)\n"}
				{"Action":"output","Package":"p","Test":"TestA","Output":"panic: in a goroutine\n"}
				{"Action":"pass","Package":"p","Test":"TestA"}
				{"Action":"fail","Package":"p","Elapsed":0}`,
			want: "panic: in a goroutine\nFAIL p: 1 passed, 1 failed, 0 skipped (0.0s)\n1 passed, 1 failed, 0 skipped\n",
		},
		{
			name: "a stream that ends in the middle",
			stream: `
				{"Action":"output","Package":"p","Output":"from the program\n"}
				{"Action":"output","Package":"p","Test":"TestA","Output":"hidden\n"}
				{"Action":"pass","Package":"p","Test":"TestA"}
				{"Action":"output","Package":"p","Test":"TestB","Output":"so far\n"}`,
			want: "so far\nfrom the program\nFAIL p: 1 passed, 1 failed, 0 skipped (unfinished)\n1 passed, 1 failed, 0 skipped\n",
		},
		{
			name: "a package that fails outside its tests is a failure",
			stream: `
				{"Action":"pass","Package":"p","Test":"TestA"}
				{"Action":"output","Package":"p","Output":"leaked goroutine\n"}
				{"Action":"fail","Package":"p","Elapsed":0}`,
			want: "leaked goroutine\nFAIL p: 1 passed, 1 failed, 0 skipped (0.0s)\n1 passed, 1 failed, 0 skipped\n",
		},
		{
			name: "a build that fails is a failure and shows the compiler's words",
			stream: `
				{"Action":"build-output","ImportPath":"p [p.test]","Output":"# p\n"}
				{"Action":"build-output","ImportPath":"p [p.test]","Output":"x.go:1: no\n"}
				{"Action":"build-fail","ImportPath":"p [p.test]"}
				{"Action":"fail","Package":"p","Elapsed":0,"FailedBuild":"p [p.test]"}`,
			want: "# p\nx.go:1: no\nFAIL p: 0 passed, 1 failed, 0 skipped (0.0s)\n0 passed, 1 failed, 0 skipped\n",
		},
		{
			name: "a skipped test is listed with its reason",
			stream: `
				{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
				{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:7: EVALFLEET_DATA is not set: no data\n"}
				{"Action":"output","Package":"p","Test":"TestA","Output":"--- SKIP: TestA (0.00s)\n"}
				{"Action":"skip","Package":"p","Test":"TestA"}
				{"Action":"pass","Package":"p","Elapsed":0}`,
			want: "ok   p: 0 passed, 0 failed, 1 skipped (0.0s)\nSKIP p.TestA: EVALFLEET_DATA is not set: no data\n0 passed, 0 failed, 1 skipped\n",
		},
		{
			name: "a package without tests says nothing",
			stream: `
				{"Action":"output","Package":"p","Output":"?   p [no test files]\n"}
				{"Action":"skip","Package":"p","Elapsed":0}`,
			want: "0 passed, 0 failed, 0 skipped\n",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := summarize(t, strings.ReplaceAll(strings.TrimSpace(tt.stream), "\t", ""))
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestResultsAreKeptOfRunsWithoutALabel(t *testing.T) {
	t.Parallel()
	sum := newSummary(io.Discard)
	for _, action := range []string{"run", "output", "pass"} {
		sum.add(testevent.Event{Action: action, Package: "p", Test: "TestA/x"}, "")
	}
	sum.add(testevent.Event{Action: "fail", Package: "p", Test: "TestB"}, " (race)")
	sum.add(testevent.Event{Action: "pass", Package: "p"}, "")
	var kept []testevent.Event
	for e, err := range testevent.Read(&sum.ended) {
		require.NoError(t, err)
		kept = append(kept, e)
	}
	assert.Equal(t, []testevent.Event{{Action: "pass", Package: "p", Test: "TestA/x"}}, kept)
}

func TestReadNamesTheLineThatIsNoEvent(t *testing.T) {
	t.Parallel()
	var failure error
	for _, err := range testevent.Read(strings.NewReader("{\"Action\":\"start\"}\ngarbage\n")) {
		failure = err
	}
	require.ErrorContains(t, failure, "garbage")
}
