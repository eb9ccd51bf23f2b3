package openai

import (
	"slices"

	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/chatapi"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/responsesapi"
)

// usesResponses reports whether calls with this configuration use the Responses API: for images, which no other API
// draws, or because it is the model's own.
func (m *model) usesResponses(c *modelv1.GenerateConfig) bool {
	_, images := chat.ImageOutput(c)
	return images || m.isOfResponses(c)
}

// isOfResponses reports whether the Responses API is the model's own: for answers in the background, and if the account
// or the model's arguments say so; and else for models of that API at OpenAI's own address, except for several choices,
// which it lacks. Models that answer in the background only have no other API, whatever the arguments say.
func (m *model) isOfResponses(c *modelv1.GenerateConfig) bool {
	asked, background := m.args.ResponsesAPI, m.args.Background
	switch {
	case background != nil && *background, background == nil && m.byName && m.name.takesLong():
		return true
	case asked != nil:
		return *asked
	default:
		return m.byName && m.name.wantsResponses() && c.GetNumChoices() <= 1
	}
}

// sampling are options that a model lacks while it reasons.
var sampling = []string{"temperature", "top_p", "logprobs", "top_logprobs"}

// Capabilities implements provider.Provider.
func (m *model) Capabilities() provider.Capabilities { return m.CapabilitiesOf(nil) }

// CapabilitiesOf implements provider.ByConfig.
func (m *model) CapabilitiesOf(c *modelv1.GenerateConfig) provider.Capabilities {
	caps := provider.Capabilities{
		ConnectionKey: m.name.id,
		LeastEffort:   m.traits().leastEffort,
		Features: &modelv1.Capabilities{
			Tools: true, Images: true, Audio: true, Streaming: m.args.Streaming == nil || *m.args.Streaming, ResponseSchema: true, Reasoning: m.traits().takesReasoning,
		},
		Hosted:    m.hosted(c),
		Fetches:   provider.Fetches{Images: m.atVendor},
		Upstreams: m.upstreams,
		Batch:     m.batch,
		Server:    m.client.BaseURL,
	}
	caps.Features.Batch = m.batch != nil
	caps.Sealer = m.chatSealer
	if !m.usesResponses(c) {
		caps.Ignored, caps.Dropped = m.traits().ignored, m.traits().dropped
		caps.ExtraBodyDropped = chatapi.ExtraBodyDropped
		return caps
	}
	caps.Sealer, caps.Responses = m.sealer, true
	caps.Fetches.Documents = m.atVendor
	caps.Ignored, caps.Dropped = slices.Clone(responsesapi.Ignored), slices.Clone(responsesapi.Dropped)
	caps.ExtraBody = append(slices.Clone(responsesapi.ExtraBody), backgroundMember)
	caps.Features.ToolResultImages, caps.Features.Compaction = true, true
	caps.Features.Streaming = caps.Features.Streaming && !m.unverified.stream.Load()
	if !m.name.samples(c) {
		caps.Ignored = append(caps.Ignored, sampling...)
	}
	if !m.traits().takesReasoning {
		caps.Dropped = append(caps.Dropped, "reasoning_effort", "reasoning_summary")
		caps.ExtraBody = slices.DeleteFunc(caps.ExtraBody, func(member string) bool { return member == responsesapi.Reasoning })
	}
	caps.Dropped = slices.DeleteFunc(caps.Dropped, func(option string) bool {
		return option == "internal_tools" || option == "reasoning_mode" && m.traits().takesReasoning || option == "cache_prompt" && m.takesCacheMarks()
	})
	if m.name.isOSeries() {
		caps.Dropped = append(caps.Dropped, "parallel_tool_calls")
	}
	return caps
}

// traits are what the model's name says. No configuration changes them.
type traits struct {
	reasons, takesReasoning bool
	leastEffort             string
	// ignored are the options that chat completions ignore, and dropped those that are not sent to them. Of both, lacks
	// are those that other models take.
	ignored, dropped, lacks []string
}

func (m *model) traitsOf() traits {
	t := traits{
		reasons: m.name.reasons(), takesReasoning: m.name.takesReasoning(), leastEffort: m.name.leastEffort(),
		ignored: slices.Clone(chatapi.Ignored), dropped: slices.Clone(chatapi.Dropped),
	}
	if t.reasons {
		t.ignored, t.lacks = append(t.ignored, "temperature"), append(t.lacks, "temperature")
	}
	if !m.name.takesEffort() {
		t.dropped, t.lacks = append(t.dropped, "reasoning_effort"), append(t.lacks, "reasoning_effort")
	}
	if m.name.isOSeries() {
		t.dropped, t.lacks = append(t.dropped, "parallel_tool_calls"), append(t.lacks, "parallel_tool_calls")
	}
	t.dropped = slices.DeleteFunc(t.dropped, func(option string) bool {
		return option == "internal_tools" || option == "cache_prompt" && m.takesCacheMarks()
	})
	t.ignored, t.dropped = slices.Clip(t.ignored), slices.Clip(t.dropped)
	return t
}

// Overruled implements provider.OptionDropper.
func (m *model) Overruled(c *modelv1.GenerateConfig) []provider.Unsent {
	if !m.usesResponses(c) {
		return provider.UnsentArguments("since chat completions do not take it", map[string]bool{
			"responses_store": m.args.ResponsesStore != nil && *m.args.ResponsesStore, "responses_phase": m.args.ResponsesPhase != nil && *m.args.ResponsesPhase,
		})
	}
	var all []provider.Unsent
	if _, given := responsesapi.ExtraBodyOf(c).Get(backgroundMember); given && m.args.Background != nil {
		all = append(all, provider.Unsent{Option: chat.ExtraBodyMember + backgroundMember, Why: "since the model argument of that name takes precedence"})
	}
	if chat.Batch(c) != nil {
		const why = "since a batch is in the background as a whole"
		if m.args.Background != nil {
			all = append(all, provider.Unsent{Option: provider.ModelArgument + backgroundMember, Why: why})
		} else if _, given := responsesapi.ExtraBodyOf(c).Get(backgroundMember); given {
			all = append(all, provider.Unsent{Option: chat.ExtraBodyMember + backgroundMember, Why: why})
		}
	}
	if m.args.Streaming != nil && *m.args.Streaming && m.inBackground(c) {
		all = append(all, provider.Unsent{Option: provider.ModelArgument + "streaming", Why: "since an answer in the background is not streamed"})
	}
	if m.args.Streaming != nil && *m.args.Streaming && m.unverified.stream.Load() {
		all = append(all, provider.Unsent{Option: provider.ModelArgument + "streaming", Why: "since the server refuses streams to an organization that it has not verified"})
	}
	if _, given := responsesapi.ExtraBodyOf(c).Get(responsesapi.Metadata); given && responsesapi.Stores(c, m.args.ResponsesStore) {
		all = append(all, provider.Unsent{Option: chat.ExtraBodyMember + responsesapi.Metadata, Why: "since it stores the answer"})
	}
	return all
}

// Changed implements provider.OptionChanger.
func (m *model) Changed(c *modelv1.GenerateConfig) []*modelv1.ChangedOption {
	if c.GetReasoningEffort() != "max" || m.name.isNewest() || !m.usesResponses(c) {
		return nil
	}
	return provider.ChangeEffort(c, "xhigh") // their highest
}

// takesCacheMarks reports whether requests may contain marks for the server's cache.
func (m *model) takesCacheMarks() bool { return m.atVendor && m.name.takesCacheMarks() }
