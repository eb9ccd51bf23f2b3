package anthropic

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// conversation are the messages of a client's request. All results of a model's turn belong in the user's turn after
// it: the vendor refuses any other conversation, and other vendors' models handle it badly.
type conversation struct {
	messages []*modelv1.ChatMessage
	// open are the calls without results, and turn is that which made the last of them.
	open dialect.OpenCalls
	turn int
	// answered means that the turn before was the user's.
	answered bool
}

// closed fails if a call has no result at the point where no further result can follow.
func (c *conversation) closed() error {
	ids := c.open.IDs()
	if len(ids) == 0 {
		return nil
	}
	return dialect.Invalid(fmt.Sprintf("messages.%d", c.turn),
		"`tool_use` ids were found without `tool_result` blocks immediately after: %s. Each `tool_use` block must have a corresponding `tool_result` block in the next message",
		strings.Join(ids, ", "))
}

// parseMessages reads the conversation.
func (r *Request) parseMessages(wire []wireMessage) error {
	c := &conversation{messages: r.Messages}
	for i := range wire {
		if wire[i].Role == roleAssistant && c.answered {
			if err := c.closed(); err != nil {
				return err
			}
		}
		before := len(c.messages)
		if err := c.message(&wire[i]); err != nil {
			return dialect.At(fmt.Sprintf("messages.%d.", i), err)
		}
		if calls := c.messages[before:]; wire[i].Role == roleAssistant && len(calls[0].GetToolCalls()) > 0 {
			c.open.Open(calls[0].GetToolCalls())
			c.turn = i
		}
		if wire[i].Role != roleSystem {
			c.answered = wire[i].Role == roleUser
		}
	}
	r.Messages = c.messages
	return c.closed()
}

func (c *conversation) add(messages ...*modelv1.ChatMessage) {
	c.messages = append(c.messages, messages...)
}

// message reads a turn as messages: each tool result in a user's turn is a message of its own, and so is the content
// between two results.
func (c *conversation) message(m *wireMessage) error {
	if m.Content.Absent() {
		return dialect.Required("content")
	}
	blocks, isText, err := readBlocks(m.Content)
	if err != nil {
		return unreadable("content", err)
	}
	switch m.Role {
	case roleSystem:
		messages, err := systemMessages("content.%d", blocks)
		c.add(messages...)
		return err
	case roleAssistant:
		if err := dialect.Each(blocks, "content.%d.", (*wireBlock).checkSaid); err != nil {
			return err
		}
		message := chat.Assistant("")
		parts, calls := readSpoken(blocks, nil)
		unseal(parts)
		message.Content, message.ToolCalls = chat.ListContent(parts...), calls
		c.add(message)
		return nil
	case roleUser:
		switch {
		case isText:
			c.add(chat.User(blocks[0].Text))
			return nil
		case len(blocks) == 0: // The vendor refuses it too, and without this turn the conversation is another one.
			return dialect.Invalid("content", "must not be empty")
		default:
			return c.user(blocks)
		}
	default:
		return dialect.Invalid("role", "%q is none of user, assistant, system", m.Role)
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
func systemMessages(place string, blocks []wireBlock) (messages []*modelv1.ChatMessage, err error) {
	err = dialect.Each(blocks, place, func(b *wireBlock) error {
		if b.Type != "text" {
			return dialect.Invalid("", "must be a text")
		}
		messages = append(messages, chat.System(b.Text))
		return nil
	})
	return messages, err
}

func (c *conversation) user(blocks []wireBlock) error {
	var said []*contentv1.Content
	flush := func() {
		if len(said) > 0 {
			message := chat.User("")
			message.Content = chat.ListContent(said...)
			c.add(message)
			said = nil
		}
	}
	err := dialect.Each(blocks, "content.%d.", func(b *wireBlock) error {
		if b.Type == "tool_result" {
			flush()
			return c.result(b)
		}
		parts, err := b.userParts()
		said = append(said, parts...)
		return err
	})
	flush()
	return err
}

// result reads a tool's result.
func (c *conversation) result(b *wireBlock) error {
	if b.ToolUseID == "" {
		return dialect.Required("tool_use_id")
	}
	blocks, isText, err := readBlocks(b.Content)
	if err != nil {
		return unreadable("content", err)
	}
	parts, err := userParts(blocks, "content.%d.", "")
	if err != nil {
		return err
	}
	given := &toolv1.ToolResult{CallId: b.ToolUseID, Content: chat.ListContent(parts...)}
	if isText {
		given.Content = chat.TextContent(blocks[0].Text)
	}
	if b.IsError {
		given.Error = &toolv1.ToolCallError{Type: toolv1.ToolErrorType_TOOL_ERROR_TYPE_UNKNOWN, Message: chat.ContentText(given.GetContent())}
	}
	call := c.open.CloseID(b.ToolUseID, "")
	if call == nil {
		return dialect.Invalid("", "unexpected `tool_use_id` found in `tool_result` blocks: %s. Each `tool_result` block must have a corresponding `tool_use` block in the previous message", b.ToolUseID)
	}
	given.Function = call.GetFunction()
	c.add(chat.ToolMessage(given))
	return nil
}

// userParts reads the blocks of a user at a place. A block of the type refused is an error; an empty type refuses none.
func userParts(blocks []wireBlock, place, refused string) ([]*contentv1.Content, error) {
	parts := []*contentv1.Content{}
	err := dialect.Each(blocks, place, func(b *wireBlock) error {
		if refused != "" && b.Type == refused {
			return dialect.Invalid("", "must be a text or an image")
		}
		more, err := b.userParts()
		parts = append(parts, more...)
		return err
	})
	return parts, err
}

// userParts reads a block of a user. A document that consists of blocks becomes those blocks, and a reference to an
// offered tool, which is what a search among a client's tools finds, becomes a text.
func (b *wireBlock) userParts() ([]*contentv1.Content, error) {
	switch {
	case b.Type == "text":
		return []*contentv1.Content{b.textPart()}, nil
	case b.Type == "document" && b.Source != nil && b.Source.Type == "content":
		blocks, _, err := readBlocks(b.Source.Content)
		if err != nil {
			return nil, unreadable("source.content", err)
		}
		parts, err := userParts(blocks, "source.content.%d.", "document")
		return append(b.context(), parts...), err
	case b.Type == "image", b.Type == "document":
		part, err := b.mediaPart()
		return append(b.context(), part), err
	case b.Type == "tool_reference":
		return []*contentv1.Content{chat.TextPart("Tool found: " + b.ToolName)}, nil
	case b.Type == "":
		return nil, dialect.Required("type")
	default:
		return nil, dialect.NotSupported("type", "%q is not supported here", b.Type)
	}
}

// context is what the client says of a document beside it, which other vendors have no place for: a text before it.
func (b *wireBlock) context() []*contentv1.Content {
	if b.Type != "document" || b.Context == "" {
		return nil
	}
	return []*contentv1.Content{chat.TextPart("Context of the next document: " + b.Context)}
}

// mediaPart reads an image or a document: its data, or its address.
func (b *wireBlock) mediaPart() (*contentv1.Content, error) {
	if b.Source == nil {
		return nil, dialect.Required("source")
	}
	var uri string
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
	document := chat.DocumentPart(uri, "", b.Title)
	document.GetDocument().Citations = enabled.Enabled
	return document, nil
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
