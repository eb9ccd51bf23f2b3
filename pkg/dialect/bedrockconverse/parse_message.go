package bedrockconverse

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

type wireMessage struct {
	Role    string      `json:"role"`
	Content []wireBlock `json:"content"`
}

// wireBlock is a block of content. One of its members is set; a block of another kind has none of these.
type wireBlock struct {
	Text       *string           `json:"text"`
	Image      *image            `json:"image"`
	ToolUse    *toolUse          `json:"toolUse"`
	ToolResult *toolResult       `json:"toolResult"`
	Reasoning  *reasoningContent `json:"reasoningContent"`
	Citations  *citationsContent `json:"citationsContent"`
	CachePoint json.RawMessage   `json:"cachePoint"`
}

type image struct {
	Format string `json:"format"`
	Source struct {
		Bytes string `json:"bytes"`
	} `json:"source"`
}

type toolUse struct {
	ID    string            `json:"toolUseId"`
	Name  string            `json:"name"`
	Input dialect.Arguments `json:"input"`
}

// arguments are the text of the arguments; none are an empty object.
func (u *toolUse) arguments() string { return cmp.Or(string(u.Input), "{}") }

type toolResult struct {
	ID      string        `json:"toolUseId"`
	Content []resultBlock `json:"content"`
	Status  string        `json:"status"`
}

type resultBlock struct {
	Text  *string         `json:"text"`
	JSON  json.RawMessage `json:"json"`
	Image *image          `json:"image"`
}

type reasoningContent struct {
	Text     *reasoningText `json:"reasoningText"`
	Redacted string         `json:"redactedContent"`
}

type reasoningText struct {
	Text      string `json:"text"`
	Signature string `json:"signature"`
}

// citationsContent is a text with its sources.
type citationsContent struct {
	Content []struct {
		Text string `json:"text"`
	} `json:"content"`
}

func (c *citationsContent) text() string {
	var all strings.Builder
	for _, piece := range c.Content {
		all.WriteString(piece.Text)
	}
	return all.String()
}

// conversation collects the messages of a request.
type conversation struct {
	dialect.Turns
	// functions are the functions of the calls, by their ids: results name the call alone.
	functions map[string]string
}

func (w *wireRequest) messages() ([]*modelv1.ChatMessage, error) {
	c := &conversation{functions: map[string]string{}}
	for i := range w.System {
		switch b := &w.System[i]; {
		case b.Text != nil:
			c.Add(chat.System(*b.Text))
		case b.CachePoint == nil:
			return nil, dialect.NotSupported(fmt.Sprintf("system[%d]", i), "only text is supported here")
		}
	}
	if err := dialect.Each(w.Messages, "messages[%d].", c.message); err != nil {
		return nil, err
	}
	return c.Messages(), nil
}

func (c *conversation) message(m *wireMessage) error {
	switch m.Role {
	case roleUser:
		return c.user(m)
	case roleAssistant:
		return c.assistant(m)
	default:
		return dialect.Invalid("role", "%q is none of user, assistant", m.Role)
	}
}

// user reads a message of the user: results of calls, each a message, and what is between them.
func (c *conversation) user(m *wireMessage) error {
	if len(m.Content) == 0 {
		return dialect.Required("content")
	}
	err := dialect.Each(m.Content, "content[%d].", func(b *wireBlock) error {
		if b.ToolResult != nil {
			return dialect.At("toolResult.", c.result(b.ToolResult))
		}
		part, err := b.shown()
		if part != nil {
			c.Hear(part)
		}
		return err
	})
	c.End()
	return err
}

// shown reads a block that is a text or an image; nil for a mark of the cache.
func (b *wireBlock) shown() (*contentv1.Content, error) {
	switch {
	case b.Text != nil:
		return chat.TextPart(*b.Text), nil
	case b.Image != nil:
		return b.Image.read()
	case b.CachePoint != nil:
		return nil, nil
	default:
		return nil, dialect.NotSupported("", "is of a kind that is not supported here in a message of this role")
	}
}

func (i *image) read() (*contentv1.Content, error) {
	if !slices.Contains(imageFormats, i.Format) {
		return nil, dialect.Invalid("image.format", "%q is none of png, jpeg, gif, webp", i.Format)
	}
	if i.Source.Bytes == "" {
		return nil, dialect.NotSupported("image.source", "is not fetched here; give the data itself as bytes")
	}
	if err := dialect.CheckBase64("image.source.bytes", i.Source.Bytes); err != nil {
		return nil, err
	}
	return i.part(), nil
}

func (i *image) part() *contentv1.Content {
	return chat.ImagePart("data:image/" + i.Format + ";base64," + i.Source.Bytes)
}

// result reads the result of a call.
func (c *conversation) result(r *toolResult) error {
	if r.ID == "" {
		return dialect.Required("toolUseId")
	}
	var parts []*contentv1.Content
	err := dialect.Each(r.Content, "content[%d].", func(b *resultBlock) error {
		part, err := b.read()
		parts = append(parts, part)
		return err
	})
	if err != nil {
		return err
	}
	var failure *toolv1.ToolCallError
	switch r.Status {
	case "", statusSuccess:
	case statusError:
		said := chat.ContentText(chat.ListContent(parts...))
		failure = &toolv1.ToolCallError{Type: toolv1.ToolErrorType_TOOL_ERROR_TYPE_UNKNOWN, Message: said}
	default:
		return dialect.Invalid("status", "%q is none of success, error", r.Status)
	}
	c.Outcome(r.ID, c.functions[r.ID], parts, failure)
	return nil
}

func (b *resultBlock) read() (*contentv1.Content, error) {
	switch {
	case b.Text != nil:
		return chat.TextPart(*b.Text), nil
	case b.JSON != nil:
		return chat.TextPart(string(b.JSON)), nil
	case b.Image != nil:
		return b.Image.read()
	default:
		return nil, dialect.NotSupported("", "only text, json and image are supported here")
	}
}

// assistant reads a message of the model.
func (c *conversation) assistant(m *wireMessage) error {
	parts := []*contentv1.Content{}
	var calls []*toolv1.ToolCall
	err := dialect.Each(m.Content, "content[%d].", func(b *wireBlock) error {
		switch {
		case b.ToolUse != nil:
			call := b.ToolUse
			switch {
			case call.ID == "":
				return dialect.Required("toolUse.toolUseId")
			case call.Name == "":
				return dialect.Required("toolUse.name")
			}
			c.functions[call.ID] = call.Name
			calls = append(calls, dialect.ToolCall(call.ID, call.Name, call.arguments(), nil))
		case b.Reasoning != nil:
			parts = append(parts, b.Reasoning.returned())
		case b.Citations != nil:
			parts = append(parts, chat.TextPart(b.Citations.text()))
		default:
			part, err := b.shown()
			if part != nil {
				parts = append(parts, part)
			}
			return err
		}
		return nil
	})
	if len(parts) == 0 {
		parts = append(parts, chat.TextPart(""))
	}
	c.Answer(parts, calls)
	return err
}
