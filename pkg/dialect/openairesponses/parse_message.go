package openairesponses

import (
	"cmp"
	"fmt"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/hosted"
	"github.com/evalfleet/evalfleet/pkg/dialect/toolname"
	"github.com/evalfleet/evalfleet/pkg/enum"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
)

// conversation collects items as messages.
type conversation struct {
	dialect.Turns
	tools *offer
	// last is the last item.
	last *item
	// restored means that the item before was the seal of what a tool did, so that the item of that is left out.
	restored bool
	// used counts what tools did, for those whose items have no ids.
	used int
}

// items reads the input; a text has none.
func (w *wireRequest) items() (items []item, err error) {
	if w.Input.IsText {
		return nil, nil
	}
	if err := jsonread.Unmarshal(w.Input.Raw, &items); err != nil {
		return nil, dialect.Invalid("input", "is neither a text nor a list of items: %v", err)
	}
	if len(items) == 0 {
		return nil, dialect.Invalid("input", "needs at least one item")
	}
	return items, nil
}

// messages reads the instructions and the input.
func (w *wireRequest) messages(items []item, tools *offer) ([]*modelv1.ChatMessage, error) {
	c := &conversation{tools: tools}
	if w.Instructions != "" {
		c.Add(chat.System(w.Instructions))
	}
	if w.Input.IsText {
		c.Add(chat.User(w.Input.Text))
		return c.Messages(), nil
	}
	c.last = &items[len(items)-1]
	if err := dialect.Each(items, "input[%d].", c.item); err != nil {
		return nil, err
	}
	messages := c.Messages()
	if len(messages) == 0 {
		return nil, dialect.Invalid("input", "has no item that is known here")
	}
	return messages, nil
}

// item adds an item. One without a type is a message.
func (c *conversation) item(it *item) error {
	it.Type = cmp.Or(it.Type, typeMessage)
	restored := c.restored
	c.restored = false
	switch it.Type {
	case typeMessage:
		return c.message(it)
	case typeReasoning:
		parts := it.parts()
		c.restored = parts[0].GetToolUse() != nil
		c.Say(parts...)
	case typeImage:
		if err := dialect.CheckBase64("result", it.Result); err != nil {
			return err
		}
		c.Say(it.parts()...)
	case typeCall, typeCustomCall:
		return c.call(it)
	case typeResult, typeCustomResult:
		content, err := it.Output.read("output")
		if err != nil {
			return err
		}
		c.Result(it.CallID, content)
	case typeReference:
		return notStored("")
	case typeCompacted:
		m, err := dialect.UnsealSummary("encrypted_content", it.Seal)
		if err != nil {
			return err
		}
		c.Add(cmp.Or(m, compactionMessage(it)))
	case typeCompact:
		if it != c.last {
			return dialect.Invalid("type", "%q must be the last item", it.Type)
		}
	default: // Tools are read before, and what is not known is passed over.
		if it.Use != nil && !restored && hosted.OpenAIKept(it.Use) {
			c.used++
			it.Use.Id = cmp.Or(it.Use.GetId(), fmt.Sprintf("use_%d", c.used)) // Some clients leave ids out.
			c.Say(it.parts()...)
		}
	}
	return nil
}

func (c *conversation) call(it *item) error {
	switch name := c.tools.nameOf(it.Namespace, it.Name, it.Type == typeCustomCall); {
	case it.CallID == "":
		return dialect.Required("call_id")
	case it.Name == "":
		return dialect.Required("name")
	case it.Type == typeCustomCall:
		c.Call(chat.Call(it.CallID, name, toolname.Arguments(it.Input)))
	default:
		c.Call(dialect.ToolCall(it.CallID, name, string(it.Arguments), nil))
	}
	return nil
}

func (c *conversation) message(it *item) error {
	roles := map[string]modelv1.Role{"system": modelv1.Role_ROLE_SYSTEM, "developer": modelv1.Role_ROLE_SYSTEM, "user": modelv1.Role_ROLE_USER}
	if it.Role == "assistant" {
		c.Say(it.parts()...)
		return nil
	}
	role, ok := roles[it.Role]
	if !ok {
		return dialect.Invalid("role", "%q is none of system, developer, user, assistant", it.Role)
	}
	content, err := it.Content.read("content")
	if err != nil {
		return err
	}
	c.Add(&modelv1.ChatMessage{Id: chat.NewID(), Role: role, Content: content})
	return nil
}

// read returns content for the model.
func (c content) read(param string) (*contentv1.MessageContent, error) {
	switch {
	case c == nil:
		return nil, dialect.Required(param)
	case len(c) == 1 && c[0].Type == "":
		return chat.TextContent(c[0].Text), nil
	}
	var parts []*contentv1.Content
	err := dialect.Each(c, param+"[%d].", func(p *part) error {
		read, err := p.read()
		parts = append(parts, read)
		return err
	})
	return chat.ListContent(parts...), err
}

func (p *part) read() (*contentv1.Content, error) {
	switch p.Type {
	case partInputText, partText:
		return chat.TextPart(p.Text), nil
	case partInputImage:
		if p.ImageURL == "" {
			return nil, dialect.NotSupported("image_url", "is required; files that were uploaded to a vendor are not known here")
		}
		if err := dialect.CheckMedia("image_url", p.ImageURL); err != nil {
			return nil, err
		}
		detail, ok := enum.Parse[contentv1.ImageDetail](cmp.Or(p.Detail, "auto"))
		if !ok {
			return nil, dialect.Invalid("detail", "%q is none of auto, low, high, original", p.Detail)
		}
		image := chat.ImagePart(p.ImageURL)
		image.GetImage().Detail = detail
		return image, nil
	case partInputFile:
		uri, member := p.FileData, "file_data"
		if p.FileURL != "" {
			uri, member = p.FileURL, "file_url"
		}
		if uri == "" {
			return nil, dialect.NotSupported("file_data", "is required, or file_url; files that were uploaded to a vendor are not known here")
		}
		if err := dialect.CheckMedia(member, uri); err != nil {
			return nil, err
		}
		mediaType, _, _ := dialect.SplitDataURI(uri)
		return chat.DocumentPart(uri, mediaType, p.Filename), nil
	default:
		return nil, dialect.Invalid("type", "%q is none of input_text, input_image, input_file", p.Type)
	}
}
