package history_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/chat/chattest"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/goldentest"
	"github.com/evalfleet/evalfleet/pkg/goldentest/match"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/history"
)

func messages(t *goldentest.T, recorded any) []*modelv1.ChatMessage {
	document, err := json.Marshal(recorded)
	require.NoError(t, err)
	parsed, err := chattest.Messages(document)
	require.NoError(t, err)
	return parsed
}

// form writes messages as they are recorded. Changed messages get the fresh ids that a conversation would give them.
func form(t *goldentest.T, messages []*modelv1.ChatMessage) any {
	for i, m := range messages {
		if m.GetId() == "" {
			m.Id = fmt.Sprint("fresh", i)
		}
	}
	var got []any
	require.NoError(t, json.Unmarshal(chat.MessagesJSON(messages), &got))
	return got
}

func ids(messages []*modelv1.ChatMessage) (all []string) {
	for _, m := range messages {
		all = append(all, m.GetId())
	}
	return all
}

func number(t *goldentest.T, value any) float64 {
	n, ok := value.(json.Number)
	require.True(t, ok)
	f, err := n.Float64()
	require.NoError(t, err)
	return f
}

func TestGoldenTrimCore(t *testing.T) {
	goldentest.Run(t, "trim-messages", goldentest.Load(t, "core/trim-messages.jsonl"), func(t *goldentest.T, c goldentest.Case) {
		before := messages(t, c.At("input", "messages"))
		got, err := history.Trim(before, number(t, c.At("input", "preserve")))
		if c.At("expect", "error") != nil {
			require.Error(t, err)
			return
		}
		require.NoError(t, err)
		t.Equal(c.At("expect", "messages"), form(t, got), match.KnownIDs(ids(before)...), match.EmptyAsAbsent("tool_calls"))
	})
}

func TestGoldenTrim(t *testing.T) {
	goldentest.Run(t, "trim", goldentest.Load(t, "agents/trim.json"), func(t *goldentest.T, c goldentest.Case) {
		before := messages(t, c.Fields["messages"])
		got, err := history.Trim(before, number(t, c.Fields["preserve"]))
		if c.Fields["result"] == nil {
			require.Error(t, err)
			return
		}
		require.NoError(t, err)
		compare(t, c.Fields["result"], before, got)
	})
}

func TestGoldenFilters(t *testing.T) {
	goldentest.Run(t, "filters", goldentest.Load(t, "agents/filters.json"), func(t *goldentest.T, c goldentest.Case) {
		filter, err := history.FilterByName(fmt.Sprint(c.Fields["filter"]))
		require.NoError(t, err)
		before := messages(t, c.Fields["messages"])
		compare(t, c.Fields["result"], before, filter(before))
	})
}

// compare leaves out what the record of these themes does not hold: the function of a result, and the type of a call.
func compare(t *goldentest.T, want any, before, after []*modelv1.ChatMessage) {
	got, _ := form(t, after).([]any)
	for _, m := range got {
		message, _ := m.(map[string]any)
		delete(message, "function")
		calls, _ := message["tool_calls"].([]any)
		for _, c := range calls {
			call, _ := c.(map[string]any)
			delete(call, "type")
		}
	}
	t.Equal(want, got, match.KnownIDs(ids(before)...), match.EmptyAsAbsent("tool_calls"))
}
