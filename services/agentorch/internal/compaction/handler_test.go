package compaction

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
)

// says is a message with an id, and as many characters as size.
func says(id string, role modelv1.Role, size int) *modelv1.ChatMessage {
	m := agent.Says(role, id+strings.Repeat("x", size-len(id)))
	m.Id = id
	return m
}

// begun is the world of an agent whose model has been asked once, with these parameters.
func begun(t *testing.T, p Params, messages ...*modelv1.ChatMessage) *world {
	t.Helper()
	require.NoError(t, p.Resolve("compaction"))
	summary := &modelv1.ModelOutput{Choices: []*modelv1.Choice{{Message: chat.Assistant("what happened"), StopReason: modelv1.StopReason_STOP_REASON_STOP}}}
	w := &world{handler: &Handler{Params: p, Counter: characters{}}, summary: summary}
	for _, m := range messages {
		w.emit(agent.Add(m))
	}
	w.ask()
	w.answer(nil)
	return w
}

const (
	system    = modelv1.Role_ROLE_SYSTEM
	user      = modelv1.Role_ROLE_USER
	assistant = modelv1.Role_ROLE_ASSISTANT
)

// TestASummaryThatWasNotUsedIsForgotten has a compaction that fails, and another way out: the conversation is cut.
func TestASummaryThatWasNotUsedIsForgotten(t *testing.T) {
	t.Parallel()
	w := begun(t, Params{Strategy: Summary, Threshold: "300"}, says("u0", user, 10))
	w.emit(agent.Add(says("a1", assistant, 100)))
	w.summary.Choices[0].Message = chat.Assistant(strings.Repeat("long", 100))
	require.ErrorContains(t, w.settle(true), "choose a higher threshold, fewer tools or another strategy")
	asked := len(w.saw)

	w.emit(agent.Edit("trim", nil, []string{"a1"}))
	w.emit(agent.Add(says("u2", user, 400)))
	w.summary.Choices[0].Message = chat.Assistant("short")
	require.NoError(t, w.settle(false))
	require.Len(t, w.saw, asked+1, "the earlier summary is about other messages")
	assert.Contains(t, chat.Text(w.Input()[1]), "short")
}

func TestASummaryThatSaysNothingReplacesNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		stop modelv1.StopReason
		says string
	}{
		"empty":     {" \n", modelv1.StopReason_STOP_REASON_STOP, "empty summary"},
		"a refusal": {"I can't do that.", modelv1.StopReason_STOP_REASON_CONTENT_FILTER, "refused to summarise"},
		"too long":  {"", modelv1.StopReason_STOP_REASON_MODEL_LENGTH, "too long to be summarised"},
		"cut":       {"So far", modelv1.StopReason_STOP_REASON_MAX_TOKENS, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := begun(t, Params{Strategy: Summary, Threshold: "400"}, says("u0", user, 10), says("a1", assistant, 400))
			w.summary.Choices[0].Message, w.summary.Choices[0].StopReason = chat.Assistant(c.text), c.stop
			err := w.settle(false)
			if c.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.says)
			assert.Nil(t, w.compacted)
		})
	}
}

// TestTheSystemMessageOutlivesACut has the provider compact after messages were removed.
func TestTheSystemMessageOutlivesACut(t *testing.T) {
	t.Parallel()
	w := begun(t, Params{Strategy: Native, Threshold: "300"}, says("s", system, 10), says("u0", user, 10), says("a1", assistant, 100))
	w.native = "ok"
	w.emit(agent.Edit("trim", nil, []string{"a1"}))
	w.emit(agent.Add(says("u2", user, 400)))
	require.NoError(t, w.settle(false))
	assert.Equal(t, []any{"s", "<new:assistant>"}, w.inputIDs())
}

// TestTheWorkOfAnEarlierStepDoesNotStay begins with a conversation that another agent has left.
func TestTheWorkOfAnEarlierStepDoesNotStay(t *testing.T) {
	t.Parallel()
	for _, p := range []Params{{Strategy: Summary, Threshold: "500"}, {Strategy: Trim, Threshold: "500", Preserve: new(0.1)}} {
		w := begun(
			t, p, says("s", system, 10), says("u0", user, 10), says("a1", assistant, 300), says("u2", user, 10), says("a3", assistant, 300), says("u4", user, 10),
		)
		require.NoError(t, w.settle(false))
		assert.NotContains(t, w.inputIDs(), "a1", p.Strategy)
		assert.Equal(t, []any{"s", "u0"}, w.inputIDs()[:2], p.Strategy)
	}
}

func TestThresholds(t *testing.T) {
	t.Parallel()
	for threshold, c := range map[string]struct{ window, want int64 }{
		"0.9": {1000, 900}, "1.0": {1000, 1000}, "1": {1000, 1}, "2.5": {1000, 2}, "1e3": {1000, 1000}, "0.5": {0, 64_000},
		"1e308": {1000, maxThreshold}, "1e999": {1000, maxThreshold}, "9223372036854775807": {1000, maxThreshold}, "99999999999999999999": {1000, maxThreshold},
		"0.99": {1 << 62, maxThreshold}, "0.25": {-5, 32_000},
	} {
		h := &Handler{Params: Params{Threshold: json.Number(threshold)}, Windows: map[string]int64{"": c.window}}
		assert.Equal(t, c.want, h.threshold(), "%s of %d", threshold, c.window)
	}
}
