package bedrockconverse

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

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

func (c *citationsContent) text() (all string) {
	for _, piece := range c.Content {
		all += piece.Text
	}
	return all
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
	for i := range w.Messages {
		m, param := &w.Messages[i], fmt.Sprintf("messages[%d]", i)
		var err error
		switch m.Role {
		case roleUser:
			err = c.user(m, param)
		case roleAssistant:
			err = c.assistant(m, param)
		default:
			err = dialect.Invalid(param+".role", "%q is none of user, assistant", m.Role)
		}
		if err != nil {
			return nil, err
		}
	}
	return c.Messages(), nil
}

// user reads a message of the user: results of calls, each a message, and what is between them.
func (c *conversation) user(m *wireMessage, param string) error {
	if len(m.Content) == 0 {
		return dialect.Required(param + ".content")
	}
	for i := range m.Content {
		b, param := &m.Content[i], fmt.Sprintf("%s.content[%d]", param, i)
		if b.ToolResult != nil {
			if err := c.result(b.ToolResult, param+".toolResult"); err != nil {
				return err
			}
			continue
		}
		part, err := b.shown(param)
		if err != nil {
			return err
		}
		if part != nil {
			c.Hear(part)
		}
	}
	c.End()
	return nil
}

// shown reads a block that is a text or an image; nil for a mark of the cache.
func (b *wireBlock) shown(param string) (*contentv1.Content, error) {
	switch {
	case b.Text != nil:
		return chat.TextPart(*b.Text), nil
	case b.Image != nil:
		return b.Image.read(param + ".image")
	case b.CachePoint != nil:
		return nil, nil
	default:
		return nil, dialect.NotSupported(param, "is of a kind that is not supported here in a message of this role")
	}
}

func (i *image) read(param string) (*contentv1.Content, error) {
	if !slices.Contains(imageFormats, i.Format) {
		return nil, dialect.Invalid(param+".format", "%q is none of png, jpeg, gif, webp", i.Format)
	}
	if i.Source.Bytes == "" {
		return nil, dialect.NotSupported(param+".source", "is not fetched here; give the data itself as bytes")
	}
	if err := dialect.CheckBase64(param+".source.bytes", i.Source.Bytes); err != nil {
		return nil, err
	}
	return i.part(), nil
}

func (i *image) part() *contentv1.Content {
	return chat.ImagePart("data:image/" + i.Format + ";base64," + i.Source.Bytes)
}

// result reads the result of a call.
func (c *conversation) result(r *toolResult, param string) error {
	if r.ID == "" {
		return dialect.Required(param + ".toolUseId")
	}
	parts := []*contentv1.Content{}
	for i, b := range r.Content {
		part, err := b.read(fmt.Sprintf("%s.content[%d]", param, i))
		if err != nil {
			return err
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		parts = append(parts, chat.TextPart(""))
	}
	m := dialect.NewMessage(modelv1.Role_ROLE_TOOL, parts)
	c.Add(m)
	m.Function, m.ToolCallIds = c.functions[r.ID], []string{r.ID}
	switch r.Status {
	case "", statusSuccess:
	case statusError:
		m.Error = &toolv1.ToolCallError{Type: toolv1.ToolErrorType_TOOL_ERROR_TYPE_UNKNOWN, Message: chat.Text(m)}
	default:
		return dialect.Invalid(param+".status", "%q is none of success, error", r.Status)
	}
	return nil
}

func (b *resultBlock) read(param string) (*contentv1.Content, error) {
	switch {
	case b.Text != nil:
		return chat.TextPart(*b.Text), nil
	case b.JSON != nil:
		return chat.TextPart(string(b.JSON)), nil
	case b.Image != nil:
		return b.Image.read(param + ".image")
	default:
		return nil, dialect.NotSupported(param, "only text, json and image are supported here")
	}
}

// assistant reads a message of the model.
func (c *conversation) assistant(m *wireMessage, param string) error {
	var parts []*contentv1.Content
	var calls []*toolv1.ToolCall
	for i := range m.Content {
		b, param := &m.Content[i], fmt.Sprintf("%s.content[%d]", param, i)
		switch {
		case b.ToolUse != nil:
			call := b.ToolUse
			if call.ID == "" || call.Name == "" {
				return dialect.Required(param + ".toolUse." + map[bool]string{true: "toolUseId", false: "name"}[call.ID == ""])
			}
			c.functions[call.ID] = call.Name
			calls = append(calls, dialect.ToolCall(call.ID, call.Name, call.arguments(), nil))
		case b.Reasoning != nil:
			parts = append(parts, b.Reasoning.returned())
		case b.Citations != nil:
			parts = append(parts, chat.TextPart(b.Citations.text()))
		default:
			part, err := b.shown(param)
			if err != nil {
				return err
			}
			if part != nil {
				parts = append(parts, part)
			}
		}
	}
	answered := dialect.NewMessage(modelv1.Role_ROLE_ASSISTANT, parts)
	c.Add(answered)
	if len(parts) == 0 {
		answered.Content = chat.TextContent("")
	}
	answered.Source, answered.ToolCalls = modelv1.MessageSource_MESSAGE_SOURCE_GENERATE, calls
	return nil
}
