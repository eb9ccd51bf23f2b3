package anthropic

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/clienttool"
	"github.com/evalfleet/evalfleet/pkg/dialect/hosted"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
)

// wireRequest is a request on the wire.
type wireRequest struct {
	Model       string             `json:"model"`
	MaxTokens   *int64             `json:"max_tokens"`
	System      jsonread.TextOrRaw `json:"system"`
	Messages    []wireMessage      `json:"messages"`
	Tools       []wireTool         `json:"tools"`
	Choice      *wireChoice        `json:"tool_choice"`
	Stream      bool               `json:"stream"`
	Temperature *float64           `json:"temperature"`
	TopP        *float64           `json:"top_p"`
	TopK        *int32             `json:"top_k"`
	Stop        []string           `json:"stop_sequences"`
	Thinking    *struct {
		Type   string `json:"type"`
		Budget int64  `json:"budget_tokens"`
	} `json:"thinking"`
	OutputConfig *struct {
		Effort *string     `json:"effort"`
		Format *wireFormat `json:"format"`
	} `json:"output_config"`
	OutputFormat *wireFormat     `json:"output_format"`
	Metadata     json.RawMessage `json:"metadata"`
	MCPServers   json.RawMessage `json:"mcp_servers"`
	// Not expressible in the canonical form.
	Thread    json.RawMessage `json:"thread"`
	Container json.RawMessage `json:"container"`
}

type wireMessage struct {
	Role    string             `json:"role"`
	Content jsonread.TextOrRaw `json:"content"`
}

type wireTool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"input_schema"`
	// Width and Height are the pixels of a computer's screen.
	Width  int64 `json:"display_width_px"`
	Height int64 `json:"display_height_px"`
}

type wireChoice struct {
	Type            string `json:"type"`
	Name            string `json:"name"`
	DisableParallel *bool  `json:"disable_parallel_tool_use"`
}

type wireFormat struct {
	Type   string          `json:"type"`
	Schema json.RawMessage `json:"schema"`
}

// schemaName is the name of the schema of an answer, which has none in this format.
const schemaName = "response"

// ParseRequest implements dialect.Codec. It refuses what only the vendor itself can do: files that it stores, search
// results, and tools that no other vendor runs (see pkg/dialect/hosted). Options for the vendor's scheduling of the
// request (its tier) and for editing of its context are ignored, since other models have neither.
func (Codec) ParseRequest(body []byte) (*dialect.Request, error) {
	wire, r, err := parse(body)
	switch {
	case err != nil:
		return nil, err
	case wire.MaxTokens == nil:
		return nil, dialect.Required("max_tokens")
	case *wire.MaxTokens < 1:
		return nil, dialect.Invalid("max_tokens", "is %d; give at least 1", *wire.MaxTokens)
	default:
		return r, nil
	}
}

func parse(body []byte) (*wireRequest, *dialect.Request, error) {
	wire := &wireRequest{}
	if err := jsonread.Unmarshal(body, wire); err != nil {
		return nil, nil, unreadable("", err)
	}
	if wire.Model == "" {
		return nil, nil, dialect.Required("model")
	}
	if wire.Messages == nil {
		return nil, nil, dialect.Required("messages")
	}
	r := &Request{Request: dialect.Request{Model: wire.Model, Stream: wire.Stream, Config: wire.config()}}
	if err := r.parseSystem(wire.System); err != nil {
		return nil, nil, err
	}
	if err := r.parseMessages(wire.Messages); err != nil {
		return nil, nil, err
	}
	if err := dialect.Each(wire.Tools, "tools.%d.", r.parseTool); err != nil {
		return nil, nil, err
	}
	if err := r.parseHosted(body, wire); err != nil {
		return nil, nil, err
	}
	if err := r.parseChoice(wire.Choice); err != nil {
		return nil, nil, err
	}
	return wire, &r.Request, wire.check()
}

// check refuses requests that cannot be answered as intended.
func (w *wireRequest) check() error {
	switch {
	case jsonread.IsSet(w.Thread):
		return &dialect.RequestError{Cause: dialect.NoThreads, Param: "thread", Message: "is not supported here; send the whole conversation"}
	case jsonread.IsSet(w.Container):
		return dialect.NotSupported("container", "is not supported here; only the vendor has containers")
	}
	if format := w.format(); format != nil && format.Type != "json_schema" {
		return dialect.NotSupported("output_config.format.type", "%q is not supported here; `json_schema` is", format.Type)
	}
	if len(w.Messages) == 0 {
		return dialect.Invalid("messages", "at least one message is required")
	}
	return nil
}

// unreadable is the error for a place, or for the body if place is empty, that cannot be read; it names the member of
// the wrong type.
func unreadable(place string, err error) error {
	if mismatch, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && mismatch.Field != "" {
		if place != "" {
			place += "."
		}
		return dialect.At(place, dialect.Mismatch(mismatch))
	}
	if place == "" {
		return dialect.Invalid("", "the body is no request: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return dialect.Invalid(place, "%s", strings.TrimPrefix(err.Error(), "json: "))
}

func (w *wireRequest) config() *modelv1.GenerateConfig {
	c := &modelv1.GenerateConfig{
		MaxTokens: w.MaxTokens, Temperature: w.Temperature, TopP: w.TopP, TopK: w.TopK, StopSeqs: dialect.Stops(w.Stop),
	}
	switch t := w.Thinking; {
	case t == nil:
	case t.Type == ThinkingEnabled && t.Budget > 0:
		c.ReasoningTokens = &t.Budget
	case t.Type == ThinkingDisabled:
		c.ReasoningTokens = new(int64(0))
	}
	if w.OutputConfig != nil {
		c.Effort = w.OutputConfig.Effort
	}
	if format := w.format(); format != nil && format.Schema != nil {
		c.ResponseSchema = &modelv1.ResponseSchema{Name: schemaName, JsonSchema: string(format.Schema)}
	}
	if w.Choice != nil && w.Choice.DisableParallel != nil {
		c.ParallelToolCalls = new(!*w.Choice.DisableParallel)
	}
	if jsonread.IsSet(w.Metadata) {
		c.ExtraBodyJson = new(`{"metadata":` + string(w.Metadata) + `}`)
	}
	return c
}

// format is the form that the answer is to have; it has two places.
func (w *wireRequest) format() *wireFormat {
	if w.OutputConfig != nil && w.OutputConfig.Format != nil {
		return w.OutputConfig.Format
	}
	return w.OutputFormat
}

// parseSystem reads the instructions. An empty text counts as none.
func (r *Request) parseSystem(system jsonread.TextOrRaw) error {
	blocks, isText, err := readBlocks(system)
	switch {
	case err != nil:
		return unreadable("system", err)
	case isText && blocks[0].Text == "":
		return nil
	}
	r.Messages, err = systemMessages("system.%d", blocks)
	return err
}

// parseHosted reads the tools that the vendor runs and other vendors have too.
func (r *Request) parseHosted(body []byte, wire *wireRequest) error {
	isHosted := func(tool wireTool) bool { return hosted.IsAnthropicOffer(tool.Type) }
	if !jsonread.IsSet(wire.MCPServers) && !slices.ContainsFunc(wire.Tools, isHosted) {
		return nil
	}
	var again struct {
		Tools []json.RawMessage `json:"tools"`
	}
	_ = json.Unmarshal(body, &again) // It has been read already.
	offered, called, err := hosted.AnthropicOffers(again.Tools, wire.MCPServers)
	if err != nil {
		return err
	}
	var all []*toolv1.ToolInfo
	for i, tool := range wire.Tools {
		switch {
		case !isHosted(tool):
			all, r.Tools = append(all, r.Tools[0]), r.Tools[1:]
		case offered[i] != nil:
			all = append(all, offered[i])
		}
	}
	if r.Tools = append(all, called...); len(hosted.Distinct(r.Tools)) < len(r.Tools) {
		return dialect.Invalid("tools", "must have names of their own")
	}
	return nil
}

func (r *Request) parseTool(tool *wireTool) error {
	if hosted.IsAnthropicOffer(tool.Type) {
		return nil // It is read with those of its kind.
	}
	known, own := clienttool.Anthropic(tool.Type, tool.Name, tool.Width, tool.Height)
	switch {
	case own && tool.Name != "":
		r.Tools = append(r.Tools, known)
		return nil
	case !own && tool.Type != "" && tool.Type != "custom":
		return dialect.NotSupported("type", "%q is a tool that the vendor runs, which other models do not have; give a tool with a name and an input_schema", tool.Type)
	case tool.Name == "":
		return dialect.Required("name")
	case !jsonread.IsObject(string(tool.Schema)):
		return dialect.Invalid("input_schema", "must be an object")
	}
	r.Tools = append(r.Tools, &toolv1.ToolInfo{Name: tool.Name, Description: tool.Description, ParametersJson: string(tool.Schema)})
	return nil
}

func (r *Request) parseChoice(choice *wireChoice) error {
	if choice == nil {
		return nil
	}
	var known bool
	if r.Choice, known = choices.Choice(choice.Type); known {
		return nil
	}
	switch {
	case choice.Type != choiceTool:
		return dialect.Invalid("tool_choice.type", "%q is none of auto, any, tool, none", choice.Type)
	case choice.Name == "":
		return dialect.Required("tool_choice.name")
	}
	r.Choice = dialect.Chosen(choice.Name, r.Tools)
	return nil
}
