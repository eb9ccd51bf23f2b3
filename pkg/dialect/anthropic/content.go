package anthropic

import (
	"cmp"
	"encoding/json"
	"errors"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/citation"
	"github.com/evalfleet/evalfleet/pkg/dialect/computer"
	"github.com/evalfleet/evalfleet/pkg/dialect/hosted"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
)

// wireBlock is a block of content on the wire, of any type.
type wireBlock struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Citations json.RawMessage `json:"citations"` // a list in a text, an object in a document
	Thinking  string          `json:"thinking"`
	Signature string          `json:"signature"`
	Data      string          `json:"data"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	// Toolset is the name of the set that the called tool is one of.
	Toolset   string             `json:"toolset_name"`
	Input     json.RawMessage    `json:"input"`
	ToolUseID string             `json:"tool_use_id"`
	IsError   bool               `json:"is_error"`
	Content   jsonread.TextOrRaw `json:"content"`
	Source    *wireSource        `json:"source"`
	Title     string             `json:"title"`
	Context   string             `json:"context"`   // of a document
	ToolName  string             `json:"tool_name"` // of a reference to a tool
	Cache     json.RawMessage    `json:"cache_control"`

	raw []byte
}

// wireSource is where an image or a document is.
type wireSource struct {
	Type      string             `json:"type"`
	MediaType string             `json:"media_type"`
	Data      string             `json:"data"`
	URL       string             `json:"url"`
	Content   jsonread.TextOrRaw `json:"content"`
}

var errNoContent = errors.New("content is neither a text nor a list of blocks")

// readBlocks reads content that is a list of blocks, or a text, which is one; isText reports which. Absent content is
// an empty text.
func readBlocks(content jsonread.TextOrRaw) (blocks []wireBlock, isText bool, err error) {
	if content.IsText || content.Absent() {
		return []wireBlock{{Type: "text", Text: content.Text}}, true, nil
	}
	var items []jsonread.Raw
	if jsonread.Unmarshal(content.Raw, &items) != nil {
		return nil, false, errNoContent
	}
	blocks, err = parseBlocks(items)
	return blocks, false, err
}

// strictTypes are the types of blocks whose members must have the expected types. Other blocks may use the names
// differently.
var strictTypes = map[string]bool{
	"": true, "text": true, "thinking": true, "redacted_thinking": true, "tool_use": true, "tool_result": true, "image": true, "document": true,
}

func parseBlocks[R ~[]byte](items []R) ([]wireBlock, error) {
	blocks := make([]wireBlock, len(items))
	for i, item := range items {
		err := jsonread.Unmarshal(item, &blocks[i])
		if _, mismatch := errors.AsType[*json.UnmarshalTypeError](err); err != nil && (!mismatch || strictTypes[blocks[i].Type]) {
			return nil, err
		}
		blocks[i].raw = item
	}
	return blocks, nil
}

// readSpoken reads the parts and the calls of a model's turn. tools are the offered tools. Blocks of unknown types, and
// a server's call without a result, are dropped.
func readSpoken(blocks []wireBlock, tools []*toolv1.ToolInfo) (parts []*contentv1.Content, calls []*toolv1.ToolCall) {
	for i := range blocks {
		switch b := &blocks[i]; b.Type {
		case "tool_use":
			calls = append(calls, b.call(tools))
		case hosted.AnthropicCall, hosted.AnthropicMCP:
			if result := resultOf(blocks, b.ID); result != nil {
				parts = append(parts, hosted.AnthropicUse(b.raw, result.raw))
			}
		default:
			if part := b.spokenPart(); part != nil {
				parts = append(parts, part)
			}
		}
	}
	return parts, calls
}

func resultOf(blocks []wireBlock, id string) *wireBlock {
	for i := range blocks {
		if blocks[i].ToolUseID == id && id != "" {
			return &blocks[i]
		}
	}
	return nil
}

// spokenPart reads a block that is one part of a model's turn; nil for other blocks.
func (b *wireBlock) spokenPart() *contentv1.Content {
	switch b.Type {
	case "text":
		return b.textPart()
	case "thinking":
		return chat.SealedPart(b.Signature, &b.Thinking)
	case "redacted_thinking":
		return chat.SealedPart(b.Data, nil)
	case "image":
		part, _ := b.mediaPart()
		return part
	default:
		return Kept.Data(b.Type, b.raw)
	}
}

func (b *wireBlock) textPart() *contentv1.Content {
	part := chat.TextPart(b.Text)
	part.GetText().Citations = citation.Anthropic(b.Citations)
	if jsonread.IsSet(b.Cache) {
		part.GetText().CacheBreakpoint = new(true)
	}
	return part
}

// call reads a tool call. Its input is an object; a text is a truncated input, or a bare one.
func (b *wireBlock) call(tools []*toolv1.ToolInfo) *toolv1.ToolCall {
	var given dialect.Arguments
	_ = json.Unmarshal(b.Input, &given)
	input := cmp.Or(string(given), "{}")
	if input == "null" {
		input = "{}"
	}
	if b.Toolset != "" {
		return dialect.ToolCall(b.ID, b.Toolset, computer.WithAction(b.Name, input), tools)
	}
	return dialect.ToolCall(b.ID, b.Name, input, tools)
}

// Types of blocks that are kept.
const (
	FallbackBlock   = "fallback"
	CompactionBlock = "compaction"
)

// Kept are the blocks of the server that are neither text nor calls.
var Kept = dialect.KeptBlocks{
	CompactionBlock: {Member: dialect.CompactionData, Type: "anthropic_compact"},
	FallbackBlock:   {Member: "fallback_metadata", Type: "anthropic_fallback"},
}
