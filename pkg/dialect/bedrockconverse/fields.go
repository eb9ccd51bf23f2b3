package bedrockconverse

import (
	"encoding/json"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// Fields are the members of `additionalModelRequestFields` that are known: Bedrock passes them to the model, which has
// its own. The zero value has none.
type Fields struct {
	// TopK is `top_k`, which most models take; nil is unset.
	TopK *int32
	// NovaTopK is the place of the same option in Amazon's models, `inferenceConfig.topK`.
	NovaTopK *int32
	// Thinking configures the thinking of Anthropic's models, `thinking`; nil is unset.
	Thinking *Thinking
	// Effort is the effort of Anthropic's models, `output_config.effort`; empty is unset.
	Effort string
	// Schema is the JSON Schema of answers of Anthropic's models, `output_config.format`; empty is none.
	Schema string
	// ReasoningEffort is `reasoning_effort`, of OpenAI's models; empty is unset.
	ReasoningEffort string
	// NovaEffort is the effort of Amazon's models, `reasoningConfig.maxReasoningEffort`; empty is unset.
	NovaEffort string
}

// Thinking configures the thinking of Anthropic's models.
type Thinking struct {
	// Type is `enabled`, with a budget, or `adaptive`.
	Type string `json:"type"`
	// BudgetTokens are the tokens of thinking that is enabled.
	BudgetTokens int64 `json:"budget_tokens"`
}

// Types of thinking.
const (
	ThinkingEnabled  = "enabled"
	ThinkingAdaptive = "adaptive"

	thinkingDisabled = "disabled"
)

func (f *Fields) isZero() bool { return *f == Fields{} }

func (f *Fields) write(w *jsonwrite.Writer) {
	w.BeginObject()
	jsonwrite.OptInt(w, "top_k", f.TopK)
	if f.NovaTopK != nil {
		w.BeginObjectMember("inferenceConfig")
		w.IntMember("topK", int64(*f.NovaTopK))
		w.EndObject()
	}
	if t := f.Thinking; t != nil {
		w.BeginObjectMember("thinking")
		w.TextMember("type", t.Type)
		if t.Type == ThinkingEnabled {
			w.IntMember("budget_tokens", t.BudgetTokens)
		}
		w.EndObject()
	}
	if f.Effort != "" || f.Schema != "" {
		w.BeginObjectMember("output_config")
		w.TextUnlessEmpty("effort", f.Effort)
		if f.Schema != "" {
			w.BeginObjectMember("format")
			w.TextMember("type", schemaFormat)
			w.RawMember("schema", f.Schema)
			w.EndObject()
		}
		w.EndObject()
	}
	w.TextUnlessEmpty("reasoning_effort", f.ReasoningEffort)
	if f.NovaEffort != "" {
		w.TextObjectMember("reasoningConfig", "type", ThinkingEnabled, "maxReasoningEffort", f.NovaEffort)
	}
	w.EndObject()
}

// wireFields are the fields on the wire.
type wireFields struct {
	TopK      *int32 `json:"top_k"`
	Inference *struct {
		TopK *int32 `json:"topK"`
	} `json:"inferenceConfig"`
	Thinking *Thinking `json:"thinking"`
	Output   *struct {
		Effort string `json:"effort"`
		Format *struct {
			Schema json.RawMessage `json:"schema"`
		} `json:"format"`
	} `json:"output_config"`
	ReasoningEffort string `json:"reasoning_effort"`
	Reasoning       *struct {
		Type   string `json:"type"`
		Effort string `json:"maxReasoningEffort"`
	} `json:"reasoningConfig"`
}

// paramFields is where the fields are in a request.
const paramFields = "additionalModelRequestFields"

var knownFields = map[string]bool{"top_k": true, "inferenceConfig": true, "thinking": true, "output_config": true, "reasoning_effort": true, "reasoningConfig": true}

// readFields adds a client's fields to a configuration.
func readFields(raw json.RawMessage, c *modelv1.GenerateConfig) error {
	if !jsonread.IsSet(raw) {
		return nil
	}
	var all map[string]json.RawMessage
	var f wireFields
	if jsonread.Unmarshal(raw, &all) != nil {
		return dialect.Invalid(paramFields, "must be an object")
	}
	for name := range all {
		if !knownFields[name] {
			return dialect.NotSupported(paramFields+"."+name, "is not supported here")
		}
	}
	if err := jsonread.Unmarshal(raw, &f); err != nil {
		return dialect.At(paramFields+".", dialect.Unreadable(err))
	}
	c.TopK = f.TopK
	if f.Inference != nil && f.Inference.TopK != nil {
		c.TopK = f.Inference.TopK
	}
	if f.Output != nil {
		if f.Output.Effort != "" {
			c.Effort = &f.Output.Effort
		}
		if f.Output.Format != nil && jsonread.IsSet(f.Output.Format.Schema) {
			c.ResponseSchema = &modelv1.ResponseSchema{Name: "response", JsonSchema: string(f.Output.Format.Schema)}
		}
	}
	if f.ReasoningEffort != "" {
		c.ReasoningEffort = &f.ReasoningEffort
	}
	if f.Reasoning != nil && f.Reasoning.Effort != "" {
		c.ReasoningEffort = &f.Reasoning.Effort
	}
	return f.readThinking(c)
}

// readThinking reads the thinking of Anthropic's models. Adaptive thinking goes by the effort.
func (f *wireFields) readThinking(c *modelv1.GenerateConfig) error {
	if f.Thinking == nil {
		return nil
	}
	switch f.Thinking.Type {
	case ThinkingEnabled:
		c.ReasoningTokens = &f.Thinking.BudgetTokens
	case ThinkingAdaptive:
		c.ReasoningEffort, c.Effort = c.Effort, nil
		if c.ReasoningEffort == nil {
			c.ReasoningEffort = new("high") // the vendor's default
		}
	case thinkingDisabled:
		c.ReasoningEffort = new("none")
	default:
		return dialect.Invalid(paramFields+".thinking.type", "%q is none of %s, %s, %s", f.Thinking.Type, ThinkingEnabled, ThinkingAdaptive, thinkingDisabled)
	}
	return nil
}
