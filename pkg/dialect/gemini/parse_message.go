package gemini

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
)

// conversation collects the messages of a request.
type conversation struct {
	dialect.Turns
	// open are the calls without a result yet: clients that send no ids mean those of a function in their order.
	open dialect.OpenCalls
	// unnamed counts the calls and results without an id.
	unnamed int
	// said are the parts of the model's turn that is being read, and isAnswer means that there is one.
	said     []piece
	isAnswer bool
}

// piece is a part of a model's turn. Several turns in a row are one: clients send each event of a stream back as a turn.
type piece struct {
	*part
	// begins means that it is the first of its turn on the wire.
	begins bool
}

// newID makes an id for a call, or for a result without a call. It depends on nothing but the conversation, so that a
// longer one has the ids of its shorter prefix.
func (c *conversation) newID(function string) string {
	c.unnamed++
	return fmt.Sprintf("call_%s_%d", function, c.unnamed)
}

func (w *wireRequest) messages() ([]*modelv1.ChatMessage, error) {
	c := &conversation{}
	if w.System != nil {
		if err := c.system(w.System); err != nil {
			return nil, err
		}
	}
	if err := dialect.Each(w.Contents, "contents[%d].", c.turn); err != nil {
		return nil, err
	}
	c.answer()
	return c.Messages(), nil
}

// system reads the instructions, which are texts.
func (c *conversation) system(turn *content) error {
	var texts []*contentv1.Content
	err := dialect.Each(turn.Parts, "systemInstruction.parts[%d].", func(p *part) error {
		if p.Text == nil {
			return dialect.NotSupported("", "only text is supported here")
		}
		texts = append(texts, chat.TextPart(*p.Text))
		return nil
	})
	if len(texts) > 0 {
		c.Add(dialect.NewMessage(modelv1.Role_ROLE_SYSTEM, texts))
	}
	return err
}

// turn reads a turn, with its bytes in the alphabet that all vendors read.
func (c *conversation) turn(turn *content) error {
	standardize(turn.Parts)
	switch turn.Role {
	case roleUser, "", "function":
		return c.user(turn)
	case roleModel:
		return c.model(turn)
	default:
		return dialect.Invalid("role", "%q is none of user, model", turn.Role)
	}
}

func standardize(parts []part) {
	for i := range parts {
		p := &parts[i]
		p.Signature = dialect.StandardBase64(p.Signature)
		if p.Inline != nil {
			p.Inline.Data = dialect.StandardBase64(p.Inline.Data)
		}
		if p.Result != nil {
			standardize(p.Result.Parts)
		}
	}
}

// user reads a turn of the user: results of calls, each a message, and what is between them.
func (c *conversation) user(turn *content) error {
	if len(turn.Parts) == 0 {
		return dialect.Required("parts")
	}
	c.answer()
	err := dialect.Each(turn.Parts, "parts[%d].", func(p *part) error {
		if p.Result != nil {
			return dialect.At("functionResponse.", c.result(p.Result))
		}
		read, err := p.read()
		c.Hear(read)
		return err
	})
	c.End()
	return err
}

// uploads is the host of files that were uploaded to Google, which only Google can read.
const uploads = "generativelanguage.googleapis.com"

// far reads media that is an address.
func far(file json.RawMessage) (*contentv1.Content, error) {
	const param = "fileData"
	var f struct {
		Type string `json:"mimeType"`
		URI  string `json:"fileUri"`
	}
	if jsonread.Unmarshal(file, &f) != nil || f.URI == "" {
		return nil, dialect.Invalid(param, "is no object with fileUri and mimeType")
	}
	if u, err := url.Parse(f.URI); err == nil && (u.Host == uploads || u.Scheme == "gs") {
		return nil, dialect.NotSupported(param+".fileUri", "is a file that is kept at the vendor and not known here; give the data itself as inlineData")
	}
	if err := dialect.CheckMedia(param+".fileUri", f.URI); err != nil {
		return nil, err
	}
	return dialect.MediaPart(f.Type, f.URI), nil
}

// read reads a part that is a text or media.
func (p *part) read() (*contentv1.Content, error) {
	switch {
	case p.Inline != nil && p.Inline.Type == "":
		return nil, dialect.Required("inlineData.mimeType")
	case p.Inline != nil:
		if err := dialect.CheckBase64("inlineData.data", p.Inline.Data); err != nil {
			return nil, err
		}
		return dialect.MediaPart(p.Inline.Type, p.Inline.uri()), nil
	case p.File != nil:
		return far(p.File)
	case p.Text != nil:
		return chat.TextPart(*p.Text), nil
	default:
		return nil, dialect.Invalid("", "is no part that a turn of this role has here")
	}
}

// result reads the result of a call.
func (c *conversation) result(r *functionResponse) error {
	if r.Name == "" {
		return dialect.Required("name")
	}
	text, failure := r.outcome()
	parts := []*contentv1.Content{chat.TextPart(text)} // Of a failure too: some formats send the content alone.
	err := dialect.Each(r.Parts, "parts[%d].", func(p *part) error {
		read, err := p.read()
		parts = append(parts, read)
		return err
	})
	if err == nil {
		c.Outcome(c.answered(r), r.Name, parts, failure)
	}
	return err
}

// outcome is the text of the output, if the response has that alone; of the error, and a failure, if it has that
// alone; and else the whole document.
func (r *functionResponse) outcome() (text string, failure *toolv1.ToolCallError) {
	var members map[string]json.RawMessage
	if json.Unmarshal(r.Response, &members) == nil && len(members) == 1 {
		if raw := members[memberOutput]; len(raw) > 0 && raw[0] == '"' && json.Unmarshal(raw, &text) == nil {
			return text, nil
		}
		if raw := members[memberError]; len(raw) > 0 && raw[0] == '"' && json.Unmarshal(raw, &text) == nil {
			return text, &toolv1.ToolCallError{Type: toolv1.ToolErrorType_TOOL_ERROR_TYPE_UNKNOWN, Message: text}
		}
	}
	return string(r.Response), nil
}

// answered returns the id of the call that a result belongs to, which is then no longer open.
func (c *conversation) answered(r *functionResponse) string {
	var call *toolv1.ToolCall
	if r.ID == "" {
		call = c.open.CloseName(r.Name)
	} else {
		call = c.open.CloseID(r.ID, r.Name)
	}
	switch {
	case call != nil:
		return call.GetId()
	case r.ID != "":
		return r.ID
	default:
		return c.newID(r.Name)
	}
}

// model reads a turn of the model.
func (c *conversation) model(turn *content) error {
	err := dialect.Each(turn.Parts, "parts[%d].", func(p *part) (err error) {
		switch {
		case p.Result != nil:
			return dialect.Invalid("functionResponse", "is of a turn of the user")
		case p.Call != nil && p.Call.Name == "":
			return dialect.Required("functionCall.name")
		case p.Call == nil && p.Code == nil && p.CodeResult == nil:
			_, err = p.read()
		}
		c.said = append(c.said, piece{p, p == &turn.Parts[0]})
		return err
	})
	c.isAnswer = true
	return err
}

// answer ends the model's turn, if there is one.
func (c *conversation) answer() {
	if !c.isAnswer {
		return
	}
	read := turnReader{newID: c.newID}
	for said := c.said; len(said) > 0; {
		p, end := *said[0].part, 1
		if p.isText() {
			text := []string{*p.Text}
			for ; end < len(said) && said[end].isPieceAfter(&p); end++ {
				text = append(text, *said[end].Text)
				p.Signature = cmp.Or(said[end].Signature, p.Signature)
			}
			p.Text = new(strings.Join(text, ""))
		}
		if !p.isText() || *p.Text != "" || p.Signature != "" {
			read.part(&p)
		}
		said = said[end:]
	}
	if !read.signed { // No Gemini server has answered it: anchors have nothing to keep, and mean nothing to other vendors.
		read.parts = slices.DeleteFunc(read.parts, emptyAnchor)
	}
	c.Answer(read.parts, read.calls)
	c.open.Open(read.calls)
	c.said, c.isAnswer = nil, false
}

// isText reports whether a part is a text or a thought.
func (p *part) isText() bool {
	return p.Text != nil && p.Call == nil && p.Inline == nil && p.File == nil && p.Code == nil && p.CodeResult == nil
}

// isPieceAfter reports whether an event of a stream went on with the text before it. A signature is on the first piece
// of a text, and on the last of a thought.
func (p piece) isPieceAfter(before *part) bool {
	signature := p.Signature
	if p.Thought {
		signature = before.Signature
	}
	return p.begins && p.isText() && p.Thought == before.Thought && signature == ""
}
