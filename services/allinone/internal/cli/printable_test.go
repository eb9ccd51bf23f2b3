package cli_test

import (
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// evil moves the cursor, changes the title, and begins lines of its own.
const evil = "x\x1b[2J\x1b]0;owned\a\u009b31m\u202e\r\nEVIL succeeded"

// Names and messages from elsewhere reach the terminal on their own line, without control characters.
func TestForeignTextsDoNotActOnTheTerminal(t *testing.T) {
	t.Parallel()
	e := at(failed, 1)
	e.Spec.Task, e.Spec.TaskFile, e.StateReason = evil, evil, evil
	e.Spec.Models = []*agentv1.ModelRef{{Model: "a/" + evil}}
	e.Error = &agentv1.RunError{Reason: evil, Message: evil}
	e.Progress.Failed = 1
	e.Progress.Waits = []*agentv1.EvalWait{{Samples: 1, Message: evil}}
	e.Results = &agentv1.EvalResults{Scores: []*agentv1.ScoreResult{{Name: evil, Metrics: []*agentv1.MetricResult{{Key: evil, Value: new(1.0)}}}}}
	e.Usage = map[string]*modelv1.ModelUsage{"a/" + evil: {TotalTokens: 1}, "b": {TotalTokens: 1}}
	for name, args := range map[string][]string{
		"list":     {"eval", "list"},
		"show":     {"eval", "show", "e1"},
		"run":      {"eval", "run", task(t, 1)},
		"an error": {"eval", "run", task(t, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &server{eval: e}
			s.watch = func(_ int, _ *agentv1.WatchEvalRequest, stream agentv1.EvalService_WatchEvalServer) error {
				return stream.Send(&agentv1.WatchEvalResponse{Update: &agentv1.WatchEvalResponse_Progress{Progress: e}})
			}
			if name == "an error" {
				s.refusal = rpcerr.InvalidField("spec", "%s", evil)
			}
			c := begin(t, append(serve(t, s), args...)...)
			c.end(t)
			said := c.stdout.String() + c.stderr.String()
			require.Contains(t, said, "EVIL succeeded", "the command says what it was given")
			for line := range strings.Lines(said) {
				assert.False(t, strings.HasPrefix(line, "EVIL"), "a line of its own in:\n%s", said)
				for _, r := range strings.TrimSuffix(line, "\n") {
					require.False(t, unicode.IsControl(r) || r == '\u202e', "%q", line)
				}
			}
		})
	}
}

// JSON is for programs and has the unchanged values.
func TestJSONHasForeignTextsAsTheyAre(t *testing.T) {
	t.Parallel()
	e := at(succeeded, 4)
	e.Spec.Task = evil
	c := begin(t, append(serve(t, &server{eval: e}), "--json", "eval", "show", "e1")...)
	require.Equal(t, 0, c.end(t), c.stderr.String())
	assert.Contains(t, c.stdout.String(), `\u001b[2J`)
}
