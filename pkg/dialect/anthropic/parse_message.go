package anthropic

import (
	"encoding/base64"
	"encoding/json"
	"fmt"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// parseMessages reads the conversation.
func (r *Request) parseMessages(wire []wireMessage) error {
	var calls openCalls
	answered := false // The turn before was the user's.
	for i, m := range wire {
		if m.Role == roleAssistant && answered {
			if err := calls.closed(); err != nil {
				return err
			}
		}
		messages, err := parseMessage(m, &calls)
		if err != nil {
			return dialect.At(fmt.Sprintf("messages.%d.", i), err)
		}
		if m.Role == roleAssistant {
			calls.open(i, messages[0].GetToolCalls())
		}
		if m.Role != roleSystem {
			answered = m.Role == roleUser
		}
		r.Messages = append(r.Messages, messages...)
	}
	return calls.closed()
}

// parseMessage parses a turn into messages: each tool result in a user's turn is a message of its own, and so is the
// content between two results.
func parseMessage(m wireMessage, calls *openCalls) ([]*modelv1.ChatMessage, error) {
	if m.Content.Absent() {
		return nil, dialect.Required("content")
	}
	text, blocks, isText, err := readBlocks(m.Content)
	if err != nil {
		return nil, unreadable("content", err)
	}
	switch m.Role {
	case roleSystem:
		return systemMessages("content", text, blocks, isText)
	case roleAssistant:
		if isText {
			blocks = []wireBlock{{Type: "text", Text: text}}
		}
		for i := range blocks {
			if err := blocks[i].checkSaid(); err != nil {
				return nil, dialect.At(fmt.Sprintf("content.%d.", i), err)
			}
		}
		message := chat.Assistant("")
		said := readSpoken(blocks, nil)
		unseal(said.parts)
		message.Content, message.ToolCalls = chat.ListContent(said.parts...), said.calls
		return []*modelv1.ChatMessage{message}, nil
	case roleUser:
		if isText {
			return []*modelv1.ChatMessage{chat.User(text)}, nil
		}
		return parseUser(blocks, calls)
	default:
		return nil, dialect.Invalid("role", "%q is none of user, assistant, system", m.Role)
	}
}

// checkSaid fails where a block of a model's turn is not as the model's vendor gave it.
func (b *wireBlock) checkSaid() (err error) {
	switch b.Type {
	case "image":
		_, err = b.mediaPart()
	case "tool_use":
		if input := string(b.Input); input != "" && input != "null" && input[0] != '{' {
			err = dialect.Invalid("input", "must be an object")
		}
	}
	return err
}

// systemMessages makes a message of each block of the instructions at a place.
func systemMessages(place, text string, blocks []wireBlock, isText bool) (messages []*modelv1.ChatMessage, err error) {
	if isText {
		return []*modelv1.ChatMessage{chat.System(text)}, nil
	}
	for i := range blocks {
		if blocks[i].Type != "text" {
			return nil, dialect.Invalid(fmt.Sprintf("%s.%d", place, i), "must be a text")
		}
		messages = append(messages, chat.System(blocks[i].Text))
	}
	return messages, nil
}

func parseUser(blocks []wireBlock, calls *openCalls) (messages []*modelv1.ChatMessage, err error) {
	var said []*contentv1.Content
	flush := func() {
		if len(said) > 0 {
			message := chat.User("")
			message.Content = chat.ListContent(said...)
			messages, said = append(messages, message), nil
		}
	}
	for i := range blocks {
		if blocks[i].Type == "tool_result" {
			flush()
			result, err := blocks[i].result(calls)
			if err != nil {
				return nil, dialect.At(fmt.Sprintf("content.%d.", i), err)
			}
			messages = append(messages, result)
			continue
		}
		parts, err := blocks[i].userParts()
		if err != nil {
			return nil, dialect.At(fmt.Sprintf("content.%d.", i), err)
		}
		said = append(said, parts...)
	}
	flush()
	return messages, nil
}

// result reads a tool's result.
func (b *wireBlock) result(calls *openCalls) (*modelv1.ChatMessage, error) {
	if b.ToolUseID == "" {
		return nil, dialect.Required("tool_use_id")
	}
	given := &toolv1.ToolResult{CallId: b.ToolUseID}
	text, blocks, isText, err := readBlocks(b.Content)
	if err != nil {
		return nil, unreadable("content", err)
	}
	given.Content = chat.TextContent(text)
	if !isText {
		parts := []*contentv1.Content{}
		for i := range blocks {
			more, err := blocks[i].userParts()
			if err != nil {
				return nil, dialect.At(fmt.Sprintf("content.%d.", i), err)
			}
			parts = append(parts, more...)
		}
		given.Content = chat.ListContent(parts...)
	}
	if b.IsError {
		given.Error = &toolv1.ToolCallError{Type: toolv1.ToolErrorType_TOOL_ERROR_TYPE_UNKNOWN, Message: chat.ContentText(given.GetContent())}
	}
	given.Function, err = calls.answer(b.ToolUseID)
	return chat.ToolMessage(given), err
}

// userParts reads a block of a user. A document that consists of blocks becomes those blocks.
func (b *wireBlock) userParts() ([]*contentv1.Content, error) {
	switch {
	case b.Type == "text":
		return []*contentv1.Content{b.textPart()}, nil
	case b.Type == "document" && b.Source != nil && b.Source.Type == "content":
		text, blocks, isText, err := readBlocks(b.Source.Content)
		if err != nil {
			return nil, unreadable("source.content", err)
		}
		if isText {
			return []*contentv1.Content{chat.TextPart(text)}, nil
		}
		var parts []*contentv1.Content
		for i := range blocks {
			if blocks[i].Type == "document" {
				return nil, dialect.Invalid(fmt.Sprintf("source.content.%d", i), "must be a text or an image")
			}
			inner, err := blocks[i].userParts()
			if err != nil {
				return nil, dialect.At(fmt.Sprintf("source.content.%d.", i), err)
			}
			parts = append(parts, inner...)
		}
		return parts, nil
	case b.Type == "image", b.Type == "document":
		part, err := b.mediaPart()
		return []*contentv1.Content{part}, err
	case b.Type == "":
		return nil, dialect.Required("type")
	default:
		return nil, dialect.NotSupported("type", "%q is not supported here", b.Type)
	}
}

// mediaPart reads an image or a document: its data, or its address.
func (b *wireBlock) mediaPart() (*contentv1.Content, error) {
	if b.Source == nil {
		return nil, dialect.Required("source")
	}
	uri := ""
	switch s := b.Source; s.Type {
	case "base64":
		if err := dialect.CheckBase64("source.data", s.Data); err != nil {
			return nil, err
		}
		uri = "data:" + s.MediaType + ";base64," + s.Data
	case "text":
		uri = "data:text/plain;base64," + base64.StdEncoding.EncodeToString([]byte(s.Data))
	case "url":
		if err := dialect.CheckMedia("source.url", s.URL); err != nil {
			return nil, err
		}
		uri = s.URL
	default:
		return nil, dialect.NotSupported("source.type", "%q is not supported here; give `base64`, `text` or `url`", s.Type)
	}
	if b.Type == "image" {
		return chat.ImagePart(uri), nil
	}
	var enabled struct {
		Enabled bool `json:"enabled"`
	}
	_ = json.Unmarshal(b.Citations, &enabled)
	return &contentv1.Content{Part: &contentv1.Content_Document{Document: &contentv1.Document{
		Media: &contentv1.Media{Source: &contentv1.Media_Uri{Uri: uri}}, Filename: b.Title, Citations: enabled.Enabled,
	}}}, nil
}

// unseal restores open reasoning from thinking that no server sealed: reasoning of another provider's model, as the
// client received it.
func unseal(parts []*contentv1.Content) {
	for i, part := range parts {
		if r := part.GetReasoning(); r.GetRedacted() && r.Summary != nil && r.GetReasoning() == "" {
			parts[i] = chat.ReasoningPart(r.GetSummary())
		}
	}
}
