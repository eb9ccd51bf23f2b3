package prepare_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/prefix"
	"github.com/evalfleet/evalfleet/pkg/tokens"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/prepare"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/respcache"
)

func TestNothingToChangeChangesNothing(t *testing.T) {
	t.Parallel()
	given := prepare.Conversation{Messages: []*modelv1.ChatMessage{chat.System("s"), chat.User("u"), chat.Assistant("a")}}
	prepared, err := prepare.Prepare(given, provider.Capabilities{MergeUser: true, AutoReasoning: prepare.ReasoningNone})
	require.NoError(t, err)
	assert.False(t, prepared.Changed)
	assert.Equal(t, given.Messages, prepared.Messages)
	assert.Equal(t, toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_NONE, prepared.Choice.GetMode(), "there are no tools to choose")
}

func TestTheSystemMessageComesFirstAndDefaultsFillIn(t *testing.T) {
	t.Parallel()
	config := &modelv1.GenerateConfig{SystemMessage: new("first")}
	given := prepare.Conversation{Messages: []*modelv1.ChatMessage{chat.System("second"), chat.User("u")}, Config: config}
	prepared, err := prepare.Prepare(given, provider.Capabilities{MaxTokens: 2048})
	require.NoError(t, err)
	require.Len(t, prepared.Messages, 3)
	assert.True(t, prepared.Changed)
	assert.Equal(t, "first", chat.Text(prepared.Messages[0]))
	assert.Equal(t, int64(2048), prepared.Config.GetMaxTokens())
	assert.Nil(t, config.MaxTokens, "what the caller gave stays as it is")

	config.MaxTokens = new(int64(0))
	prepared, err = prepare.Prepare(given, provider.Capabilities{MaxTokens: 2048})
	require.NoError(t, err)
	assert.Equal(t, int64(0), prepared.Config.GetMaxTokens(), "zero is set")
}

// A count that is given is that of the prepared messages too, or is given up.
func TestTheTokensAreThoseOfThePreparedMessages(t *testing.T) {
	t.Parallel()
	thought := chat.Assistant("")
	thought.Content = chat.ListContent(chat.ReasoningPart("why and how"), chat.TextPart("an answer"))
	messages := []*modelv1.ChatMessage{chat.User("a question"), thought, chat.User("once more"), chat.User("and more")}
	var count tokens.Count
	for _, m := range messages {
		count = count.And(tokens.Of(m))
	}
	for _, config := range []*modelv1.GenerateConfig{nil, {SystemMessage: new("be brief")}} {
		for _, capabilities := range []provider.Capabilities{{}, {MergeUser: true, ForceReasoning: prepare.ReasoningNone}} {
			for _, known := range []*tokens.Count{nil, &count} {
				given := prepare.Conversation{Messages: messages, Config: config, Count: known}
				prepared, err := prepare.Prepare(given, capabilities)
				require.NoError(t, err)
				assert.Equal(t, tokens.Rough(prepared.Messages), prepared.Tokens(), "%v %+v", config, capabilities)
			}
		}
	}
}

func TestMessagesAreCopiedBeforeTheyAreChanged(t *testing.T) {
	t.Parallel()
	thought := chat.Assistant("")
	thought.Content = chat.ListContent(chat.ReasoningPart("why"), chat.TextPart("x"))
	prepared, err := prepare.Prepare(prepare.Conversation{Messages: []*modelv1.ChatMessage{thought}}, provider.Capabilities{ForceReasoning: prepare.ReasoningNone})
	require.NoError(t, err)
	assert.Len(t, prepared.Messages[0].GetContent().GetList().GetParts(), 1)
	assert.Len(t, thought.GetContent().GetList().GetParts(), 2)
	assert.NotEqual(t, thought.GetId(), prepared.Messages[0].GetId())
}

// The hash is of the given messages: it is the same for messages with other ids, also where preparation merges them.
func TestTheHashIsOfTheGivenMessages(t *testing.T) {
	t.Parallel()
	hash := func(texts ...string) prefix.Hash {
		var given prepare.Conversation
		for _, text := range texts {
			given.Messages = append(given.Messages, chat.User(text))
			given.Messages[len(given.Messages)-1].Id = chat.NewID()
		}
		prepared, err := prepare.Prepare(given, provider.Capabilities{MergeUser: true})
		require.NoError(t, err)
		require.Len(t, prepared.Messages, 1)
		h, err := prepared.Hash(respcache.Digest)
		require.NoError(t, err)
		return h
	}
	first := hash("a", "b")
	assert.Equal(t, first, hash("a", "b"))
	assert.NotEqual(t, first, hash("a", "c"))
}

func TestSealsThatTheModelCannotReadAreOpened(t *testing.T) {
	t.Parallel()
	sealed := func(by string) *modelv1.ChatMessage {
		m := chat.Assistant("")
		m.Content = chat.ListContent(chat.SealedPart("seal", new("thought")), chat.TextPart("said"))
		m.GetContent().GetList().GetParts()[0].GetReasoning().SealedBy = by
		return m
	}
	given := []*modelv1.ChatMessage{chat.User("q"), sealed("a/own"), sealed("a/other"), sealed("")}
	signed := 0
	caps := provider.Capabilities{Sealer: "a/own", SignCalls: func(m *modelv1.ChatMessage) *modelv1.ChatMessage {
		signed++
		return m
	}}
	prepared, err := prepare.Prepare(prepare.Conversation{Messages: given}, caps)
	require.NoError(t, err)
	assert.Same(t, given[1], prepared.Messages[1])
	assert.Same(t, given[3], prepared.Messages[3], "whose seal it is, is not known")
	opened := prepared.Messages[2].GetContent().GetList().GetParts()
	assert.Equal(t, "thought", opened[0].GetReasoning().GetReasoning())
	assert.False(t, opened[0].GetReasoning().GetRedacted())
	assert.NotEqual(t, given[2].GetId(), prepared.Messages[2].GetId())
	assert.Equal(t, "seal", given[2].GetContent().GetList().GetParts()[0].GetReasoning().GetReasoning(), "what the caller gave stays as it is")
	assert.Equal(t, 3, signed, "another model has spoken")

	own, err := prepare.Prepare(prepare.Conversation{Messages: []*modelv1.ChatMessage{given[0], given[1], given[3]}}, caps)
	require.NoError(t, err)
	assert.False(t, own.Changed)
	assert.Equal(t, 3, signed, "no other model has spoken")
}

func TestManyMessagesAreMerged(t *testing.T) {
	t.Parallel()
	messages := make([]*modelv1.ChatMessage, 300_000)
	for i := range messages {
		messages[i] = chat.User("0123456789")
		messages[i].MetadataJson = fmt.Sprintf(`{"m%d":1}`, i%1000)
	}
	begun := time.Now()
	merged := prepare.Merge(messages, true, false, false)
	require.Len(t, merged, 1)
	assert.Len(t, chat.Text(merged[0]), 11*len(messages)-1)
	messages[0].Content = chat.ListContent(chat.TextPart("a"))
	merged = prepare.Merge(messages, true, false, false)
	require.Len(t, merged, 1)
	assert.Len(t, merged[0].GetContent().GetList().GetParts(), len(messages))
	assert.Less(t, time.Since(begun), waittest.Bound)
}

// The ids of messages of the Responses API are no part of what a client's model said. Only that API takes them back.
func TestAClientsMessagesReachOtherVendorsWithoutTheirOrigin(t *testing.T) {
	t.Parallel()
	text := chat.TextPart("a")
	text.InternalJson = `{"message_id":"msg_1"}`
	said := chat.Assistant("")
	said.Content = chat.ListContent(text)
	for _, test := range []struct {
		client, responses bool
		want              string
	}{{true, false, ""}, {true, true, text.GetInternalJson()}, {false, false, text.GetInternalJson()}} {
		given := prepare.Conversation{Messages: []*modelv1.ChatMessage{chat.User("q"), said}, Client: test.client}
		prepared, err := prepare.Prepare(given, provider.Capabilities{Responses: test.responses})
		require.NoError(t, err)
		assert.Equal(t, test.want, prepared.Messages[1].GetContent().GetList().GetParts()[0].GetInternalJson())
		assert.Equal(t, test.want == "", prepared.Changed)
	}
	assert.Equal(t, `{"message_id":"msg_1"}`, text.GetInternalJson(), "what the client gave stays as it is")
}

// Some APIs refuse texts without a visible character, ids of calls that are not of their own form, and calls without
// tools on offer.
func TestAClientsConversationFollowsTheRulesOfTheAPI(t *testing.T) {
	t.Parallel()
	called := chat.Assistant("\n\n")
	called.ToolCalls = []*toolv1.ToolCall{{Id: "call_1", Function: "f"}}
	result := &modelv1.ChatMessage{Role: modelv1.Role_ROLE_TOOL, Function: "f", ToolCallIds: []string{"call_1"}, Content: chat.TextContent("")}
	picture := chat.User("")
	picture.Content = chat.ListContent(chat.TextPart(" "), chat.ImagePart("data:image/png;base64,AAAA"))
	messages := []*modelv1.ChatMessage{chat.System(" "), chat.User("q"), called, result, chat.Assistant(" "), picture}
	caps := provider.Capabilities{
		RefusesBlank: true, CallIDLen: 9, CallsNeedTools: true,
		Features: &modelv1.Capabilities{Images: true},
	}
	given, err := prepare.Prepare(prepare.Conversation{Messages: messages}, caps)
	require.NoError(t, err)
	assert.False(t, given.Changed, "what is no client's stays")
	assert.Empty(t, given.Tools)

	prepared, err := prepare.Prepare(prepare.Conversation{Messages: messages, Client: true}, caps)
	require.NoError(t, err)
	var texts []string
	for _, m := range prepared.Messages {
		texts = append(texts, chat.Text(m))
	}
	assert.Equal(t, []string{"", "q", "", dialect.NoContent, dialect.NoContent, ""}, texts)
	assert.Same(t, messages[1], prepared.Messages[1])
	id := dialect.FixedCallID("call_1", 9)
	assert.Equal(t, id, prepared.Messages[2].GetToolCalls()[0].GetId())
	assert.Equal(t, []string{id}, prepared.Messages[3].GetToolCallIds())
	assert.Len(t, prepared.Messages[5].GetContent().GetList().GetParts(), 1)
	assert.Len(t, prepared.Tools, 1, "a tool that does nothing")
	assert.Equal(t, toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_AUTO, prepared.Choice.GetMode())
	assert.Equal(t, "call_1", called.GetToolCalls()[0].GetId(), "what the client gave stays as it is")

	tools := []*toolv1.ToolInfo{{Name: "f"}}
	offered, err := prepare.Prepare(prepare.Conversation{Messages: messages, Tools: tools, Client: true}, caps)
	require.NoError(t, err)
	assert.Equal(t, tools, offered.Tools)
}

// The Responses API takes results after what the user said in the meantime. Others want them right after the calls.
func TestResultsOfAClientFollowTheirCalls(t *testing.T) {
	t.Parallel()
	result := func(id string) *modelv1.ChatMessage {
		return &modelv1.ChatMessage{Role: modelv1.Role_ROLE_TOOL, ToolCallIds: []string{id}, Content: chat.TextContent(id)}
	}
	given := []*modelv1.ChatMessage{
		result("gone"), chat.User("q"), chat.Assistant("s", chat.Call("a", "f", "{}"), chat.Call("b", "f", "{}")), result("b"),
		chat.User("more"), result("a"), chat.Assistant("t", chat.Call("a", "f", "{}")), chat.System("note"), result("a"),
	}
	said := func(client bool, c provider.Capabilities) (texts []string) {
		prepared, err := prepare.Prepare(prepare.Conversation{Messages: given, Client: client}, c)
		require.NoError(t, err)
		for _, m := range prepared.Messages {
			texts = append(texts, chat.Text(m))
		}
		return texts
	}
	asGiven := []string{"gone", "q", "s", "b", "more", "a", "t", "note", "a"}
	assert.Equal(t, []string{"gone", "q", "s", "b", "a", "more", "t", "a", "note"}, said(true, provider.Capabilities{}))
	assert.Equal(t, asGiven, said(true, provider.Capabilities{Responses: true}))
	assert.Equal(t, asGiven, said(false, provider.Capabilities{}))
}

// Where an API takes no media in results, those of a result follow in a message of the user, which would be between it
// and the next result.
func TestMediaOfAClientFollowsAllResults(t *testing.T) {
	t.Parallel()
	result := func(id string, parts ...*contentv1.Content) *modelv1.ChatMessage {
		parts = append(parts, chat.TextPart(id))
		return &modelv1.ChatMessage{Role: modelv1.Role_ROLE_TOOL, ToolCallIds: []string{id}, Content: chat.ListContent(parts...)}
	}
	picture := chat.ImagePart("data:image/png;base64,AAAA")
	given := []*modelv1.ChatMessage{chat.User("q"), chat.Assistant("", chat.Call("a", "f", "{}"), chat.Call("b", "f", "{}")), result("a", picture), result("b")}
	const user, model, tool = modelv1.Role_ROLE_USER, modelv1.Role_ROLE_ASSISTANT, modelv1.Role_ROLE_TOOL
	for client, want := range map[bool][]modelv1.Role{true: {user, model, tool, tool, user}, false: {user, model, tool, user, tool}} {
		prepared, err := prepare.Prepare(prepare.Conversation{Messages: given, Client: client}, provider.Capabilities{Features: &modelv1.Capabilities{Images: true}})
		require.NoError(t, err)
		var roles []modelv1.Role
		for _, m := range prepared.Messages {
			roles = append(roles, m.GetRole())
		}
		assert.Equal(t, want, roles)
	}
}

func TestMergedMessagesOfAClientHaveNoBlankText(t *testing.T) {
	t.Parallel()
	given := []*modelv1.ChatMessage{chat.User("q"), chat.Assistant("", chat.Call("a", "f", "{}")), chat.Assistant("", chat.Call("a", "f", "{}"))}
	for _, id := range []string{"a", "a"} {
		given = append(given, &modelv1.ChatMessage{Role: modelv1.Role_ROLE_TOOL, ToolCallIds: []string{id}, Content: chat.TextContent("r")})
	}
	prepared, err := prepare.Prepare(prepare.Conversation{Messages: given, Client: true}, provider.Capabilities{MergeAssistant: true, RefusesBlank: true, UniqueCalls: true})
	require.NoError(t, err)
	require.Len(t, prepared.Messages, 4)
	assert.Empty(t, chat.Text(prepared.Messages[1]))
	for i, call := range prepared.Messages[1].GetToolCalls() {
		assert.Equal(t, []string{call.GetId()}, prepared.Messages[2+i].GetToolCallIds())
	}
}

func TestAClientsConversationBeginsWithTheUser(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		messages []*modelv1.ChatMessage
		want     int
	}{
		{[]*modelv1.ChatMessage{chat.System("s"), chat.Assistant("a"), chat.User("u")}, 4},
		{[]*modelv1.ChatMessage{chat.System("s"), chat.User("u"), chat.Assistant("a")}, 3},
		{[]*modelv1.ChatMessage{chat.System("s")}, 1},
	} {
		prepared, err := prepare.Prepare(prepare.Conversation{Messages: test.messages, Client: true}, provider.Capabilities{UserFirst: true})
		require.NoError(t, err)
		require.Len(t, prepared.Messages, test.want)
		assert.Equal(t, "s", chat.Text(prepared.Messages[0]))
		if len(prepared.Messages) > 1 {
			assert.Equal(t, modelv1.Role_ROLE_USER, prepared.Messages[1].GetRole())
		}
	}
}

// A message of calls alone adds no text to another.
func TestAMessageWithoutTextAddsNoneWhenMerged(t *testing.T) {
	t.Parallel()
	thought := chat.Assistant("")
	thought.Content = chat.ListContent(chat.ReasoningPart("why"))
	merged := prepare.Merge([]*modelv1.ChatMessage{thought, chat.Assistant("", chat.Call("1", "f", "{}"))}, false, true, false)
	require.Len(t, merged, 1)
	assert.Len(t, merged[0].GetContent().GetList().GetParts(), 1)
	assert.Len(t, merged[0].GetToolCalls(), 1)
}

// Calls follow a message of the user, not one of the model.
func TestAClientsCallsFollowTheUser(t *testing.T) {
	t.Parallel()
	given := []*modelv1.ChatMessage{chat.User("q"), chat.Assistant("a"), chat.Assistant("b", chat.Call("1", "f", "{}"))}
	for client, want := range map[bool]int{true: 2, false: 3} {
		prepared, err := prepare.Prepare(prepare.Conversation{Messages: given, Client: client}, provider.Capabilities{UserFirst: true})
		require.NoError(t, err)
		require.Len(t, prepared.Messages, want)
		assert.Len(t, prepared.Messages[want-1].GetToolCalls(), 1)
	}
}

// A model goes on from the last visible character of its own message.
func TestAMessageToBeContinuedEndsWithoutSpace(t *testing.T) {
	t.Parallel()
	listed := chat.Assistant("")
	listed.Content = chat.ListContent(chat.TextPart("a "), chat.TextPart("b\u00a0\n"))
	for _, test := range []struct {
		last *modelv1.ChatMessage
		want string
	}{{chat.Assistant("so \n"), "so"}, {listed, "a \nb"}, {chat.User("q "), "q "}, {chat.Assistant("so"), "so"}} {
		given := prepare.Conversation{Messages: []*modelv1.ChatMessage{chat.User("q"), chat.Assistant("x "), test.last}, Client: true}
		prepared, err := prepare.Prepare(given, provider.Capabilities{RefusesBlank: true})
		require.NoError(t, err)
		assert.Equal(t, test.want, chat.Text(prepared.Messages[2]))
		assert.Same(t, given.Messages[1], prepared.Messages[1])
	}
	assert.Equal(t, "a \nb\u00a0\n", chat.Text(listed), "what the client gave stays as it is")
}

// Some models number their calls from the start in each turn, and some give all calls of a turn one id.
func TestCallsOfAClientWithOneIDAreTold(t *testing.T) {
	t.Parallel()
	turn := func(ids ...string) (messages []*modelv1.ChatMessage) {
		said := chat.Assistant("")
		for _, id := range ids {
			said.ToolCalls = append(said.ToolCalls, chat.Call(id, "f", "{}"))
			messages = append(messages, &modelv1.ChatMessage{Role: modelv1.Role_ROLE_TOOL, ToolCallIds: []string{id}, Content: chat.TextContent("r")})
		}
		return append([]*modelv1.ChatMessage{said}, messages...)
	}
	given := slices.Concat(turn("a", "b"), turn("a", "a_2"), turn("a", "a"), turn("c"))
	prepared, err := prepare.Prepare(prepare.Conversation{Messages: given, Client: true}, provider.Capabilities{UniqueCalls: true})
	require.NoError(t, err)
	var calls, results []string
	for _, m := range prepared.Messages {
		for _, call := range m.GetToolCalls() {
			calls = append(calls, call.GetId())
		}
		results = append(results, m.GetToolCallIds()...)
	}
	assert.Equal(t, []string{"a", "b", "a_2", "a_2_2", "a_3", "a_4", "c"}, calls)
	assert.Equal(t, calls, results)
	assert.Same(t, given[0], prepared.Messages[0])
	assert.Equal(t, "a", given[3].GetToolCalls()[0].GetId(), "what the client gave stays as it is")
}

// The Responses API has no place for a thought that is neither sealed nor has a summary.
func TestOpenReasoningOfOthersIsNoItemOfTheResponsesAPI(t *testing.T) {
	t.Parallel()
	kept := chat.ReasoningPart("why")
	kept.GetReasoning().Summary = new("sum")
	said := chat.Assistant("")
	said.Content = chat.ListContent(chat.ReasoningPart("how"), kept, chat.TextPart("a"))
	for client, want := range map[bool]int{true: 2, false: 3} {
		given := prepare.Conversation{Messages: []*modelv1.ChatMessage{chat.User("q"), said}, Client: client}
		prepared, err := prepare.Prepare(given, provider.Capabilities{Responses: true, AutoReasoning: prepare.ReasoningAll})
		require.NoError(t, err)
		assert.Len(t, prepared.Messages[1].GetContent().GetList().GetParts(), want)
	}
	assert.Len(t, said.GetContent().GetList().GetParts(), 3, "what the client gave stays as it is")
}
