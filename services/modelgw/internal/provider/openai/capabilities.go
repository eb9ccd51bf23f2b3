package openai

import (
	"slices"

	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/chatapi"
)

// usesResponses reports whether calls with this configuration use the Responses API: for images, which no other API
// draws; if the account or the model's arguments say so; and else for models of that API at OpenAI's own address,
// except for several choices, which it lacks.
func (m *model) usesResponses(c *modelv1.GenerateConfig) bool {
	_, images := chat.ImageOutput(c)
	switch asked := m.args.ResponsesAPI; {
	case images:
		return true
	case asked != nil:
		return *asked
	default:
		return m.byName && m.name.wantsResponses() && c.GetNumChoices() <= 1
	}
}

// Options that the Responses API lacks: those that affect an answer, and those that affect how it is made.
var (
	responsesIgnored = []string{"frequency_penalty", "presence_penalty", "logit_bias", "num_choices", "stop_seqs", "top_k"}
	responsesDropped = []string{"best_of", "effort", "fallback_models", "internal_tools", "prompt_logprobs", "reasoning_tokens", "seed"}
	// sampling are options that a model lacks while it reasons.
	sampling = []string{"temperature", "top_p", "logprobs", "top_logprobs"}
	// responsesExtraBody are the members of extra_body that are sent to the Responses API.
	responsesExtraBody = []string{
		"max_tool_calls", "metadata", "previous_response_id", "prompt_cache_key", "prompt_cache_retention", "safety_identifier", "service_tier",
		"store", "truncation",
	}
)

// Capabilities implements provider.Provider.
func (m *model) Capabilities() provider.Capabilities { return m.CapabilitiesOf(nil) }

// CapabilitiesOf implements provider.ByConfig.
func (m *model) CapabilitiesOf(c *modelv1.GenerateConfig) provider.Capabilities {
	caps := provider.Capabilities{
		ConnectionKey: string(m.name),
		Features: &modelv1.Capabilities{
			Tools: true, Images: true, Audio: true, Streaming: m.args.Streaming == nil || *m.args.Streaming, ResponseSchema: true, Reasoning: m.name.takesReasoning(),
		},
		Upstreams: m.upstreams,
	}
	if m.usesResponses(c) {
		caps.Ignored, caps.Dropped, caps.ExtraBody = slices.Clone(responsesIgnored), slices.Clone(responsesDropped), responsesExtraBody
		caps.Features.ToolResultImages = true
		caps.Features.Streaming = caps.Features.Streaming && !m.unverified.stream.Load()
		if !m.name.samples(c) {
			caps.Ignored = append(caps.Ignored, sampling...)
		}
		if !m.name.takesReasoning() {
			caps.Dropped = append(caps.Dropped, "reasoning_effort", "reasoning_summary")
		}
		if !m.name.isNewest() {
			caps.Dropped = append(caps.Dropped, "reasoning_mode")
		}
		if !m.takesCacheMarks() {
			caps.Dropped = append(caps.Dropped, "cache_prompt")
		}
	} else {
		caps.Ignored, caps.Dropped, caps.ExtraBodyDropped = slices.Clone(chatapi.Ignored), slices.Clone(chatapi.Dropped), chatapi.ExtraBodyDropped
		if m.name.reasons() {
			caps.Ignored = append(caps.Ignored, "temperature")
		}
		if !m.name.takesEffort() {
			caps.Dropped = append(caps.Dropped, "reasoning_effort")
		}
		if m.takesCacheMarks() {
			caps.Dropped = slices.DeleteFunc(caps.Dropped, func(option string) bool { return option == "cache_prompt" })
		}
	}
	if m.name.isOSeries() {
		caps.Dropped = append(caps.Dropped, "parallel_tool_calls")
	}
	return caps
}

// Overruled implements provider.OptionDropper.
func (m *model) Overruled(c *modelv1.GenerateConfig) []provider.Unsent {
	var all []provider.Unsent
	if !m.usesResponses(c) {
		for _, argument := range []struct {
			name string
			asks *bool
		}{{"responses_store", m.args.ResponsesStore}, {"responses_phase", m.args.ResponsesPhase}} {
			if argument.asks != nil && *argument.asks {
				all = append(all, provider.Unsent{Option: provider.ModelArgument + argument.name, Why: "since chat completions do not take it"})
			}
		}
		return all
	}
	if m.args.Streaming != nil && *m.args.Streaming && m.unverified.stream.Load() {
		all = append(all, provider.Unsent{Option: provider.ModelArgument + "streaming", Why: "since the server refuses streams to an organization that it has not verified"})
	}
	if extra := extraBody(c); m.stores(extra) {
		if _, given := extra.Get(metadata); given {
			all = append(all, provider.Unsent{Option: chat.ExtraBodyMember + metadata, Why: "since it stores the answer"})
		}
	}
	return all
}

// takesCacheMarks reports whether requests may contain marks for the server's cache.
func (m *model) takesCacheMarks() bool { return m.atVendor && m.name.takesCacheMarks() }
