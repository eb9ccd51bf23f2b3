package grok_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/evalfleet/evalfleet/pkg/chat"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/grok"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/xai"
)

func call(id string, kind xai.ToolCallType, function, arguments string) *xai.ToolCall {
	return &xai.ToolCall{Id: id, Type: kind, Tool: &xai.ToolCall_Function{Function: &xai.FunctionCall{Name: function, Arguments: arguments}}}
}

// researched is an answer in two steps, between which the server searched, with reasoning, citations and a call of a
// function.
func researched() *xai.GetChatCompletionResponse {
	failed := call("s2", xai.ToolCallType_TOOL_CALL_TYPE_CODE_EXECUTION_TOOL, "code_execution", `{"code":"1/0"}`)
	failed.ErrorMessage = new("division by zero")
	return &xai.GetChatCompletionResponse{
		Id: "r1", Model: "served", Citations: []string{"https://a.example", "https://b.example"},
		Usage: &xai.SamplingUsage{PromptTokens: 100, CachedPromptTextTokens: 60, CompletionTokens: 20, ReasoningTokens: 12, TotalTokens: 132, CostInUsdTicks: new(int64(25_000_000))},
		Outputs: []*xai.CompletionOutput{
			{Index: 0, Message: &xai.CompletionMessage{
				Role: xai.MessageRole_ROLE_ASSISTANT, Content: "Let me look.", ReasoningContent: "Where?",
				ToolCalls: []*xai.ToolCall{call("s1", xai.ToolCallType_TOOL_CALL_TYPE_WEB_SEARCH_TOOL, "web_search", `{"query":"harbour"}`), failed},
			}},
			{Index: 1, Message: &xai.CompletionMessage{Role: xai.MessageRole_ROLE_TOOL, Content: "what it found"}},
			{
				Index: 2, FinishReason: xai.FinishReason_REASON_TOOL_CALLS,
				Message: &xai.CompletionMessage{
					Role: xai.MessageRole_ROLE_ASSISTANT, Content: "Bergen.", ReasoningContent: "There.", EncryptedContent: "c2VhbA==",
					ToolCalls: []*xai.ToolCall{call("c1", xai.ToolCallType_TOOL_CALL_TYPE_CLIENT_SIDE_TOOL, "weather", `{"city": "Bergen"}`)},
				},
				Logprobs: &xai.LogProbs{Content: []*xai.LogProb{{Token: "Ber", Logprob: -0.5, Bytes: []byte("Ber"), TopLogprobs: []*xai.TopLogProb{{Token: "Os", Logprob: -2}}}}},
			},
		},
	}
}

// piecesOf cuts an answer into pieces, of texts of three bytes.
func piecesOf(r *xai.GetChatCompletionResponse) []*xai.GetChatCompletionChunk {
	var all []*xai.GetChatCompletionChunk
	for _, o := range r.GetOutputs() {
		for rest := o.GetMessage().GetReasoningContent(); rest != ""; rest = rest[min(3, len(rest)):] {
			all = append(all, piece(o.GetIndex(), 0, &xai.Delta{ReasoningContent: rest[:min(3, len(rest))], Role: o.GetMessage().GetRole()}))
		}
		for _, called := range o.GetMessage().GetToolCalls() {
			begun := proto.CloneOf(called)
			begun.ErrorMessage = nil
			all = append(all, piece(o.GetIndex(), 0, &xai.Delta{ToolCalls: []*xai.ToolCall{begun}}), piece(o.GetIndex(), 0, &xai.Delta{ToolCalls: []*xai.ToolCall{called}}))
		}
		for rest := o.GetMessage().GetContent(); rest != ""; rest = rest[min(3, len(rest)):] {
			all = append(all, piece(o.GetIndex(), 0, &xai.Delta{Content: rest[:min(3, len(rest))], Role: o.GetMessage().GetRole()}))
		}
		last := piece(o.GetIndex(), o.GetFinishReason(), &xai.Delta{EncryptedContent: o.GetMessage().GetEncryptedContent()})
		last.Outputs[0].Logprobs = o.GetLogprobs()
		all = append(all, last)
	}
	end := &xai.GetChatCompletionChunk{Id: r.GetId(), Model: r.GetModel(), Usage: r.GetUsage(), Citations: r.GetCitations()}
	return append(all, end)
}

// An answer is the same whole and in pieces: all texts of its steps, what the server ran, and one choice.
func TestAnAnswerInSteps(t *testing.T) {
	t.Parallel()
	use := func(kind contentv1.ToolUseType, id, name, arguments string, failure *string) *contentv1.Content {
		return &contentv1.Content{Part: &contentv1.Content_ToolUse{ToolUse: &contentv1.ToolUse{ToolType: kind, Id: id, Name: name, Arguments: arguments, Error: failure}}}
	}
	said := chat.TextPart("Bergen.")
	for _, url := range []string{"https://a.example", "https://b.example"} {
		said.GetText().Citations = append(said.GetText().Citations, &contentv1.Citation{Source: &contentv1.Citation_Url{Url: url}})
	}
	want := &modelv1.ModelOutput{
		Model: "grok-4-fast", ResponseId: new("r1"), Completion: "Let me look.\nBergen.",
		Usage: &modelv1.ModelUsage{InputTokens: 40, OutputTokens: 20, TotalTokens: 132, InputTokensCacheRead: new(int64(60)), ReasoningTokens: new(int64(12)), TotalCost: new(0.0025)},
		Choices: []*modelv1.Choice{{
			StopReason: modelv1.StopReason_STOP_REASON_TOOL_CALLS,
			Logprobs: &modelv1.Logprobs{Content: []*modelv1.Logprob{{
				Token: "Ber", Logprob: -0.5, Bytes: []int32{66, 101, 114}, TopLogprobs: []*modelv1.TopLogprob{{Token: "Os", Logprob: -2}},
			}}},
			Message: &modelv1.ChatMessage{
				Role: modelv1.Role_ROLE_ASSISTANT, Model: "grok-4-fast", Source: modelv1.MessageSource_MESSAGE_SOURCE_GENERATE,
				ToolCalls: []*toolv1.ToolCall{chat.Call("c1", "weather", `{"city": "Bergen"}`)},
				Content: chat.ListContent(
					chat.ReasoningPart("Where?"),
					use(contentv1.ToolUseType_TOOL_USE_TYPE_WEB_SEARCH, "s1", "web_search", `{"query":"harbour"}`, nil),
					use(contentv1.ToolUseType_TOOL_USE_TYPE_CODE_EXECUTION, "s2", "code_execution", `{"code":"1/0"}`, new("division by zero")),
					chat.TextPart("Let me look."),
					&contentv1.Content{Part: &contentv1.Content_Reasoning{Reasoning: &contentv1.Reasoning{Reasoning: "c2VhbA==", Redacted: true, Summary: new("There.")}}},
					said,
				),
			},
		}},
	}
	whole, inPieces, err := grok.Output(researched(), piecesOf(researched()))
	require.NoError(t, err)
	ids := protocmp.IgnoreFields(&modelv1.ChatMessage{}, "id")
	assert.Empty(t, cmp.Diff(want, whole, protocmp.Transform(), ids))
	assert.Empty(t, cmp.Diff(whole, inPieces, protocmp.Transform(), ids))
}

// Who watches gets the model's texts and the calls of its own tools, each once.
func TestWhatWatchersGet(t *testing.T) {
	t.Parallel()
	var text, reasoning strings.Builder
	var calls []*modelv1.ToolCallDelta
	r := watched()
	r.Stream = func(d *modelv1.GenerateDelta) {
		text.WriteString(d.GetText())
		reasoning.WriteString(d.GetReasoning())
		if d.GetToolCall() != nil {
			calls = append(calls, d.GetToolCall())
		}
	}
	r.Unfinished = func(*modelv1.ModelUsage, int64) { assert.Fail(t, "the answer is complete") }
	r.Record = provider.RecordAll
	response, err := opened(t, "grok-4-fast", streaming(t, nil, piecesOf(researched())...)).Generate(t.Context(), r)
	require.NoError(t, err)
	assert.Equal(t, "Let me look.Bergen.", text.String())
	assert.Equal(t, "Where?There.", reasoning.String())
	assert.Empty(t, cmp.Diff([]*modelv1.ToolCallDelta{{Id: "c1", Function: "weather", Arguments: `{"city": "Bergen"}`}}, calls, protocmp.Transform()))
	assert.Contains(t, response.Call.GetResponseJson(), `"events":[`)
}

// A stream that ends without a reason gives what came, and says that it is not all.
func TestAStreamThatEndsEarly(t *testing.T) {
	t.Parallel()
	r, unfinished := watched(), 0
	r.Unfinished = func(*modelv1.ModelUsage, int64) { unfinished++ }
	response, err := opened(t, "grok-4-fast", streaming(t, nil, piece(0, 0, &xai.Delta{Content: "hal"}))).Generate(t.Context(), r)
	require.NoError(t, err)
	assert.Equal(t, "hal", chat.Completion(response.Output))
	assert.Equal(t, modelv1.StopReason_STOP_REASON_UNKNOWN, chat.StopReason(response.Output))
	assert.Equal(t, 1, unfinished)
}

// When answers are streamed.
func TestWhenAnswersAreStreamed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		args            string
		watched, stream bool
	}{
		"an answer":            {"", false, false},
		"a watched answer":     {"", true, true},
		"left to the provider": {`{"streaming":"auto"}`, true, true},
		"always":               {`{"streaming":true}`, false, true},
		"never":                {`{"streaming":false}`, true, false},
	} {
		streamed := false
		address := serve(t, &server{
			whole: func(context.Context, *xai.GetCompletionsRequest) (*xai.GetChatCompletionResponse, error) {
				return said("fine"), nil
			},
			pieces: func(_ *xai.GetCompletionsRequest, stream grpc.ServerStreamingServer[xai.GetChatCompletionChunk]) error {
				streamed = true
				return stream.Send(piece(0, xai.FinishReason_REASON_STOP, &xai.Delta{Content: "fine"}))
			},
		})
		p, err := open(t, account(address)).Open(provider.Spec{Model: "grok-4-fast", Account: provider.DefaultAccount, Args: tt.args})
		require.NoError(t, err, name)
		r := question()
		if tt.watched {
			r = watched()
		}
		_, err = p.Generate(t.Context(), r)
		require.NoError(t, err, name)
		assert.Equal(t, tt.stream, streamed, name)
	}
}

// A call of a function that is named like the server's interpreter is the client's, unless the interpreter was offered.
func TestWhoseToolIsCalled(t *testing.T) {
	t.Parallel()
	own := &toolv1.ToolInfo{Name: "code_execution", ParametersJson: `{"type":"object","properties":{"code":{"type":"string"}}}`}
	native := proto.CloneOf(own)
	native.OptionsJson = `{"providers":{"grok":{}}}`
	answer := said("")
	answer.Outputs[0].Message.ToolCalls = []*xai.ToolCall{call("c", xai.ToolCallType_TOOL_CALL_TYPE_CODE_EXECUTION_TOOL, "code_execution", `{"code":"1"}`)}
	for name, tt := range map[string]struct {
		tool    *toolv1.ToolInfo
		clients int
	}{
		"a function":        {own, 1},
		"the interpreter":   {native, 0},
		"another's, as ran": {&toolv1.ToolInfo{Name: "weather"}, 0},
	} {
		r := question()
		r.Tools = []*toolv1.ToolInfo{tt.tool}
		response, err := opened(t, "grok-4-fast", answering(t, answer, nil)).Generate(t.Context(), r)
		require.NoError(t, err, name)
		assert.Len(t, chat.FirstMessage(response.Output).GetToolCalls(), tt.clients, name)
	}
}

// No answer of a server makes us panic, whole or in pieces.
func FuzzAnswer(f *testing.F) {
	whole, err := proto.Marshal(researched())
	require.NoError(f, err)
	f.Add(whole, []byte{})
	for _, chunk := range piecesOf(researched()) {
		raw, err := proto.Marshal(chunk)
		require.NoError(f, err)
		f.Add([]byte{}, raw)
	}
	f.Fuzz(func(t *testing.T, whole, chunk []byte) {
		response, piece := &xai.GetChatCompletionResponse{}, &xai.GetChatCompletionChunk{}
		if proto.Unmarshal(whole, response) != nil || proto.Unmarshal(chunk, piece) != nil {
			return
		}
		output, _, err := grok.Output(response, []*xai.GetChatCompletionChunk{piece, piece})
		if err == nil {
			_, err := chat.ParseOutput(chat.OutputJSON(output))
			require.NoError(t, err)
		}
	})
}
