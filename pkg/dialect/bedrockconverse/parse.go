package bedrockconverse

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
)

// wireRequest is a client's request on the wire.
type wireRequest struct {
	Messages   []wireMessage     `json:"messages"`
	System     []wireBlock       `json:"system"`
	Inference  *wireInference    `json:"inferenceConfig"`
	ToolConfig *wireToolConfig   `json:"toolConfig"`
	Output     *wireOutputConfig `json:"outputConfig"`
	Fields     json.RawMessage   `json:"additionalModelRequestFields"`
	// Guardrail and Variables name what is stored at the vendor: not expressible in the canonical form.
	Guardrail json.RawMessage `json:"guardrailConfig"`
	Variables json.RawMessage `json:"promptVariables"`
}

type wireInference struct {
	MaxTokens   *int64   `json:"maxTokens"`
	Temperature *float64 `json:"temperature"`
	TopP        *float64 `json:"topP"`
	Stops       []string `json:"stopSequences"`
}

type wireToolConfig struct {
	Tools  []wireTool                 `json:"tools"`
	Choice map[string]json.RawMessage `json:"toolChoice"`
}

// wireTool is a tool, or a mark of the cache. One of its members is set.
type wireTool struct {
	Spec *struct {
		Name        string `json:"name"`
		Description string `json:"description"`
		Schema      struct {
			JSON json.RawMessage `json:"json"`
		} `json:"inputSchema"`
	} `json:"toolSpec"`
	CachePoint json.RawMessage `json:"cachePoint"`
}

type wireOutputConfig struct {
	Format *struct {
		Structure struct {
			Schema *struct {
				Schema      string `json:"schema"`
				Name        string `json:"name"`
				Description string `json:"description"`
			} `json:"jsonSchema"`
		} `json:"structure"`
	} `json:"textFormat"`
}

// ParseRequest implements dialect.Codec: the model and Stream are in the address. Members without a place in the
// canonical form that do not change the answer, such as marks of the cache, are ignored; what would change it is
// refused.
func (Codec) ParseRequest(body []byte) (*dialect.Request, error) {
	var w wireRequest
	if err := jsonread.Unmarshal(body, &w); err != nil {
		return nil, dialect.Unreadable(err)
	}
	switch {
	case w.Messages == nil:
		return nil, dialect.Required("messages")
	case len(w.Messages) == 0:
		return nil, dialect.Invalid("messages", "needs at least one message")
	case jsonread.IsSet(w.Guardrail):
		return nil, dialect.NotSupported("guardrailConfig", "guardrails are not supported here")
	case jsonread.IsSet(w.Variables):
		return nil, dialect.NotSupported("promptVariables", "prompts that are stored at a vendor are not known here; send the messages")
	}
	r := &dialect.Request{}
	var err error
	if r.Messages, err = w.messages(); err != nil {
		return nil, err
	}
	if w.ToolConfig != nil {
		if r.Tools, err = w.ToolConfig.tools(); err != nil {
			return nil, err
		}
		if r.Choice, err = w.ToolConfig.choice(); err != nil {
			return nil, err
		}
	}
	r.Config, err = w.config()
	return r, err
}

func (t *wireToolConfig) tools() ([]*toolv1.ToolInfo, error) {
	var tools []*toolv1.ToolInfo
	for i, tool := range t.Tools {
		param := fmt.Sprintf("toolConfig.tools[%d]", i)
		switch {
		case tool.Spec == nil && tool.CachePoint != nil:
			continue
		case tool.Spec == nil:
			return nil, dialect.NotSupported(param, "only tools with a toolSpec are supported here")
		case tool.Spec.Name == "":
			return nil, dialect.Required(param + ".toolSpec.name")
		}
		schema := dialect.NoParameters
		if jsonread.IsSet(tool.Spec.Schema.JSON) {
			schema = string(tool.Spec.Schema.JSON)
		}
		tools = append(tools, &toolv1.ToolInfo{Name: tool.Spec.Name, Description: tool.Spec.Description, ParametersJson: schema})
	}
	return tools, nil
}

func (t *wireToolConfig) choice() (*toolv1.ToolChoice, error) {
	const param = "toolConfig.toolChoice"
	if len(t.Choice) == 0 {
		return nil, nil
	}
	if len(t.Choice) > 1 {
		return nil, dialect.Invalid(param, "has more than one member")
	}
	if raw, named := t.Choice[choiceTool]; named {
		var tool struct {
			Name string `json:"name"`
		}
		if json.Unmarshal(raw, &tool) != nil || tool.Name == "" {
			return nil, dialect.Required(param + ".tool.name")
		}
		return chat.FunctionChoice(tool.Name), nil
	}
	if _, must := t.Choice[choiceAny]; must {
		return chat.ModeChoice(toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_ANY), nil
	}
	if _, may := t.Choice[choiceAuto]; may {
		return chat.ModeChoice(toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_AUTO), nil
	}
	return nil, dialect.Invalid(param, "is none of auto, any, tool")
}

func (w *wireRequest) config() (*modelv1.GenerateConfig, error) {
	c := &modelv1.GenerateConfig{}
	if o := w.Inference; o != nil {
		if o.MaxTokens != nil && *o.MaxTokens < 1 {
			return nil, dialect.Invalid("inferenceConfig.maxTokens", "is %d; give at least 1", *o.MaxTokens)
		}
		c.MaxTokens, c.Temperature, c.TopP, c.StopSeqs = o.MaxTokens, o.Temperature, o.TopP, dialect.Stops(o.Stops)
	}
	if w.Output != nil && w.Output.Format != nil {
		const param = "outputConfig.textFormat.structure.jsonSchema.schema"
		s := w.Output.Format.Structure.Schema
		if s == nil || s.Schema == "" {
			return nil, dialect.Required(param)
		}
		if !json.Valid([]byte(s.Schema)) || !jsonread.IsObject(strings.TrimSpace(s.Schema)) {
			return nil, dialect.Invalid(param, "is no JSON object")
		}
		c.ResponseSchema = &modelv1.ResponseSchema{Name: cmp.Or(s.Name, "response"), JsonSchema: s.Schema}
		if s.Description != "" {
			c.ResponseSchema.Description = &s.Description
		}
	}
	return c, readFields(w.Fields, c)
}
