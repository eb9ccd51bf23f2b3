package cli

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// Models get their prefix and samples a sandbox, once; all other arguments of inspect stay as they are.
func TestArgumentsOfInspect(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name        string
		run         inspectRun
		given, want []string
	}{
		{"a model", inspectRun{}, []string{"t.py", "--model", "openai/gpt-4o"}, []string{"eval", "t.py", "--model", "evalfleet/openai/gpt-4o", "--sandbox", "evalfleet"}},
		{"joined", inspectRun{}, []string{"t.py", "--model=a/b,evalfleet/c/d, none"}, []string{"eval", "t.py", "--model=evalfleet/a/b,evalfleet/c/d,none", "--sandbox", "evalfleet"}},
		{"no model", inspectRun{noSandbox: true}, []string{"t.py", "--limit", "1", "-T", "model=x/y"}, []string{"eval", "t.py", "--limit", "1", "-T", "model=x/y"}},
		{"a sandbox of the user's", inspectRun{}, []string{"t.py", "--sandbox=evalfleet:box.yaml"}, []string{"eval", "t.py", "--sandbox=evalfleet:box.yaml"}},
		{
			"roles",
			inspectRun{noSandbox: true},
			[]string{"t.py", "--model-role", "grader=openai/gpt-4o", "--model-role", `critic={model: "a/b", temperature: 0.5}`, "--model-role=jury=[a/b, {model: c/d}]"},
			[]string{
				"eval", "t.py", "--model-role", "grader=evalfleet/openai/gpt-4o", "--model-role", `critic={model: "evalfleet/a/b", temperature: 0.5}`,
				"--model-role=jury=[evalfleet/a/b, {model: evalfleet/c/d}]",
			},
		},
		{
			"models with settings",
			inspectRun{noSandbox: true},
			[]string{"t.py", "--model-spec", `{"model": "a/b", "model_args": {"model": "x"}}`, "--model-spec", "{model: [", "--model-spec="},
			[]string{"eval", "t.py", "--model-spec", `{"model": "evalfleet/a/b", "model_args": {"model": "x"}}`, "--model-spec", "{model: [", "--model-spec="},
		},
		{"a flag without its value", inspectRun{noSandbox: true}, []string{"t.py", "--model"}, []string{"eval", "t.py", "--model"}},
	} {
		assert.Equal(t, c.want, c.run.arguments(c.given), c.name)
	}
}
