package goldentest_test

import (
	"testing"

	"github.com/evalfleet/evalfleet/pkg/goldentest"
	"github.com/evalfleet/evalfleet/pkg/goldentest/corpus"
	"github.com/evalfleet/evalfleet/pkg/goldentest/match"
)

// A driver of cases of a tool that runs in a sandbox. In a service it is a test of the package, TestGoldenTools.
func Example() {
	_ = func(t *testing.T) {
		cases := goldentest.Load(t, "tools/bash.json", "tools/text_editor.json")
		goldentest.Run(t, "tools", cases, func(t *goldentest.T, c goldentest.Case) {
			// What the case asks: its own form, with abbreviations written out and the sandbox's directory filled in.
			sandbox := newSandbox(t)
			var recorded struct {
				Tool  string `json:"tool"`
				Calls []struct {
					Arguments map[string]any `json:"arguments"`
				} `json:"calls"`
			}
			if err := c.Decode(&recorded); err != nil {
				t.Fatal(err)
			}
			var results []any
			for _, call := range recorded.Calls {
				arguments, err := corpus.Expand(call.Arguments)
				if err != nil {
					t.Fatal(err)
				}
				results = append(results, sandbox.call(recorded.Tool, corpus.Substitute(arguments, "<workdir>", sandbox.directory)))
			}
			// What came of it, in the recorded form.
			got := corpus.Substitute(results, sandbox.directory, "<workdir>")
			t.Equal(c.At("results"), got, match.EmptyAsAbsent("tool_calls"))
		}, goldentest.Parallel())
	}
	// Output:
}

type sandbox struct{ directory string }

func newSandbox(t *goldentest.T) *sandbox { return &sandbox{directory: t.TempDir()} }

func (s *sandbox) call(tool string, arguments any) map[string]any {
	return map[string]any{"content": tool}
}
