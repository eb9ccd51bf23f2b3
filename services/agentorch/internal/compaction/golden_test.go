package compaction

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/chat/chattest"
	"github.com/evalfleet/evalfleet/pkg/enum"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/goldentest"
	"github.com/evalfleet/evalfleet/pkg/goldentest/match"
	"github.com/evalfleet/evalfleet/pkg/tokens"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
)

// world is an agent's run, with a model whose calls end at once.
type world struct {
	agent.Conversation

	t       *goldentest.T
	handler *Handler
	tools   []*toolv1.ToolDefinition
	// prefix is how many messages always stay, if a case says so.
	prefix *int
	seq    int64
	// native is how the provider's own compaction ends: ok, error, unsupported; summary ends every other call.
	native  string
	summary *modelv1.ModelOutput
	// saw are the requests for summaries, compacted is the last compaction.
	saw       [][]*modelv1.ChatMessage
	compacted *agentv1.Compacted
}

func (w *world) Spec() *agentv1.RunSpec          { return &agentv1.RunSpec{} }
func (w *world) Output() *modelv1.ModelOutput    { return nil }
func (w *world) Answer() *modelv1.ModelOutput    { return nil }
func (w *world) Stored(string) (string, bool)    { return "", false }
func (w *world) Scores() []*agentv1.NamedScore   { return nil }
func (w *world) Tools() []*toolv1.ToolDefinition { return w.tools }

func (w *world) Messages() []*modelv1.ChatMessage {
	all := w.Conversation.Messages()
	if w.prefix != nil { // The handler looks for what always stays.
		return all[:min(*w.prefix, len(all))]
	}
	return all
}

// emit folds an event.
func (w *world) emit(e *agentv1.Event) {
	w.seq++
	e.Seq = w.seq
	fresh := e.GetCompacted().GetContent().GetMessages()
	if m := e.GetMessageAdded().GetContent(); m != nil {
		fresh = append(fresh, m)
	}
	if m := e.GetInputAdded().GetContent(); m != nil {
		fresh = append(fresh, m)
	}
	for i, m := range fresh {
		if m.GetId() == "" {
			m.Id = fmt.Sprintf("fresh%d.%d", w.seq, i)
		}
	}
	if c := e.GetCompacted(); c != nil {
		w.compacted = c
	}
	w.Apply(e)
	w.handler.Apply(e)
}

// call ends a call for a compaction.
func (w *world) call(c agent.Compact) {
	intent := &agentv1.ModelIntent{Purpose: agent.PurposeCompaction, Compact: c.Native}
	w.emit(&agentv1.Event{Kind: &agentv1.Event_ModelIntent{ModelIntent: intent}})
	outcome := &agentv1.ModelOutcome{Intent: w.seq, Content: &agentv1.ModelOutcomeContent{}}
	switch {
	case !c.Native:
		w.saw = append(w.saw, c.Messages)
		outcome.Content.Output, outcome.StopReason = w.summary, chat.StopReason(w.summary)
	case w.native == "ok":
		opaque := &contentv1.Content{Part: &contentv1.Content_Data{Data: &contentv1.Data{Json: `{"compaction":"opaque"}`}}}
		outcome.Content.Compacted = []*modelv1.ChatMessage{{Id: "native", Role: modelv1.Role_ROLE_ASSISTANT, Content: chat.ListContent(opaque)}}
	default:
		outcome.Error = &agentv1.RunError{Reason: "CAPABILITY_UNSUPPORTED", Message: "not here"}
	}
	w.emit(&agentv1.Event{Kind: &agentv1.Event_ModelOutcome{ModelOutcome: outcome}})
}

// settle does what is needed before the model is asked.
func (w *world) settle(forced bool) error {
	for {
		action, ready, err := w.handler.Next(w, forced)
		if err != nil || ready {
			return err
		}
		for _, e := range action.Events {
			w.emit(e)
		}
		call, asks := action.Then.(agent.Compact)
		if asks {
			w.call(call)
		}
		forced = forced && asks
	}
}

// ask begins a call of the model, and answer ends it with its usage.
func (w *world) ask() {
	w.emit(&agentv1.Event{Kind: &agentv1.Event_ModelIntent{ModelIntent: &agentv1.ModelIntent{
		Purpose: agent.PurposeAgent, MessageCount: int32(len(w.Input())),
	}}})
}

func (w *world) answer(usage *modelv1.ModelUsage) {
	w.emit(&agentv1.Event{Kind: &agentv1.Event_ModelOutcome{ModelOutcome: &agentv1.ModelOutcome{
		Intent: w.seq, Content: &agentv1.ModelOutcomeContent{Output: &modelv1.ModelOutput{Usage: usage}},
	}}})
}

// characters counts one token for a character, as the cases do; no tools are one too.
type characters struct{}

func (characters) Messages(messages []*modelv1.ChatMessage) int64 {
	counted := make([]*modelv1.ChatMessage, len(messages))
	for i, m := range messages {
		counted[i] = proto.CloneOf(m)
		for _, call := range counted[i].GetToolCalls() {
			call.ArgumentsJson = spaced(call.GetArgumentsJson())
		}
	}
	text, media := tokens.Texts(counted)
	return max(1, int64(utf8.RuneCountInString(text))+media)
}

// spaced is a document with a space after each colon and comma, as it was counted.
func spaced(document string) string {
	var b strings.Builder
	inText := false
	for i := range len(document) {
		c := document[i]
		if c == '"' && !(inText && document[i-1] == '\\') {
			inText = !inText
		}
		if b.WriteByte(c); !inText && (c == ':' || c == ',') {
			b.WriteByte(' ')
		}
	}
	return b.String()
}

func (characters) Tools(tools []*toolv1.ToolInfo) int64 {
	size := 0
	for _, tool := range tools {
		function := map[string]any{"name": tool.GetName(), "description": tool.GetDescription(), "parameters": json.RawMessage(tool.GetParametersJson())}
		document, _ := json.Marshal(map[string]any{"type": "function", "function": function})
		size += len(document)
	}
	return max(1, int64(size))
}

func messagesOf(t *goldentest.T, recorded any) []*modelv1.ChatMessage {
	document, err := json.Marshal(recorded)
	require.NoError(t, err)
	parsed, err := chattest.Messages(document)
	require.NoError(t, err)
	return parsed
}

func worldOf(t *goldentest.T, c goldentest.Case) *world {
	params := map[string]any{}
	given, _ := c.At("input", "params").(map[string]any)
	for name, value := range given {
		params[name] = value
	}
	params["strategy"] = c.At("input", "strategy")
	document, err := json.Marshal(params)
	require.NoError(t, err)
	h := &Handler{Counter: characters{}, Windows: map[string]int64{}}
	require.NoError(t, json.Unmarshal(document, &h.Params))
	require.NoError(t, h.Params.Resolve("compaction"))
	if window, ok := c.At("input", "context_window").(json.Number); ok {
		h.Windows[""], err = window.Int64()
		require.NoError(t, err)
	}
	summary := &modelv1.ModelOutput{Choices: []*modelv1.Choice{{Message: chat.Assistant("what happened"), StopReason: modelv1.StopReason_STOP_REASON_STOP}}}
	return &world{t: t, handler: h, summary: summary}
}

func TestGoldenCompactionStrategy(t *testing.T) {
	t.Parallel()
	goldentest.Run(t, "compaction-strategy", goldentest.Load(t, "core/compaction-strategy.jsonl"), strategyCase)
}

// strategyCase applies a strategy once.
func strategyCase(t *goldentest.T, c goldentest.Case) {
	w := worldOf(t, c)
	w.native, _ = c.At("input", "provider", "native").(string)
	if keeps, _ := c.At("input", "provider", "keep_reasoning").(bool); keeps {
		w.handler.Params.KeepThinkingTurns = &Turns{All: true}
	}
	if recorded := c.At("input", "provider", "outputs"); recorded != nil {
		document, err := json.Marshal(recorded)
		require.NoError(t, err)
		w.summary, err = chat.ParseOutput(document)
		require.NoError(t, err)
	}
	w.Conversation = agent.NewConversation(messagesOf(t, c.At("input", "messages")))
	var known []string
	for _, m := range w.Messages() {
		known = append(known, m.GetId())
	}
	var a *attempt
	for {
		a = w.handler.begin(w, false)
		call, err := a.pass()
		if c.At("expect", "error") != nil && err != nil {
			return
		}
		require.NoError(t, err)
		if call == nil {
			break
		}
		w.call(*call)
	}
	require.Nil(t, c.At("expect", "error"))
	for i, m := range a.messages {
		if m.GetId() == "" {
			m.Id = fmt.Sprint("fresh", i)
		}
	}
	var got []any
	require.NoError(t, json.Unmarshal(chat.MessagesJSON(a.messages), &got))
	t.Equal(c.At("expect", "input"), got, match.KnownIDs(known...), match.EmptyAsAbsent("tool_calls"))
	last := a.applied[len(a.applied)-1]
	t.Equal(c.At("expect", "applied"), string(last))
	t.Equal(c.At("expect", "fell_back"), a.fallback != "")
	t.Equal(c.At("expect", "preserve_prefix"), last != Native)
	t.Equal(c.At("expect", "message_for_history"), w.summaryFacts(a))
	if want := c.At("expect", "summariser_saw"); want != nil {
		t.Equal(want, sawIDs(w.saw))
	}
}

// summaryFacts is what a case records of a summary.
func (w *world) summaryFacts(a *attempt) any {
	if a.summary == nil {
		return nil
	}
	text := chat.Text(a.summary)
	return map[string]any{
		"role": "user", "metadata": json.RawMessage(a.summary.GetMetadataJson()), "same_as_last_input": a.messages[len(a.messages)-1] == a.summary,
		"holds_model_text": strings.Contains(text, chat.Completion(w.summary)), "wrapped_in_summary_tag": strings.Contains(text, "<summary>"),
		"starts_with_marker": strings.HasPrefix(text, "[CONTEXT COMPACTION SUMMARY]"),
	}
}

func sawIDs(saw [][]*modelv1.ChatMessage) (all []any) {
	for _, request := range saw {
		var ids []any
		for i, m := range request {
			if i == len(request)-1 {
				ids = append(ids, "<user:prompt>")
				continue
			}
			ids = append(ids, m.GetId())
		}
		all = append(all, ids)
	}
	return all
}

func TestGoldenCompactionHandler(t *testing.T) {
	t.Parallel()
	goldentest.Run(t, "compaction-handler", goldentest.Load(t, "core/compaction-handler.jsonl"), handlerCase)
}

// handlerCase plays the turns of a conversation.
func handlerCase(t *goldentest.T, c goldentest.Case) {
	w := worldOf(t, c)
	w.native, _ = c.At("input", "options", "native").(string)
	names, _ := c.At("input", "options", "tools").([]any)
	for _, name := range names {
		w.tools = append(w.tools, &toolv1.ToolDefinition{Info: recordedTool(fmt.Sprint(name))})
	}
	w.handler.begun, w.prefix = true, new(len(messagesOf(t, c.At("input", "prefix"))))
	steps, _ := c.At("input", "steps").([]any)
	want, _ := c.Fields["expect"].([]any)
	for i, recorded := range steps {
		step, _ := recorded.(map[string]any)
		w.turn(step, want[i])
	}
}

// recordedTool is a tool of the cases. Its definition has as many characters as the recorded one of alpha, 170.
func recordedTool(name string) *toolv1.ToolInfo {
	return &toolv1.ToolInfo{Name: name, Description: strings.Repeat("d", 54) + name, ParametersJson: `{"type":"object","properties":{}}`}
}

func (w *world) turn(step map[string]any, want any) {
	t := w.t
	if added, ok := step["add"]; ok {
		for _, m := range messagesOf(t, added) {
			w.emit(agent.Add(m))
		}
	}
	forced, _ := step["force"].(bool)
	w.compacted = nil
	before, warnedBefore := len(w.Conversation.Messages()), w.isWarned()
	expected, _ := want.(map[string]any)
	err := w.settle(forced)
	if expected["error"] != nil {
		require.Error(t, err)
		return
	}
	require.NoError(t, err)
	got := map[string]any{"input": w.inputIDs(), "compacted": w.compacted != nil, "memory_warning": w.isWarned()}
	if w.compacted != nil {
		got["event"] = eventForm(t, w.compacted, expected["event"], warnedBefore)
	}
	if len(w.Conversation.Messages()) > before {
		got["appended"] = map[string]any{"role": "user", "metadata": map[string]any{"summary": true}, "in_input": true}
	}
	t.Equal(want, got)
	w.ask()
	if usage, ok := step["usage"].(map[string]any); ok {
		tokens, err := usage["input_tokens"].(json.Number).Int64()
		require.NoError(t, err)
		w.answer(&modelv1.ModelUsage{InputTokens: tokens})
	}
}

// isWarned reports whether the model is sent the advice to save notes.
func (w *world) isWarned() bool {
	return slices.ContainsFunc(w.Input(), func(m *modelv1.ChatMessage) bool { return chat.Text(m) == memoryWarning })
}

// inputIDs are the ids of what the model is sent, with words for messages that the platform made.
func (w *world) inputIDs() []any {
	var all []any
	for _, m := range w.Input() {
		switch id := m.GetId(); {
		case strings.Contains(m.GetMetadataJson(), "summary"):
			all = append(all, "<summary>")
		case strings.HasPrefix(id, "fresh"), id == "native":
			all = append(all, "<new:"+enum.Word(m.GetRole())+">")
		default:
			all = append(all, id)
		}
	}
	return all
}

// eventForm is the event as a case records it. The source is the recorder's, and the numbers of tokens are, if a text
// of the platform's is in the input.
func eventForm(t *goldentest.T, c *agentv1.Compacted, want any, warned bool) any {
	var metadata map[string]any
	require.NoError(t, json.Unmarshal([]byte(c.GetMetadataJson()), &metadata))
	for _, name := range []string{"strategy", "strategy_applied"} {
		if word, ok := metadata[name].(string); ok {
			metadata[name] = "Compaction" + strings.ToUpper(word[:1]) + word[1:]
		}
	}
	recorded, _ := want.(map[string]any)
	facts, _ := recorded["metadata"].(map[string]any)
	if facts["fallback_reason"] != nil && metadata["fallback_reason"] != nil {
		metadata["fallback_reason"] = facts["fallback_reason"]
	}
	got := map[string]any{
		"type": enum.Word(c.GetType()), "source": "inspect", "tokens_before": c.GetTokensBefore(), "tokens_after": c.GetTokensAfter(), "metadata": metadata,
	}
	if warned {
		got["tokens_before"] = recorded["tokens_before"]
	}
	if _, prose := recorded["tokens_after"].(string); prose || warned {
		got["tokens_after"] = recorded["tokens_after"]
	}
	return got
}
