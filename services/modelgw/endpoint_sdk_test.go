package modelgw_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3"
	openaioption "github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genai"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/modelgw"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/providertest"
)

// What a user of a vendor's package asks and does: a question, a call of the tool weather with a city, its result, and
// an answer.
const (
	sdkQuestion = "What is the weather in Zürich?"
	sdkArgument = `{"city":"Zürich"}`
	sdkResult   = "12 degrees"
	sdkAnswer   = "It has 12 degrees."
)

var citySchema = map[string]any{"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}}, "required": []string{"city"}}

// converse is such a conversation by a vendor's package. It returns the arguments of the call and the answer.
type converse func(ctx context.Context, url, model string, stream bool) (arguments, answer string, err error)

// The vendors' own packages for Go talk to models of every vendor, whole and streamed.
func TestTheVendorsOwnPackagesTalkToAnyModel(t *testing.T) {
	t.Parallel()
	for client, converse := range map[string]converse{
		"openai-go chat": byChat, "openai-go responses": byResponses, "anthropic-sdk-go": byMessages, "genai": byGenAI,
	} {
		for model, server := range map[string]func(testing.TB, ...providertest.Answer) string{
			claudeModel: providertest.MessageServer, geminiModel: providertest.GeminiServer, "openai/gpt-4o": providertest.ChatServer,
			gptModel: providertest.ResponsesServer, "mistral/mistral-large-latest": providertest.ConversationsServer,
		} {
			for _, stream := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s with %s, streamed %t", client, model, stream), func(t *testing.T) {
					t.Parallel()
					v := behind(t, server(t, providertest.Answer{Function: "weather", Arguments: sdkArgument}, providertest.Answer{Text: sdkAnswer}))
					g := serveWeb(t, v, func(c *modelgw.Config, _ *modelgw.Deps) {
						c.Anthropic.APIKey, c.Anthropic.BaseURL = config.NewSecret("k"), v.URL
						c.Google.APIKey, c.Google.BaseURL = config.NewSecret("k"), v.URL
						c.Mistral.APIKey, c.Mistral.BaseURL = config.NewSecret("k"), v.URL
						c.OpenAI.ResponsesAPI = new(model == gptModel)
					})
					arguments, answer, err := converse(waittest.Context(t), g.url, model, stream)
					require.NoError(t, err)
					assert.JSONEq(t, sdkArgument, arguments)
					assert.Equal(t, sdkAnswer, answer)
					assert.Contains(t, string(waittest.For(t, v.body, "the question")), "weather")
					second := string(waittest.For(t, v.body, "the result of the tool"))
					assert.Contains(t, second, sdkResult)
					assert.Contains(t, second, "Zürich", "the call is in the conversation")
				})
			}
		}
	}
}

func byChat(ctx context.Context, url, model string, stream bool) (arguments, answer string, err error) {
	client := openai.NewClient(openaioption.WithBaseURL(url+"/v1/"), openaioption.WithAPIKey("right"))
	params := openai.ChatCompletionNewParams{
		Model: model, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(sdkQuestion)},
		Tools: []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{Name: "weather", Parameters: citySchema})},
	}
	ask := func() (openai.ChatCompletionMessage, error) {
		if !stream {
			completion, err := client.Chat.Completions.New(ctx, params)
			if err != nil {
				return openai.ChatCompletionMessage{}, err
			}
			return completion.Choices[0].Message, nil
		}
		whole, pieces := openai.ChatCompletionAccumulator{}, client.Chat.Completions.NewStreaming(ctx, params)
		for pieces.Next() {
			whole.AddChunk(pieces.Current())
		}
		if err := pieces.Err(); err != nil {
			return openai.ChatCompletionMessage{}, err
		}
		return whole.Choices[0].Message, nil
	}
	said, err := ask()
	if err != nil || len(said.ToolCalls) != 1 {
		return "", said.Content, err
	}
	call := said.ToolCalls[0]
	params.Messages = append(params.Messages, said.ToParam(), openai.ToolMessage(sdkResult, call.ID))
	said, err = ask()
	return call.Function.Arguments, said.Content, err
}

func byResponses(ctx context.Context, url, model string, stream bool) (arguments, answer string, err error) {
	client := openai.NewClient(openaioption.WithBaseURL(url+"/v1/"), openaioption.WithAPIKey("right"))
	items := responses.ResponseInputParam{responses.ResponseInputItemParamOfMessage(sdkQuestion, responses.EasyInputMessageRoleUser)}
	ask := func() (*responses.Response, error) {
		params := responses.ResponseNewParams{
			Model: model, Input: responses.ResponseNewParamsInputUnion{OfInputItemList: items},
			Tools: []responses.ToolUnionParam{responses.ToolParamOfFunction("weather", citySchema, false)},
		}
		if !stream {
			return client.Responses.New(ctx, params)
		}
		whole, events := &responses.Response{}, client.Responses.NewStreaming(ctx, params)
		for events.Next() {
			if event := events.Current(); event.Type == "response.completed" {
				whole = &event.Response
			}
		}
		return whole, events.Err()
	}
	said, err := ask()
	if err != nil {
		return "", "", err
	}
	for _, item := range said.Output {
		if item.Type == "function_call" {
			call := item.AsFunctionCall()
			arguments = call.Arguments
			result := responses.ResponseInputItemParamOfFunctionCallOutput(sdkResult)
			result.OfFunctionCallOutput.CallID = openai.String(call.CallID)
			items = append(items, responses.ResponseInputItemParamOfFunctionCall(call.Arguments, call.CallID, call.Name), result)
		}
	}
	if said, err = ask(); err != nil {
		return arguments, "", err
	}
	return arguments, said.OutputText(), nil
}

func byMessages(ctx context.Context, url, model string, stream bool) (arguments, answer string, err error) {
	client := anthropic.NewClient(anthropicoption.WithBaseURL(url), anthropicoption.WithAPIKey("right"))
	params := anthropic.MessageNewParams{
		Model: model, MaxTokens: 100, Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(sdkQuestion))},
		Tools: []anthropic.ToolUnionParam{{OfTool: &anthropic.ToolParam{
			Name: "weather", InputSchema: anthropic.ToolInputSchemaParam{Properties: citySchema["properties"], Required: []string{"city"}},
		}}},
	}
	ask := func() (*anthropic.Message, error) {
		if !stream {
			return client.Messages.New(ctx, params)
		}
		whole, events := &anthropic.Message{}, client.Messages.NewStreaming(ctx, params)
		for events.Next() {
			if err := whole.Accumulate(events.Current()); err != nil {
				return nil, err
			}
		}
		return whole, events.Err()
	}
	said, err := ask()
	if err != nil {
		return "", "", err
	}
	for _, block := range said.Content {
		if block.Type == "tool_use" {
			arguments = string(block.AsToolUse().Input)
			params.Messages = append(params.Messages, said.ToParam(), anthropic.NewUserMessage(anthropic.NewToolResultBlock(block.ID, sdkResult, false)))
		}
	}
	if said, err = ask(); err != nil {
		return arguments, "", err
	}
	for _, block := range said.Content {
		answer += block.Text
	}
	return arguments, answer, nil
}

func byGenAI(ctx context.Context, url, model string, stream bool) (arguments, answer string, err error) {
	client, err := genai.NewClient(ctx, &genai.ClientConfig{APIKey: "right", Backend: genai.BackendGeminiAPI, HTTPOptions: genai.HTTPOptions{BaseURL: url}})
	if err != nil {
		return "", "", err
	}
	contents := genai.Text(sdkQuestion)
	settings := &genai.GenerateContentConfig{
		Tools: []*genai.Tool{{FunctionDeclarations: []*genai.FunctionDeclaration{{Name: "weather", ParametersJsonSchema: citySchema}}}},
	}
	ask := func() (*genai.Content, error) {
		if !stream {
			said, err := client.Models.GenerateContent(ctx, model, contents, settings)
			if err != nil {
				return nil, err
			}
			return said.Candidates[0].Content, nil
		}
		whole := &genai.Content{Role: genai.RoleModel}
		for piece, err := range client.Models.GenerateContentStream(ctx, model, contents, settings) {
			if err != nil {
				return nil, err
			}
			for _, candidate := range piece.Candidates {
				if candidate.Content != nil {
					whole.Parts = append(whole.Parts, candidate.Content.Parts...)
				}
			}
		}
		return whole, nil
	}
	said, err := ask()
	if err != nil {
		return "", "", err
	}
	contents = append(contents, said)
	for _, part := range said.Parts {
		if call := part.FunctionCall; call != nil {
			encoded, _ := json.Marshal(call.Args)
			arguments = string(encoded)
			result := genai.NewPartFromFunctionResponse(call.Name, map[string]any{"output": sdkResult})
			result.FunctionResponse.ID = call.ID
			contents = append(contents, &genai.Content{Role: genai.RoleUser, Parts: []*genai.Part{result}})
		}
	}
	if said, err = ask(); err != nil {
		return arguments, "", err
	}
	for _, part := range said.Parts {
		answer += part.Text
	}
	return arguments, answer, nil
}
