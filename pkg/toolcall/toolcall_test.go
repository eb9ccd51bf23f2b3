package toolcall_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/toolcall"
)

func TestNeighboursThatMayRunSideBySideAreOneStage(t *testing.T) {
	t.Parallel()
	for calls, want := range map[string][]string{
		"":       nil,
		"p":      {"p"},
		"ppp":    {"ppp"},
		"-":      {"-"},
		"--":     {"-", "-"},
		"pp-p":   {"pp", "-", "p"},
		"-pp--p": {"-", "pp", "-", "-", "p"},
	} {
		var got []string
		for begin := 0; begin < len(calls); {
			end := toolcall.StageEnd(begin, len(calls), func(i int) bool { return calls[i] == 'p' })
			got = append(got, calls[begin:end])
			begin = end
		}
		assert.Equal(t, want, got, calls)
	}
}

func TestAFunctionThatFailsFastRunsAloneAndStopsAfterAFailure(t *testing.T) {
	t.Parallel()
	f := toolcall.FailFastOf(&modelv1.ChatMessage{MetadataJson: `{"tool_calls_fail_fast": ["fail"], "other": 1}`})
	assert.False(t, f.Parallel("fail", true))
	assert.True(t, f.Parallel("other", true))
	assert.False(t, f.Parallel("other", false))
	failed := func(string) bool { return true }
	assert.True(t, f.Skips("fail", failed))
	assert.False(t, f.Skips("other", failed))
	assert.False(t, f.Skips("fail", func(string) bool { return false }))
	for _, other := range []string{"", "no JSON", `[]`, `{"tool_calls_fail_fast": "fail"}`, `{"tool_calls_fail_fast": [1]}`} {
		assert.Empty(t, toolcall.FailFastOf(&modelv1.ChatMessage{MetadataJson: other}), other)
	}
}

func TestADeclaredKeyMayEndInAWildcard(t *testing.T) {
	t.Parallel()
	declared := []string{"plan", "memory/*"}
	for key, covered := range map[string]bool{"plan": true, "plans": false, "memory/": true, "memory/a/b": true, "memory": false, "": false} {
		assert.Equal(t, covered, toolcall.Covers(declared, key), key)
	}
	assert.True(t, toolcall.Covers([]string{"*"}, "any"))
	assert.True(t, toolcall.Covers([]string{"a*b"}, "a*b"), "a star within a key is an ordinary character")
	assert.False(t, toolcall.Covers([]string{"a*b"}, "axb"))
}
