package eval_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// logLine is a line of the server's log.
type logLine struct {
	Level, Msg, Eval, Task, State, Sample, Reason string
	Samples, Succeeded, Failed, Scores            int
}

// logged runs an evaluation to its end and returns the log at level info.
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

// Who runs the server sees why evaluations are refused, without what their specification holds.
func TestTheLogSaysWhyAnEvaluationWasRefused(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	bench := start(t, nil)
	bench.logger = slog.New(slog.NewJSONHandler(&b, nil))
	bench.engine = bench.newEngine()
	create := func(task string, validateOnly bool, refusal error) map[string]any {
		bench.runs.unfit = refusal
		asked := spec(2)
		asked.Task = task
		_, err := bench.engine.Create(t.Context(), "p", asked, "", validateOnly)
		require.ErrorIs(t, err, refusal)
		text := b.String()
		b.Reset()
		var line map[string]any
		if text != "" {
			require.NoError(t, json.Unmarshal([]byte(text), &line), text)
			delete(line, "time")
		}
		return line
	}
	keyless := rpcerr.Wrap(rpcerr.ProviderNotConfigured("openai", "default", "the account default of openai cannot be used: set OPENAI_API_KEY"), "spec.model")
	assert.Equal(t, map[string]any{
		"level": "WARN", "msg": "an evaluation is refused", "project": "p", "task": "t", "reason": "PROVIDER_NOT_CONFIGURED", "provider": "openai", "account": "default",
	}, create("t", false, keyless))
	assert.Equal(t, map[string]any{
		"level": "INFO", "msg": "an evaluation is refused", "project": "p", "task": "t", "reason": "INVALID_REQUEST", "field": "spec.steps[0]",
	}, create("t", false, rpcerr.InvalidField("spec.steps[0]", "quotes a question")))
	priceless := create("t", false, rpcerr.PriceUnknown("a/b", "", "limits.cost"))
	assert.Equal(t, []any{"PRICE_UNKNOWN", "WARN"}, []any{priceless["reason"], priceless["level"]})
	incapable := create("t", false, rpcerr.CapabilityUnsupported("tools", "the model takes no tools"))
	assert.Equal(t, []any{"CAPABILITY_UNSUPPORTED", "INFO"}, []any{incapable["reason"], incapable["level"]}, "the caller's own choice")
	assert.Less(t, len(fmt.Sprint(create(strings.Repeat("t", 1<<16), false, rpcerr.InvalidField(strings.Repeat("f", 1<<16), "no")))), 2000, "no line is long")
	assert.Empty(t, create("t", true, keyless), "a check alone refuses nothing")
	assert.Empty(t, create("t", false, errors.New("a fault of our own is logged with its call")))
}
