package grok

import (
	"github.com/evalfleet/evalfleet/pkg/dialect"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/xai"
)

func textOf(text string) *xai.Content { return &xai.Content{Content: &xai.Content_Text{Text: text}} }

// contentOf is the content of a message: a text, or its parts.
func contentOf(c *contentv1.MessageContent) ([]*xai.Content, error) {
	if c.GetList() == nil {
		return []*xai.Content{textOf(c.GetText())}, nil
	}
	var all []*xai.Content
	for _, part := range c.GetList().GetParts() {
		content, err := partOf(part)
		if err != nil {
			return nil, err
		}
		all = append(all, content)
	}
	return all, nil
}

// details are how closely an image is looked at; the API knows nothing closer than high.
var details = map[contentv1.ImageDetail]xai.ImageDetail{
	contentv1.ImageDetail_IMAGE_DETAIL_UNSPECIFIED: xai.ImageDetail_DETAIL_AUTO,
	contentv1.ImageDetail_IMAGE_DETAIL_AUTO:        xai.ImageDetail_DETAIL_AUTO,
	contentv1.ImageDetail_IMAGE_DETAIL_LOW:         xai.ImageDetail_DETAIL_LOW,
	contentv1.ImageDetail_IMAGE_DETAIL_HIGH:        xai.ImageDetail_DETAIL_HIGH,
	contentv1.ImageDetail_IMAGE_DETAIL_ORIGINAL:    xai.ImageDetail_DETAIL_HIGH,
}

// partOf is a text or an image; the API takes nothing else.
func partOf(part *contentv1.Content) (*xai.Content, error) {
	switch p := part.GetPart().(type) {
	case *contentv1.Content_Text:
		return textOf(p.Text.GetText()), nil
	case *contentv1.Content_Image:
		return &xai.Content{Content: &xai.Content_ImageUrl{ImageUrl: &xai.ImageUrlContent{
			Source: &xai.ImageUrlContent_ImageUrl{ImageUrl: p.Image.GetMedia().GetUri()}, Detail: details[p.Image.GetDetail()],
		}}}, nil
	default:
		return nil, unsupported("content that is neither a text nor an image")
	}
}

// assistantOf is a message of the model. Calls that the server ran precede those of the client's tools. Of reasoning in
// several parts the last counts, as the server sends one.
func assistantOf(m *modelv1.ChatMessage) (*xai.Message, error) {
	message := &xai.Message{Role: xai.MessageRole_ROLE_ASSISTANT}
	list := m.GetContent().GetList()
	if list == nil {
		message.Content = []*xai.Content{textOf(m.GetContent().GetText())}
	}
	for _, part := range list.GetParts() {
		switch p := part.GetPart().(type) {
		case *contentv1.Content_Reasoning:
			if p.Reasoning.GetRedacted() {
				message.EncryptedContent = p.Reasoning.GetReasoning()
			} else {
				message.ReasoningContent = new(p.Reasoning.GetReasoning())
			}
		case *contentv1.Content_ToolUse:
			message.ToolCalls = append(message.ToolCalls, callOf(p.ToolUse.GetId(), toolTypes[p.ToolUse.GetToolType()], p.ToolUse.GetName(), p.ToolUse.GetArguments()))
		default:
			content, err := partOf(part)
			if err != nil {
				return nil, err
			}
			message.Content = append(message.Content, content)
		}
	}
	for _, call := range m.GetToolCalls() {
		message.ToolCalls = append(message.ToolCalls, callOf(call.GetId(), xai.ToolCallType_TOOL_CALL_TYPE_CLIENT_SIDE_TOOL, call.GetFunction(), dialect.ArgumentsOf(call)))
	}
	if len(message.GetContent()) == 0 && len(message.GetToolCalls()) == 0 {
		message.Content = []*xai.Content{textOf("")}
	}
	return message, nil
}

func callOf(id string, kind xai.ToolCallType, function, arguments string) *xai.ToolCall {
	return &xai.ToolCall{Id: id, Type: kind, Tool: &xai.ToolCall_Function{Function: &xai.FunctionCall{Name: function, Arguments: arguments}}}
}

// toolTypes are the kinds of tools that the server runs.
var toolTypes = map[contentv1.ToolUseType]xai.ToolCallType{
	contentv1.ToolUseType_TOOL_USE_TYPE_WEB_SEARCH:     xai.ToolCallType_TOOL_CALL_TYPE_WEB_SEARCH_TOOL,
	contentv1.ToolUseType_TOOL_USE_TYPE_MCP_CALL:       xai.ToolCallType_TOOL_CALL_TYPE_MCP_TOOL,
	contentv1.ToolUseType_TOOL_USE_TYPE_CODE_EXECUTION: xai.ToolCallType_TOOL_CALL_TYPE_CODE_EXECUTION_TOOL,
}
