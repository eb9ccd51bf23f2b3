package openairesponses

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/citation"
	"github.com/evalfleet/evalfleet/pkg/dialect/hosted"
	"github.com/evalfleet/evalfleet/pkg/dialect/openai"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// Types of items.
const (
	typeMessage   = "message"
	typeReasoning = "reasoning"
	typeCall      = "function_call"
	typeResult    = "function_call_output"
	typeImage     = "image_generation_call"
	// Of tools that take a text.
	typeCustomCall   = "custom_tool_call"
	typeCustomResult = "custom_tool_call_output"
	// typeTools are tools that a client adds to those of the request.
	typeTools = "additional_tools"
	// Of conversations, or parts of them, that the vendor stores or has sealed.
	typeReference = "item_reference"
	typeCompacted = "compaction"
	typeCompact   = "compaction_trigger"
)

// Types of parts of a message.
const (
	partText       = "output_text"
	partRefusal    = "refusal"
	partReasoning  = "reasoning_text"
	partSummary    = "summary_text"
	partInputText  = "input_text"
	partInputImage = "input_image"
	partInputFile  = "input_file"
)

// item is an item of a conversation or of an answer on the wire.
type item struct {
	Type    string  `json:"type"`
	ID      string  `json:"id"`
	Role    string  `json:"role"`
	Phase   string  `json:"phase"`
	Content content `json:"content"`
	// Summary and Seal are of reasoning.
	Summary []part `json:"summary"`
	Seal    string `json:"encrypted_content"`
	// Of a call, and of its output.
	CallID    string            `json:"call_id"`
	Namespace string            `json:"namespace"`
	Name      string            `json:"name"`
	Arguments dialect.Arguments `json:"arguments"`
	Input     string            `json:"input"`
	Output    content           `json:"output"`
	Tools     []wireTool        `json:"tools"`
	// Result and Format are of a drawn image: its data in base64, and its format.
	Result string `json:"result"`
	Format string `json:"output_format"`
	// Use is what a tool of the server did.
	Use *contentv1.ToolUse `json:"-"`
	// Results and Contents are what a tool of the server found.
	Results  []json.RawMessage `json:"results"`
	Contents []json.RawMessage `json:"contents"`
	// Whole is the item as it came, of a call of the server's computer.
	Whole json.RawMessage `json:"-"`
}

// readItems are the types of items that are read. An item without a type is a message.
var readItems = map[string]bool{
	"": true, typeMessage: true, typeReasoning: true, typeCall: true, typeResult: true, typeImage: true, typeCustomCall: true, typeCustomResult: true, typeTools: true,
	typeCompacted: true,
}

// UnmarshalJSON reads an item. Of an item of another type only its type is known, and what a tool of the server found.
func (i *item) UnmarshalJSON(raw []byte) error {
	type members item
	if err := jsonread.UnmarshalTyped(raw, (*members)(i), readItems, &i.Type); err != nil || readItems[i.Type] {
		return err
	}
	var err error
	if i.Use, err = hosted.OpenAIUse(i.Type, raw); err != nil || i.Use != nil {
		return err
	}
	if i.Type == typeComputer {
		i.Whole = bytes.Clone(raw)
		return nil
	}
	var found struct {
		Results  []json.RawMessage `json:"results"`
		Contents []json.RawMessage `json:"contents"`
	}
	if json.Unmarshal(raw, &found) == nil {
		i.Results, i.Contents = found.Results, found.Contents
	}
	return nil
}

// part is a part of an item's content.
type part struct {
	Type        string                `json:"type"`
	Text        string                `json:"text"`
	Refusal     string                `json:"refusal"`
	ImageURL    string                `json:"image_url"`
	Detail      string                `json:"detail"`
	FileData    string                `json:"file_data"`
	FileURL     string                `json:"file_url"`
	Filename    string                `json:"filename"`
	Annotations []citation.Annotation `json:"annotations"`
	Logprobs    []openai.Logprob      `json:"logprobs"`
}

// content is a list of parts. A text is one part without a type; nil is not there.
type content []part

// TakeText implements jsonread.TextTaker.
func (c *content) TakeText(text string) { *c = content{{Text: text}} }

// UnmarshalJSON reads a text, null, or a list of parts.
func (c *content) UnmarshalJSON(raw []byte) error {
	var text string
	switch {
	case jsonread.Unmarshal(raw, (*[]part)(c)) == nil:
		return nil
	case json.Unmarshal(raw, &text) == nil:
		c.TakeText(text)
		return nil
	default:
		return errContent
	}
}

var errContent = errors.New("content is neither a text nor a list of parts")

// origin is the data that restores the message of a text.
type origin struct {
	ID    string `json:"message_id"`
	Phase string `json:"message_phase,omitempty"`
}

// parts are what the item adds to the assistant's content. Items of kinds that are not known add nothing.
func (i *item) parts() []*contentv1.Content {
	switch {
	case i.Type == typeMessage:
		return i.texts()
	case i.Type == typeReasoning:
		return []*contentv1.Content{i.reasoning()}
	case i.Type == typeImage && i.Result != "":
		return []*contentv1.Content{chat.ImagePart("data:image/" + cmp.Or(i.Format, "png") + ";base64," + i.Result)}
	case i.Use != nil:
		return []*contentv1.Content{chat.ToolUsePart(i.Use)}
	default:
		return nil
	}
}

func (i *item) texts() []*contentv1.Content {
	var all []*contentv1.Content
	for _, p := range i.Content {
		part := chat.TextPart(p.Text)
		switch text := part.GetText(); p.Type {
		case partText, partInputText, "":
			text.Citations = citation.OpenAI(p.Annotations)
		case partRefusal:
			part = chat.RefusalPart(p.Refusal)
		default:
			continue
		}
		if i.ID != "" || i.Phase != "" {
			part.InternalJson = string(jsonwrite.Marshal(origin{i.ID, i.Phase}))
		}
		all = append(all, part)
	}
	return all
}

// reasoning is the item's reasoning, sealed or readable, or what a tool did, if the seal is an envelope with that. The
// readable text of sealed reasoning without a summary becomes its summary.
func (i *item) reasoning() *contentv1.Content {
	if part := dialect.Unseal(i.Seal); part != nil {
		return part
	}
	if use := dialect.UnsealUse(i.Seal); use != nil {
		return chat.ToolUsePart(use)
	}
	whole := chat.ReasoningPart(joined(i.Content, "\n"))
	r := whole.GetReasoning()
	if i.ID != "" {
		r.Signature = &i.ID
	}
	if len(i.Summary) > 0 {
		r.Summary = new(joined(i.Summary, summaryBreak))
	}
	if i.Seal != "" {
		if r.Summary == nil && r.Reasoning != "" {
			r.Summary = new(r.Reasoning)
		}
		r.Reasoning, r.Redacted = i.Seal, true
	}
	return whole
}

// summaryBreak is between the parts of a summary.
const summaryBreak = "\n\n"

func joined(parts []part, between string) string {
	texts := make([]string, len(parts))
	for i, p := range parts {
		texts[i] = p.Text
	}
	return strings.Join(texts, between)
}
