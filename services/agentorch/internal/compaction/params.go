package compaction

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
)

// Strategy is how a conversation becomes shorter.
type Strategy string

// The strategies.
const (
	// Auto is Native, and Summary where the provider cannot compact or fails.
	Auto Strategy = "auto"
	// Edit removes results of tools and past reasoning.
	Edit Strategy = "edit"
	// Native is the provider's own compaction.
	Native Strategy = "native"
	// Summary has a model summarise the conversation.
	Summary Strategy = "summary"
	// Trim removes the oldest messages.
	Trim Strategy = "trim"
)

// Params say when and how conversations are compacted. In their pinned form every default is written out.
type Params struct {
	Strategy Strategy `json:"strategy"`
	// Threshold is the size above which a conversation is compacted: tokens if it is a whole number or above 1, else a
	// part of the model's context window. 1.0 is the whole window, 1 is one token.
	Threshold json.Number `json:"threshold,omitempty"`
	// Memory is whether the model is asked to save notes before the threshold is reached, if it has the tool memory.
	Memory *bool `json:"memory,omitempty"`

	// Preserve is the part of the messages that Trim keeps.
	Preserve *float64 `json:"preserve,omitempty"`

	// KeepThinkingTurns is in how many answers Edit keeps the reasoning, from the last one on.
	KeepThinkingTurns *Turns `json:"keep_thinking_turns,omitempty"`
	// KeepToolUses is how many uses of tools Edit keeps, from the last one on.
	KeepToolUses *int `json:"keep_tool_uses,omitempty"`
	// KeepToolInputs is whether Edit keeps the calls whose results it removes.
	KeepToolInputs *bool `json:"keep_tool_inputs,omitempty"`
	// ExcludeTools are tools whose results Edit keeps.
	ExcludeTools []string `json:"exclude_tools,omitempty"`

	// Model is the model that summarises; empty is the agent's own.
	Model string `json:"model,omitempty"`
	// Instructions say what a summary must preserve.
	Instructions string `json:"instructions,omitempty"`
	// Prompt asks for the summary; {addendums} in it is replaced by the instructions.
	Prompt string `json:"prompt,omitempty"`
}

// Turns is a number of answers, or all of them.
type Turns struct {
	All bool
	N   int
}

const allTurns = `"all"`

// UnmarshalJSON reads a number or the word all.
func (t *Turns) UnmarshalJSON(b []byte) error {
	if string(b) == allTurns {
		t.All = true
		return nil
	}
	return json.Unmarshal(b, &t.N)
}

// MarshalJSON writes a number or the word all.
func (t Turns) MarshalJSON() ([]byte, error) {
	if t.All {
		return []byte(allTurns), nil
	}
	return json.Marshal(t.N)
}

// Schema is the JSON Schema of parameters.
const Schema = `{"type": "object", "required": ["strategy"], "additionalProperties": false, "properties": {
	"strategy": {"enum": ["auto", "edit", "native", "summary", "trim"], "description": "auto: the provider's own compaction, else a summary; edit: remove results of tools and past reasoning; native: the provider's own alone; summary: a model summarises; trim: remove the oldest messages."},
	"threshold": {"type": "number", "exclusiveMinimum": 0, "description": "Compact above this size: tokens if whole or above 1, else a part of the context window. Default 0.9."},
	"memory": {"type": "boolean", "description": "Ask the model to save notes beforehand, if it has the tool memory. Default true, of native false."},
	"preserve": {"type": "number", "minimum": 0, "maximum": 1, "description": "trim: the part of the messages that stays. Default 0.8."},
	"keep_thinking_turns": {"description": "edit: the last answers that keep their reasoning, or all. Default 1.", "anyOf": [{"type": "integer", "minimum": 0}, {"enum": ["all"]}]},
	"keep_tool_uses": {"type": "integer", "minimum": 0, "description": "edit: the last uses of tools that keep their results. Default 3."},
	"keep_tool_inputs": {"type": "boolean", "description": "edit: keep the calls whose results are removed. Default true."},
	"exclude_tools": {"type": "array", "items": {"type": "string"}, "description": "edit: tools whose results stay."},
	"model": {"type": "string", "description": "summary: the model that summarises, provider/name, or a role of the run. Default the agent's model."},
	"instructions": {"type": "string", "description": "summary, native, auto: what must be preserved."},
	"prompt": {"type": "string", "minLength": 1, "description": "summary: replaces the request for a summary; {addendums} in it becomes the instructions."}
}}`

const (
	defaultThreshold = "0.9"
	defaultPreserve  = 0.8
	defaultToolUses  = 3
	defaultThinking  = 1
)

// Resolve writes the defaults out. It fails with INVALID_REQUEST if an option is of another strategy; at is the path of
// the parameters.
func (p *Params) Resolve(at string) error {
	for _, o := range []struct {
		name  string
		given bool
		of    []Strategy
	}{
		{"preserve", p.Preserve != nil, []Strategy{Trim}},
		{"keep_thinking_turns", p.KeepThinkingTurns != nil, []Strategy{Edit}},
		{"keep_tool_uses", p.KeepToolUses != nil, []Strategy{Edit}},
		{"keep_tool_inputs", p.KeepToolInputs != nil, []Strategy{Edit}},
		{"exclude_tools", p.ExcludeTools != nil, []Strategy{Edit}},
		{"model", p.Model != "", []Strategy{Summary}},
		{"prompt", p.Prompt != "", []Strategy{Summary}},
		{"instructions", p.Instructions != "", []Strategy{Auto, Native, Summary}},
	} {
		if o.given && !slices.Contains(o.of, p.Strategy) {
			return rpcerr.InvalidField(at+"/"+o.name, "the strategy %s has no %s, which is of %v", p.Strategy, o.name, o.of)
		}
	}
	if p.Threshold == "" {
		p.Threshold = defaultThreshold
	}
	if p.Memory == nil {
		p.Memory = new(p.Strategy != Native)
	}
	switch p.Strategy {
	case Trim:
		p.Preserve = or(p.Preserve, defaultPreserve)
	case Edit:
		p.KeepThinkingTurns = or(p.KeepThinkingTurns, Turns{N: defaultThinking})
		p.KeepToolUses = or(p.KeepToolUses, defaultToolUses)
		p.KeepToolInputs = or(p.KeepToolInputs, true)
	case Summary:
		if p.Prompt == "" {
			p.Prompt = summaryPrompt
		}
	case Auto, Native:
	}
	return nil
}

func or[T any](value *T, standard T) *T {
	if value == nil {
		return &standard
	}
	return value
}

// maxThreshold bounds thresholds, since sums of tokens must not overflow. No conversation is as long.
const maxThreshold = 1 << 60

// tokens returns the threshold in tokens, of a context window.
func (p *Params) tokens(window int64) int64 {
	if n, err := strconv.ParseInt(p.Threshold.String(), 10, 64); err == nil {
		return min(n, maxThreshold)
	}
	size, _ := p.Threshold.Float64() // The schema admits numbers alone. One that is too large is infinite.
	if size <= 1 {
		size *= float64(window)
	}
	return int64(min(size, maxThreshold))
}

// Windows returns the context windows that a compaction uses. Own is the agent's model, as its parameters name it. The
// threshold may be a part of its window; the model that summarises is sent what it has room for, if that is known.
func (p *Params) Windows(own string) []agent.Window {
	var used []agent.Window
	if p.tokens(1) != p.tokens(DefaultWindow) {
		used = append(used, agent.Window{Model: own, Default: DefaultWindow})
	}
	if p.Strategy == Summary || p.Strategy == Auto {
		used = append(used, agent.Window{Model: cmp.Or(p.Model, own)})
	}
	return used
}
