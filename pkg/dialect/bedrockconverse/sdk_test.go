package bedrockconverse_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/document"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/bedrockconverse"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// sdk is the vendor's own client, of a server that answers with this.
func sdk(t *testing.T, serve func(w http.ResponseWriter, path string, body []byte)) *bedrockruntime.Client {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		serve(w, r.URL.Path, body)
	}))
	t.Cleanup(server.Close)
	return bedrockruntime.New(bedrockruntime.Options{
		BaseEndpoint: &server.URL, Region: "us-east-1", Credentials: credentials.NewStaticCredentialsProvider("AKIA", "secret", ""), Retryer: aws.NopRetryer{},
		HTTPClient: server.Client(),
	})
}

// answering serves an output, whole or as a stream of its pieces.
func answering(t *testing.T, output *modelv1.ModelOutput, pieces ...*modelv1.GenerateDelta) *bedrockruntime.Client {
	t.Helper()
	return sdk(t, func(w http.ResponseWriter, path string, _ []byte) {
		if !strings.HasSuffix(path, "/converse-stream") {
			w.Header().Set("Content-Type", "application/json")
			body, err := bedrockconverse.Codec{}.AppendResponse(nil, output, dialect.ResponseMeta{})
			assert.NoError(t, err)
			_, _ = w.Write(body)
			return
		}
		w.Header().Set("Content-Type", "application/vnd.amazon.eventstream")
		s := bedrockconverse.Codec{}.NewStreamWriter(w, dialect.ResponseMeta{})
		assert.NoError(t, s.Ping())
		for _, piece := range pieces {
			assert.NoError(t, s.Write(piece))
			assert.NoError(t, s.Ping())
		}
		assert.NoError(t, s.Close(output))
	})
}

// spoken is an output with a part of every kind that an answer has.
func spoken() *modelv1.ModelOutput {
	sealed := &contentv1.Content{Part: &contentv1.Content_Reasoning{Reasoning: &contentv1.Reasoning{Reasoning: "seal", Summary: new("Two and two."), Redacted: true}}}
	m := chat.Assistant("", chat.Call("c1", "add", `{"a": 1.5}`), chat.Call("c2", "ping", ""))
	m.Content = chat.ListContent(sealed, chat.TextPart("Größe four."))
	output := chat.MessageOutput("m", m, modelv1.StopReason_STOP_REASON_TOOL_CALLS)
	output.Usage = &modelv1.ModelUsage{InputTokens: 5, OutputTokens: 7, TotalTokens: 15, InputTokensCacheRead: new(int64(3))}
	return output
}

func TestTheVendorsClientReadsAnAnswer(t *testing.T) {
	t.Parallel()
	got, err := answering(t, spoken()).Converse(t.Context(), &bedrockruntime.ConverseInput{ModelId: new("m")})
	require.NoError(t, err)
	message := got.Output.(*types.ConverseOutputMemberMessage).Value
	require.Len(t, message.Content, 4)
	thought := message.Content[0].(*types.ContentBlockMemberReasoningContent).Value.(*types.ReasoningContentBlockMemberReasoningText).Value
	assert.Equal(t, "Two and two.", *thought.Text)
	assert.NotEmpty(t, *thought.Signature)
	assert.Equal(t, "Größe four.", message.Content[1].(*types.ContentBlockMemberText).Value)
	call := message.Content[2].(*types.ContentBlockMemberToolUse).Value
	var input map[string]float64
	require.NoError(t, call.Input.UnmarshalSmithyDocument(&input))
	assert.Equal(t, []any{"c1", "add", 1.5}, []any{*call.ToolUseId, *call.Name, input["a"]})
	assert.Equal(t, types.StopReasonToolUse, got.StopReason)
	assert.Equal(t, []int32{5, 7, 15, 3}, []int32{*got.Usage.InputTokens, *got.Usage.OutputTokens, *got.Usage.TotalTokens, *got.Usage.CacheReadInputTokens})
}

// streamed is what the vendor's client reads of a stream.
type streamed struct {
	text, reasoning, signature string
	calls                      map[int32]string
	stop                       types.StopReason
	tokens                     int32
	redacted                   []byte
}

func stream(t *testing.T, client *bedrockruntime.Client) (s streamed, err error) {
	t.Helper()
	got, err := client.ConverseStream(t.Context(), &bedrockruntime.ConverseStreamInput{ModelId: new("m")})
	require.NoError(t, err)
	events := got.GetStream()
	defer events.Close()
	s.calls = map[int32]string{}
	for event := range events.Events() {
		switch e := event.(type) {
		case *types.ConverseStreamOutputMemberContentBlockStart:
			call := e.Value.Start.(*types.ContentBlockStartMemberToolUse).Value
			s.calls[*e.Value.ContentBlockIndex] = *call.ToolUseId + " " + *call.Name + " "
		case *types.ConverseStreamOutputMemberContentBlockDelta:
			switch d := e.Value.Delta.(type) {
			case *types.ContentBlockDeltaMemberText:
				s.text += d.Value
			case *types.ContentBlockDeltaMemberToolUse:
				s.calls[*e.Value.ContentBlockIndex] += *d.Value.Input
			case *types.ContentBlockDeltaMemberReasoningContent:
				switch r := d.Value.(type) {
				case *types.ReasoningContentBlockDeltaMemberText:
					s.reasoning += r.Value
				case *types.ReasoningContentBlockDeltaMemberSignature:
					s.signature += r.Value
				case *types.ReasoningContentBlockDeltaMemberRedactedContent:
					s.redacted = append(s.redacted, r.Value...)
				}
			}
		case *types.ConverseStreamOutputMemberMessageStop:
			s.stop = e.Value.StopReason
		case *types.ConverseStreamOutputMemberMetadata:
			s.tokens = *e.Value.Usage.TotalTokens
		}
	}
	return s, events.Err()
}

// However much came piece by piece, the client has all of it in the end.
func TestTheVendorsClientReadsAStream(t *testing.T) {
	t.Parallel()
	pieces := []*modelv1.GenerateDelta{
		dialect.ReasoningDelta("Two "), dialect.ReasoningDelta("and two."), dialect.PartDelta(spoken().GetChoices()[0].GetMessage().GetContent().GetList().GetParts()[0]),
		dialect.TextDelta("Größe "), dialect.CallDelta(&modelv1.ToolCallDelta{Id: "c1", Function: "add"}), dialect.CallDelta(&modelv1.ToolCallDelta{Arguments: `{"a": 1.5}`}),
	}
	for n := range len(pieces) + 1 {
		got, err := stream(t, answering(t, spoken(), pieces[:n]...))
		require.NoError(t, err)
		assert.Equal(t, []string{"Größe four.", "Two and two."}, []string{got.text, got.reasoning}, n)
		assert.NotEmpty(t, got.signature, n)
		var calls []string
		for _, call := range got.calls {
			calls = append(calls, call)
		}
		assert.ElementsMatch(t, []string{`c1 add {"a": 1.5}`, "c2 ping {}"}, calls, n)
		assert.Equal(t, []any{types.StopReasonToolUse, int32(15)}, []any{got.stop, got.tokens}, n)
	}
	sealed := chat.MessageOutput("m", chat.Assistant(""), modelv1.StopReason_STOP_REASON_STOP)
	sealed.GetChoices()[0].GetMessage().Content = chat.ListContent(&contentv1.Content{
		InternalJson: `{"bedrock_redacted_content":"b3BhcXVl"}`, Part: &contentv1.Content_Reasoning{Reasoning: &contentv1.Reasoning{Redacted: true}},
	})
	got, err := stream(t, answering(t, sealed))
	require.NoError(t, err)
	assert.Equal(t, "opaque", string(got.redacted))
}

func TestTheVendorsClientReadsErrors(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]string{
		400: "ValidationException", 401: "UnrecognizedClientException", 403: "AccessDeniedException", 404: "ResourceNotFoundException", 429: "ThrottlingException",
		500: "InternalServerException", 503: "ServiceUnavailableException",
	} {
		client := sdk(t, func(w http.ResponseWriter, _ string, _ []byte) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = w.Write(bedrockconverse.Codec{}.AppendError(nil, dialect.Failure{Status: status, Message: "no"}))
		})
		_, err := client.Converse(t.Context(), &bedrockruntime.ConverseInput{ModelId: new("m")})
		var said interface {
			ErrorCode() string
			ErrorMessage() string
		}
		require.ErrorAs(t, err, &said)
		assert.Equal(t, []string{want, "no"}, []string{said.ErrorCode(), said.ErrorMessage()})
	}
	client := sdk(t, func(w http.ResponseWriter, _ string, _ []byte) {
		w.Header().Set("Content-Type", "application/vnd.amazon.eventstream")
		s := bedrockconverse.Codec{}.NewStreamWriter(w, dialect.ResponseMeta{})
		assert.NoError(t, s.Write(dialect.TextDelta("Hi")))
		assert.NoError(t, s.Fail(dialect.Failure{Status: 429, Message: "slow"}))
	})
	got, err := stream(t, client)
	throttled, ok := errors.AsType[*types.ThrottlingException](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, []string{"Hi", "slow"}, []string{got.text, throttled.ErrorMessage()})
}

// asked returns the body that the vendor's client sends.
func asked(t *testing.T, input *bedrockruntime.ConverseInput) []byte {
	t.Helper()
	var sent []byte
	client := sdk(t, func(w http.ResponseWriter, _ string, body []byte) {
		sent = body
		w.WriteHeader(http.StatusTeapot)
	})
	_, err := client.Converse(context.WithoutCancel(t.Context()), input)
	require.Error(t, err)
	require.NotEmpty(t, sent)
	return sent
}

// Our request is the one that the vendor's client makes for the same conversation, and each is read as it was meant.
func TestARequestIsWhatTheVendorsClientSends(t *testing.T) {
	t.Parallel()
	image := chat.User("")
	image.Content = chat.ListContent(chat.TextPart("Look."), chat.ImagePart("data:image/png;base64,aGk="))
	thoughtful := chat.Assistant("", chat.Call("c1", "add", `{"a":1.5}`))
	thoughtful.Content = chat.ListContent(chat.ReasoningPart("Hm."), chat.TextPart("Let me see."))
	failed := chat.ToolMessage(&toolv1.ToolResult{CallId: "c1", Function: "add", Content: chat.TextContent("no")})
	failed.Error = &toolv1.ToolCallError{Message: "no"}
	r := &bedrockconverse.Request{
		Request: dialect.Request{
			Messages: []*modelv1.ChatMessage{chat.System("Be brief."), image, thoughtful, failed, chat.User("Go on.")},
			Tools:    []*toolv1.ToolInfo{{Name: "add", Description: "Adds.", ParametersJson: `{"type":"object"}`}}, Choice: chat.FunctionChoice("add"),
			Config: &modelv1.GenerateConfig{
				MaxTokens: new(int64(9)), Temperature: new(0.5), TopP: new(0.25), StopSeqs: &modelv1.StringList{Values: []string{"END"}},
				ResponseSchema: &modelv1.ResponseSchema{Name: "n", JsonSchema: `{"type":"object"}`},
			},
		},
		Fields: bedrockconverse.Fields{TopK: new(int32(40)), Thinking: &bedrockconverse.Thinking{Type: bedrockconverse.ThinkingEnabled, BudgetTokens: 2000}},
		Cache:  bedrockconverse.CacheText,
	}
	ours, err := r.Append(nil)
	require.NoError(t, err)
	text := func(text string) types.ContentBlock { return &types.ContentBlockMemberText{Value: text} }
	point := types.CachePointBlock{Type: types.CachePointTypeDefault}
	theirs := asked(t, &bedrockruntime.ConverseInput{
		ModelId: new("m"),
		System:  []types.SystemContentBlock{&types.SystemContentBlockMemberText{Value: "Be brief."}, &types.SystemContentBlockMemberCachePoint{Value: point}},
		Messages: []types.Message{
			{Role: types.ConversationRoleUser, Content: []types.ContentBlock{
				text("Look."), &types.ContentBlockMemberImage{Value: types.ImageBlock{Format: types.ImageFormatPng, Source: &types.ImageSourceMemberBytes{Value: []byte("hi")}}},
			}},
			{Role: types.ConversationRoleAssistant, Content: []types.ContentBlock{
				&types.ContentBlockMemberReasoningContent{Value: &types.ReasoningContentBlockMemberReasoningText{Value: types.ReasoningTextBlock{Text: new("Hm.")}}}, text("Let me see."),
				&types.ContentBlockMemberToolUse{Value: types.ToolUseBlock{ToolUseId: new("c1"), Name: new("add"), Input: document.NewLazyDocument(map[string]any{"a": 1.5})}},
				&types.ContentBlockMemberCachePoint{Value: point},
			}},
			{Role: types.ConversationRoleUser, Content: []types.ContentBlock{
				&types.ContentBlockMemberToolResult{Value: types.ToolResultBlock{ToolUseId: new("c1"), Status: types.ToolResultStatusError, Content: []types.ToolResultContentBlock{
					&types.ToolResultContentBlockMemberText{Value: "no"}, &types.ToolResultContentBlockMemberText{Value: "Go on."},
				}}}, &types.ContentBlockMemberCachePoint{Value: point},
			}},
		},
		ToolConfig: &types.ToolConfiguration{
			Tools: []types.Tool{&types.ToolMemberToolSpec{Value: types.ToolSpecification{
				Name: new("add"), Description: new("Adds."), InputSchema: &types.ToolInputSchemaMemberJson{Value: document.NewLazyDocument(map[string]any{"type": "object"})},
			}}},
			ToolChoice: &types.ToolChoiceMemberTool{Value: types.SpecificToolChoice{Name: new("add")}},
		},
		InferenceConfig: &types.InferenceConfiguration{MaxTokens: new(int32(9)), Temperature: new(float32(0.5)), TopP: new(float32(0.25)), StopSequences: []string{"END"}},
		OutputConfig: &types.OutputConfig{TextFormat: &types.OutputFormat{
			Type: types.OutputFormatTypeJsonSchema, Structure: &types.OutputFormatStructureMemberJsonSchema{Value: types.JsonSchemaDefinition{Schema: new(`{"type":"object"}`), Name: new("n")}},
		}},
		AdditionalModelRequestFields: document.NewLazyDocument(map[string]any{"top_k": 40, "thinking": map[string]any{"type": "enabled", "budget_tokens": 2000}}),
	})
	require.JSONEq(t, string(theirs), string(ours))
	for _, body := range [][]byte{ours, theirs} {
		got, err := bedrockconverse.Codec{}.ParseRequest(body)
		require.NoError(t, err)
		require.Len(t, got.Messages, 4)
		assert.Equal(t, "Let me see.", chat.Text(got.Messages[2]))
		assert.Equal(t, "add", got.Messages[3].GetFunction())
		assert.NotNil(t, got.Messages[3].GetError())
		c := got.Config
		assert.Equal(t, []any{int64(9), int32(40), int64(2000), `{"type":"object"}`}, []any{c.GetMaxTokens(), c.GetTopK(), c.GetReasoningTokens(), c.GetResponseSchema().GetJsonSchema()})
	}
	assert.True(t, json.Valid(ours))
}
