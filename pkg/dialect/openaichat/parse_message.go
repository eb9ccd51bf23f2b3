package openaichat

import (
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/openai"
	"github.com/evalfleet/evalfleet/pkg/enum"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
)

// wireMessage is a message of a client's request on the wire.
type wireMessage struct {
	Role             string             `json:"role"`
	Content          jsonread.TextOrRaw `json:"content"`
	Refusal          string             `json:"refusal"`
	ReasoningContent string             `json:"reasoning_content"`
	Reasoning        string             `json:"reasoning"`
	ReasoningDetails []json.RawMessage  `json:"reasoning_details"`
	ToolCalls        []openai.Call      `json:"tool_calls"`
	Images           []image            `json:"images"`
	ToolCallID       string             `json:"tool_call_id"`
	// Name and FunctionCall are of the older form of calls and results. Some clients name the function of each result.
	Name         string         `json:"name"`
	FunctionCall *openai.Called `json:"function_call"`
}

// wirePart is a part of a message's content.
type wirePart struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	Refusal  string `json:"refusal"`
	ImageURL struct {
		URL    string `json:"url"`
		Detail string `json:"detail"`
	} `json:"image_url"`
	InputAudio struct {
		Data   string `json:"data"`
		Format string `json:"format"`
	} `json:"input_audio"`
	File struct {
		Data string `json:"file_data"`
		Name string `json:"filename"`
	} `json:"file"`
}

func (w *wireRequest) messages() ([]*modelv1.ChatMessage, error) {
	messages := make([]*modelv1.ChatMessage, 0, len(w.Messages))
	called := map[string]string{} // the function of each call so far, by id
	var older olderCalls
	for i := range w.Messages {
		param := fmt.Sprintf("messages[%d]", i)
		if err := older.renew(&w.Messages[i], param); err != nil {
			return nil, err
		}
		m, err := w.Messages[i].read(param)
		if err != nil {
			return nil, err
		}
		for _, call := range m.GetToolCalls() {
			called[call.GetId()] = call.GetFunction()
		}
		if m.GetRole() == modelv1.Role_ROLE_TOOL {
			m.Function = cmp.Or(called[w.Messages[i].ToolCallID], w.Messages[i].Name)
		}
		messages = append(messages, m)
	}
	return messages, nil
}

// read turns a message into the canonical form.
func (m *wireMessage) read(param string) (*modelv1.ChatMessage, error) {
	content, err := m.content(param + ".content")
	if err != nil {
		return nil, err
	}
	message := &modelv1.ChatMessage{Id: chat.NewID(), Content: content}
	switch m.Role {
	case "system", "developer":
		message.Role = modelv1.Role_ROLE_SYSTEM
	case "user":
		message.Role = modelv1.Role_ROLE_USER
	case "tool":
		message.Role, message.ToolCallIds = modelv1.Role_ROLE_TOOL, []string{m.ToolCallID}
	case "assistant":
		message.Role, message.Source = modelv1.Role_ROLE_ASSISTANT, modelv1.MessageSource_MESSAGE_SOURCE_GENERATE
		m.readAssistant(message)
		for i := range m.Images {
			if err := dialect.CheckMedia(fmt.Sprintf("%s.images[%d].image_url.url", param, i), m.Images[i].ImageURL.URL); err != nil {
				return nil, err
			}
		}
		message.Content = withImages(message.Content, m.Images)
	default:
		return nil, dialect.Invalid(param+".role", "%q is none of system, developer, user, assistant, tool, function", m.Role)
	}
	return message, nil
}

// content reads a text or a list of parts. Only an assistant's content may be empty.
func (m *wireMessage) content(param string) (*contentv1.MessageContent, error) {
	switch {
	case m.Content.IsText:
		return chat.TextContent(m.Content.Text), nil
	case m.Content.Absent() && m.Role == "assistant":
		return chat.TextContent(""), nil
	case m.Content.Absent():
		return nil, dialect.Required(param)
	}
	var list []wirePart
	if err := jsonread.Unmarshal(m.Content.Raw, &list); err != nil {
		return nil, dialect.Invalid(param, "is neither a text nor a list of parts")
	}
	parts := make([]*contentv1.Content, 0, len(list))
	for i := range list {
		part, err := list[i].read(fmt.Sprintf("%s[%d]", param, i))
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}
	return chat.ListContent(parts...), nil
}

func (p *wirePart) read(param string) (*contentv1.Content, error) {
	media := func(uri string) *contentv1.Media { return &contentv1.Media{Source: &contentv1.Media_Uri{Uri: uri}} }
	switch p.Type {
	case "text":
		return chat.TextPart(p.Text), nil
	case "refusal":
		return chat.RefusalPart(p.Refusal), nil
	case "image_url":
		if p.ImageURL.URL == "" {
			return nil, dialect.Required(param + ".image_url.url")
		}
		if err := dialect.CheckMedia(param+".image_url.url", p.ImageURL.URL); err != nil {
			return nil, err
		}
		detail, ok := enum.Parse[contentv1.ImageDetail](cmp.Or(p.ImageURL.Detail, "auto"))
		if !ok {
			return nil, dialect.Invalid(param+".image_url.detail", "%q is none of auto, low, high", p.ImageURL.Detail)
		}
		return &contentv1.Content{Part: &contentv1.Content_Image{Image: &contentv1.Image{Media: media(p.ImageURL.URL), Detail: detail}}}, nil
	case "input_audio":
		format, ok := enum.Parse[contentv1.AudioFormat](p.InputAudio.Format)
		if !ok || p.InputAudio.Format == "" {
			return nil, dialect.Invalid(param+".input_audio.format", "%q is none of wav, mp3", p.InputAudio.Format)
		}
		if err := dialect.CheckBase64(param+".input_audio.data", p.InputAudio.Data); err != nil {
			return nil, err
		}
		mediaType := "audio/" + p.InputAudio.Format
		if format == contentv1.AudioFormat_AUDIO_FORMAT_MP3 {
			mediaType = "audio/mpeg"
		}
		uri := "data:" + mediaType + ";base64," + p.InputAudio.Data
		return &contentv1.Content{Part: &contentv1.Content_Audio{Audio: &contentv1.Audio{Media: media(uri), Format: format}}}, nil
	case "file":
		mediaType, _, inline := dialect.SplitDataURI(p.File.Data)
		if !inline {
			return nil, dialect.NotSupported(param+".file.file_data", "must be a data URI; files that were uploaded to a vendor are not known here")
		}
		if err := dialect.CheckDataURI(param+".file.file_data", p.File.Data); err != nil {
			return nil, err
		}
		return &contentv1.Content{Part: &contentv1.Content_Document{Document: &contentv1.Document{Media: media(p.File.Data), Filename: p.File.Name, MimeType: mediaType}}}, nil
	default:
		return nil, dialect.Invalid(param+".type", "%q is none of text, refusal, image_url, input_audio, file", p.Type)
	}
}

// readAssistant reads the rest of an assistant's message: calls, a refusal, and reasoning, which is in a member of its
// own or between tags in the text.
func (m *wireMessage) readAssistant(message *modelv1.ChatMessage) {
	message.ToolCalls = openai.ReadCalls(m.ToolCalls, nil)
	if m.Refusal != "" && chat.Text(message) == "" {
		message.Content = chat.ListContent(chat.RefusalPart(m.Refusal))
	}
	if reasoning := m.reasoning(); len(reasoning) > 0 {
		message.Content = chat.ListContent(append(reasoning, spoken(message.GetContent())...)...)
		return
	}
	var parts []*contentv1.Content
	tagged := false
	for _, part := range chat.Parts(message.GetContent()) {
		reasoning, rest, ok := dialect.ReadThink(part.GetText().GetText())
		if !ok || part.GetText().GetRefusal() {
			parts = append(parts, part)
			continue
		}
		parts, tagged = append(parts, reasoning), true
		if rest != "" {
			parts = append(parts, chat.TextPart(rest))
		}
	}
	if tagged {
		message.Content = chat.ListContent(parts...)
	}
}

// reasoning reads the reasoning in members of its own.
func (m *wireMessage) reasoning() []*contentv1.Content {
	if own := ownDetails(m.ReasoningDetails); len(own) > 0 {
		return own
	}
	said := message{ReasoningContent: m.ReasoningContent, Reasoning: m.Reasoning, ReasoningDetails: m.ReasoningDetails}
	if part := said.reasoning(); part != nil {
		return []*contentv1.Content{part}
	}
	return nil
}

// spoken returns content as parts; an empty text has none.
func spoken(c *contentv1.MessageContent) []*contentv1.Content {
	if c.GetList() == nil && c.GetText() == "" {
		return nil
	}
	return chat.Parts(c)
}
