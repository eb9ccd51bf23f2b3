package bedrock

import (
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/claude"
)

// ignored are options that the API or the model does not have.
func (m *model) ignored() []string {
	all := []string{"frequency_penalty", "presence_penalty", "num_choices", "logit_bias", "logprobs", "top_logprobs", "verbosity", "modalities"}
	if m.family != anthropicFamily {
		all = append(all, "response_schema")
	}
	return all
}

// dropped are options that the API or the model does not have, and that shape no more than how an answer is made.
func (m *model) dropped() []string {
	all := []string{
		"seed", "best_of", "prompt_logprobs", "parallel_tool_calls", "internal_tools", "fallback_models", "extra_headers",
		"reasoning_mode", "reasoning_summary",
	}
	if m.family != anthropicFamily {
		all = append(all, "effort")
	}
	if !m.caches() {
		all = append(all, "cache_prompt")
	}
	if !m.takesEffort() {
		all = append(all, "reasoning_effort")
	}
	if m.family != anthropicFamily || m.claude.Control() == claude.NoThinking {
		all = append(all, "reasoning_tokens")
	}
	return all
}

// takesEffort reports whether the model reasons by an effort.
func (m *model) takesEffort() bool {
	switch m.family {
	case gptFamily:
		return true
	case novaFamily:
		return !m.isFirstNova()
	case anthropicFamily:
		return m.claude.Control() == claude.ByEither || m.claude.Control() == claude.ByEffort
	default:
		return false
	}
}

// leastEffort is the effort with which the model reasons least. Claude and Nova reason only if they are asked to, and
// Nova has no word for that.
func (m *model) leastEffort() string {
	switch {
	case m.family == gptFamily:
		return "low"
	case m.family == anthropicFamily && m.claude.Control() != claude.NoThinking:
		return "none"
	default:
		return ""
	}
}

// Overruled implements provider.OptionDropper.
func (m *model) Overruled(c *modelv1.GenerateConfig) []provider.Unsent {
	return append(m.plan(&provider.Request{Config: c}).unsent, provider.UnsentArguments(provider.BoundedAttempts, map[string]bool{
		"read_timeout": jsonread.IsSet(m.args.ReadTimeout), "connect_timeout": jsonread.IsSet(m.args.ConnectTimeout),
	})...)
}

// Changed implements provider.OptionChanger.
func (m *model) Changed(c *modelv1.GenerateConfig) []*modelv1.ChangedOption {
	if m.family != anthropicFamily {
		return nil
	}
	return m.claude.Changed(c)
}

// Check implements provider.Provider.
func (m *model) Check(*modelv1.GenerateConfig) error { return nil }

// Capabilities implements provider.Provider.
func (m *model) Capabilities() provider.Capabilities {
	return provider.Capabilities{
		ConnectionKey: string(m.name),
		MaxTokens:     m.name.bound(),
		LeastEffort:   m.leastEffort(),
		MergeUser:     true, MergeAssistant: true,
		RefusesBlank: true, UserFirst: true, CallsNeedTools: true, UniqueCalls: true,
		Hosted:    provider.Hosted{NoHistory: true},
		Ignored:   m.ignored(),
		Dropped:   m.dropped(),
		ExtraBody: []string{},
		Server:    m.access.Server(),
		Features: &modelv1.Capabilities{
			Tools: true, Images: true, Streaming: m.args.Streaming == nil || *m.args.Streaming, ResponseSchema: m.family == anthropicFamily,
			Reasoning: m.takesEffort() || m.family == anthropicFamily && m.claude.Control() != claude.NoThinking,
		},
	}
}
