package grok

import (
	"math"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/xai"
)

// Check implements provider.Provider.
func (m *model) Check(c *modelv1.GenerateConfig) error {
	if seed := c.GetSeed(); seed < math.MinInt32 || seed > math.MaxInt32 {
		return rpcerr.InvalidField("config.seed", "must be within 32 bits for %s, not %d", Name, seed)
	}
	_, err := headers(c.GetExtraHeaders().GetValues())
	return err
}

// request makes the upstream request. It fails if the API cannot express the conversation.
func (m *model) request(r *provider.Request) (*xai.GetCompletionsRequest, error) {
	messages, err := messagesOf(r.Messages)
	if err != nil {
		return nil, err
	}
	tools, err := m.tools(r.Tools)
	if err != nil {
		return nil, err
	}
	c := r.Config
	request := &xai.GetCompletionsRequest{
		Model: string(m.name), Messages: messages, Tools: tools, N: new(int32(1)), UseEncryptedContent: true, ServiceTier: tiers[m.args.ServiceTier],
		Logprobs: c.GetLogprobs(), ReasoningEffort: m.name.effort(c.GetReasoningEffort()),
	}
	if len(tools) > 0 {
		request.ToolChoice = choiceOf(r.ToolChoice)
	}
	if c == nil {
		return request, nil
	}
	request.MaxTokens, request.Seed = narrow(c.MaxTokens), narrow(c.Seed)
	request.Temperature, request.TopP = single(c.Temperature), single(c.TopP)
	request.TopLogprobs, request.ParallelToolCalls = c.TopLogprobs, c.ParallelToolCalls
	if m.name.takesPenalties() {
		request.Stop = c.GetStopSeqs().GetValues()
		request.FrequencyPenalty, request.PresencePenalty = single(c.FrequencyPenalty), single(c.PresencePenalty)
	}
	if schema := c.GetResponseSchema(); dialect.IsAnyJSON(schema) {
		request.ResponseFormat = &xai.ResponseFormat{FormatType: xai.FormatType_FORMAT_TYPE_JSON_OBJECT}
	} else if schema != nil {
		request.ResponseFormat = &xai.ResponseFormat{FormatType: xai.FormatType_FORMAT_TYPE_JSON_SCHEMA, Schema: new(schema.GetJsonSchema())}
	}
	return request, nil
}

// narrow is a number with 32 bits, of which the greatest is more tokens than any model gives.
func narrow(n *int64) *int32 {
	if n == nil {
		return nil
	}
	return new(int32(max(math.MinInt32, min(*n, math.MaxInt32))))
}

// single is a number in single precision.
func single(f *float64) *float32 {
	if f == nil {
		return nil
	}
	return new(float32(*f))
}

// modes are the choices among tools that name none.
var modes = map[toolv1.ToolChoiceMode]xai.ToolMode{
	toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_AUTO: xai.ToolMode_TOOL_MODE_AUTO,
	toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_ANY:  xai.ToolMode_TOOL_MODE_REQUIRED,
	toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_NONE: xai.ToolMode_TOOL_MODE_NONE,
}

// choiceOf is a choice among the tools; nil leaves it to the server.
func choiceOf(choice *toolv1.ToolChoice) *xai.ToolChoice {
	if function := choice.GetFunction(); function != "" {
		return &xai.ToolChoice{ToolChoice: &xai.ToolChoice_FunctionName{FunctionName: function}}
	}
	if mode, known := modes[choice.GetMode()]; known {
		return &xai.ToolChoice{ToolChoice: &xai.ToolChoice_Mode{Mode: mode}}
	}
	return nil
}

// unsupported is the error for content that the API cannot express.
func unsupported(what string) error {
	return &dialect.UnsupportedError{API: "xAI's chat API", What: what, Field: "messages"}
}

func messagesOf(given []*modelv1.ChatMessage) ([]*xai.Message, error) {
	all := make([]*xai.Message, 0, len(given))
	for _, m := range given {
		message, err := messageOf(m)
		if err != nil {
			return nil, err
		}
		all = append(all, message)
	}
	return all, nil
}

func messageOf(m *modelv1.ChatMessage) (message *xai.Message, err error) {
	switch m.GetRole() {
	case modelv1.Role_ROLE_USER:
		message = &xai.Message{Role: xai.MessageRole_ROLE_USER}
		message.Content, err = contentOf(m.GetContent())
	case modelv1.Role_ROLE_ASSISTANT:
		return assistantOf(m)
	case modelv1.Role_ROLE_TOOL:
		message = &xai.Message{Role: xai.MessageRole_ROLE_TOOL, Content: []*xai.Content{textOf(chat.ResultText(m))}}
		if ids := m.GetToolCallIds(); len(ids) > 0 {
			message.ToolCallId = &ids[0]
		}
	default:
		message = &xai.Message{Role: xai.MessageRole_ROLE_SYSTEM}
		message.Content, err = contentOf(m.GetContent())
	}
	return message, err
}
