package prepare_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/chat/chattest"
	"github.com/evalfleet/evalfleet/pkg/enum"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/goldentest"
	"github.com/evalfleet/evalfleet/pkg/goldentest/match"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/prepare"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

func encoded(t *goldentest.T, value any) []byte {
	t.Helper()
	document, err := json.Marshal(value)
	require.NoError(t, err)
	return document
}

func messages(t *goldentest.T, c goldentest.Case) []*modelv1.ChatMessage {
	t.Helper()
	list, err := chat.ParseMessages(encoded(t, c.At("input", "messages")))
	require.NoError(t, err)
	return list
}

func decoded(t *goldentest.T, document json.RawMessage) any {
	t.Helper()
	var value any
	require.NoError(t, json.Unmarshal(document, &value))
	return value
}

// equalMessages compares messages. The protocol does not distinguish an empty list of call ids from none.
func equalMessages(t *goldentest.T, want any, got []*modelv1.ChatMessage) {
	t.Helper()
	t.Equal(want, map[string]any{"messages": decoded(t, chat.MessagesJSON(got))}, match.EmptyAsAbsent("tool_call_id"))
}

func flag(c goldentest.Case, name string) bool {
	value, _ := c.At("input", name).(bool)
	return value
}

func text(c goldentest.Case, name string) string {
	value, _ := c.At("input", name).(string)
	return value
}

func TestGoldenMerge(t *testing.T) {
	t.Parallel()
	goldentest.Run(t, "collapse", goldentest.Load(t, "core/collapse-messages.jsonl"), func(t *goldentest.T, c goldentest.Case) {
		given := messages(t, c)
		want := decoded(t, encoded(t, c.At("expect")))
		markMade(want.(map[string]any)["messages"].([]any), given)
		equalMessages(t, want, prepare.Merge(given, flag(c, "user"), flag(c, "assistant"), flag(c, "system")))
	})
}

// markMade puts the marker of a fresh id where a merged message names one that it was made from and that was itself
// made by merging: such an id was recorded as it happened to be.
func markMade(want []any, given []*modelv1.ChatMessage) {
	known := map[any]bool{}
	for _, m := range given {
		known[m.GetId()] = true
	}
	for _, m := range want {
		metadata, _ := m.(map[string]any)["metadata"].(map[string]any)
		from, _ := metadata["combined_from"].([]any)
		for i, id := range from {
			if !known[id] {
				from[i] = "<new-id>"
			}
		}
	}
}

func TestGoldenToolMedia(t *testing.T) {
	t.Parallel()
	goldentest.Run(t, "tool-result-media", goldentest.Load(t, "core/tool-result-media.jsonl"), func(t *goldentest.T, c goldentest.Case) {
		extract := text(c, "extract")
		equalMessages(t, c.At("expect"), prepare.ToolMedia(messages(t, c), !strings.Contains(extract, "image"), !strings.Contains(extract, "document")))
	})
}

func TestGoldenReasoning(t *testing.T) {
	t.Parallel()
	goldentest.Run(t, "reasoning-history", goldentest.Load(t, "core/reasoning-history.jsonl"), func(t *goldentest.T, c goldentest.Case) {
		config := &modelv1.GenerateConfig{}
		if mode := text(c, "mode"); mode != "" {
			config.ReasoningHistory = new(reasoningMode(mode))
		}
		prepared, err := prepare.Prepare(prepare.Conversation{Messages: messages(t, c), Config: config}, provider.Capabilities{
			ForceReasoning: reasoningMode(text(c, "provider_force")), AutoReasoning: reasoningMode(text(c, "provider_auto")),
		})
		require.NoError(t, err)
		equalMessages(t, c.At("expect"), prepared.Messages)
	})
}

func reasoningMode(word string) modelv1.ReasoningHistory {
	mode, _ := enum.Parse[modelv1.ReasoningHistory](word)
	return mode
}

func TestGoldenToolChoice(t *testing.T) {
	t.Parallel()
	goldentest.Run(t, "tool-choice", goldentest.Load(t, "core/tool-choice.jsonl"), func(t *goldentest.T, c goldentest.Case) {
		named := []any{}
		list, _ := c.At("input", "tools").([]any)
		for _, name := range list {
			named = append(named, map[string]any{"name": name})
		}
		tools, err := chattest.Tools(encoded(t, named))
		require.NoError(t, err)
		choice, err := chattest.ToolChoice(encoded(t, c.At("input", "tool_choice")))
		require.NoError(t, err)
		tools, choice = prepare.Tools(tools, choice, flag(c, "provider_requires_tools"))
		left := []any{}
		for _, tool := range tools {
			left = append(left, tool.GetName())
		}
		t.Equal(c.At("expect"), map[string]any{"tools": left, "tool_choice": decoded(t, chat.ToolChoiceJSON(choice))})
	})
}
