package eval_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
)

// logLine is a line of the server's log.
type logLine struct {
	Level, Msg, Eval, Task, State, Sample, Reason string
	Samples, Succeeded, Failed, Scores            int
}

// logged runs an evaluation to its end and returns what the log says at level info.
func logged(t *testing.T, spec *agentv1.EvalSpec, verdict func(sample string, epoch, attempt int) *agentv1.Run) (lines []logLine, text string) {
	t.Helper()
	var b bytes.Buffer
	bench := start(t, verdict)
	bench.logger = slog.New(slog.NewJSONHandler(&b, nil))
	bench.engine = bench.newEngine()
	made, err := bench.engine.Create(t.Context(), "default", spec, "", false)
	require.NoError(t, err)
	bench.ended(t, made.Eval.GetName())
	bench.engine.Close() // The last line follows the last event.
	text = b.String()
	for d := json.NewDecoder(&b); d.More(); {
		var line logLine
		require.NoError(t, d.Decode(&line))
		assert.Equal(t, made.Eval.GetName(), line.Eval)
		line.Eval = ""
		lines = append(lines, line)
	}
	return lines, text
}

func TestTheLogOfASuccessIsItsBeginAndEnd(t *testing.T) {
	t.Parallel()
	lines, text := logged(t, spec(300), func(string, int, int) *agentv1.Run { return scored("C") })
	assert.Equal(t, []logLine{
		{Level: "INFO", Msg: "an evaluation begins", Task: "t", Samples: 300},
		{Level: "INFO", Msg: "an evaluation has ended", State: "succeeded", Samples: 300, Succeeded: 300, Scores: 1},
	}, lines)
	assert.NotContains(t, text, "Q\"", "nothing of a conversation")
}

func TestTheLogOfFailuresNamesSomeAndCountsAll(t *testing.T) {
	t.Parallel()
	many := spec(50)
	many.ContinueOnFail = true
	lines, text := logged(t, many, func(string, int, int) *agentv1.Run { return failed() })
	require.Len(t, lines, 1+20+1+1)
	assert.Equal(t, logLine{Level: "WARN", Msg: "a sample failed", Sample: "1", Reason: failed().GetError().GetReason()}, lines[1])
	assert.Equal(t, "more samples fail; they are not logged one by one", lines[21].Msg)
	end := lines[22]
	assert.Equal(t, []any{"WARN", "failed", 50, 50}, []any{end.Level, end.State, end.Samples, end.Failed})
	assert.NotEmpty(t, end.Reason)
	assert.NotContains(t, text, failed().GetError().GetMessage(), "a message may quote what a model was given")
}
