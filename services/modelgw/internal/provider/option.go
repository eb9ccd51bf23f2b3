package provider

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/enum"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// usual are the values of options that do not change an answer.
var usual = (&modelv1.GenerateConfig{
	Temperature: new(1.0), TopP: new(1.0), FrequencyPenalty: new(0.0), PresencePenalty: new(0.0), NumChoices: new(int32(1)), LogitBias: &modelv1.LogitBias{},
	Logprobs: new(false), TopLogprobs: new(int32(0)), Verbosity: new("medium"), BestOf: new(int32(1)), ParallelToolCalls: new(true), InternalTools: new(false),
	StopSeqs: &modelv1.StringList{}, FallbackModels: &modelv1.StringList{}, Modalities: &modelv1.ModalityList{}, CachePrompt: modelv1.CachePrompt_CACHE_PROMPT_AUTO,
}).ProtoReflect()

// OptionsSet returns those of the options that a configuration sets to another value than the default.
func OptionsSet(c *modelv1.GenerateConfig, options []string) []string {
	_, set := optionsSet(c, options)
	return set
}

// optionsSet returns those of the options that a configuration has, and those of them that OptionsSet returns.
func optionsSet(c *modelv1.GenerateConfig, options []string) (given, set []string) {
	asked := c.ProtoReflect()
	for _, option := range options {
		field := asked.Descriptor().Fields().ByName(protoreflect.Name(option))
		if !asked.Has(field) {
			continue
		}
		given = append(given, option)
		if !usual.Has(field) || !usual.Get(field).Equal(asked.Get(field)) {
			set = append(set, option)
		}
	}
	return given, set
}

// Unsent is an option that is set but not sent to a provider.
type Unsent struct {
	// Option is its name in GenerateConfig; a member of extra_body is `extra_body.NAME`, a model argument
	// `model_args.NAME`.
	Option string
	// Why is the end of a sentence about the model.
	Why string
}

// ModelArgument is the prefix of the name of a model argument where options are named.
const ModelArgument = "model_args."

// UnsentArguments are the given ones of model arguments, by name, for one reason (Unsent.Why).
func UnsentArguments(why string, given map[string]bool) []Unsent {
	var all []Unsent
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if given[name] {
			all = append(all, Unsent{Option: ModelArgument + name, Why: why})
		}
	}
	return all
}

// notTaken is why most options are not sent.
const notTaken = "which does not take it"

// BoundedAttempts is why timeouts among model arguments are not sent.
const BoundedAttempts = "whose attempts are bounded by attempt_timeout and stream_idle_timeout"

// OptionDropper is a provider that does not send some values of its options, some options beside others, or some
// arguments of the model.
type OptionDropper interface {
	// Overruled are the options of a configuration, and the model arguments, that are not sent.
	Overruled(c *modelv1.GenerateConfig) []Unsent
}

// OptionChanger is a provider that sends other values of some options, since its API has other words for them.
type OptionChanger interface {
	// Changed are those options of a configuration, which has no options that are not sent. What is sent for a value
	// that is sent is that value.
	Changed(c *modelv1.GenerateConfig) []*modelv1.ChangedOption
}

// Change is the change of an option; none if the value is not set, or sent as it is.
func Change(option, asked, sent string) []*modelv1.ChangedOption {
	if asked == "" || asked == sent {
		return nil
	}
	return []*modelv1.ChangedOption{{Option: option, Asked: asked, Sent: sent}}
}

// ChangeEffort is the change of the reasoning_effort of a configuration to the word that is sent.
func ChangeEffort(c *modelv1.GenerateConfig, sent string) []*modelv1.ChangedOption {
	return Change("reasoning_effort", c.GetReasoningEffort(), sent)
}

// Fitted is a configuration fitted to a provider.
type Fitted struct {
	// Sent is the configuration as it is sent, Unsent the set options that are not, and Changed those with other
	// values.
	Sent    *modelv1.GenerateConfig
	Unsent  []Unsent
	Changed []*modelv1.ChangedOption
}

// Fit fits a configuration, which is not modified, to a provider.
func Fit(p Provider, config *modelv1.GenerateConfig) Fitted {
	return FitTo(p, CapabilitiesOf(p, config), config)
}

// FitTo is Fit for a provider whose capabilities with the configuration are known.
func FitTo(p Provider, caps Capabilities, config *modelv1.GenerateConfig) Fitted {
	left, unsent := without(p, caps, config)
	fitted := Fitted{Sent: left, Unsent: unsent}
	if changer, ok := p.(OptionChanger); ok {
		fitted.Changed = changer.Changed(left)
		fitted.Sent = chat.Changed(left, fitted.Changed)
	}
	return fitted
}

// without returns the part of a configuration that is sent to a provider, and the set options that are not sent.
func without(p Provider, c Capabilities, config *modelv1.GenerateConfig) (left *modelv1.GenerateConfig, unsent []Unsent) {
	var options []string
	for _, known := range [][]string{c.Ignored, c.Dropped} {
		given, set := optionsSet(config, known)
		options = append(options, given...)
		for _, option := range set {
			unsent = append(unsent, Unsent{option, notTaken})
		}
	}
	for _, member := range c.unsentMembers(config.GetExtraBodyJson()) {
		unsent = append(unsent, Unsent{chat.ExtraBodyMember + member, notTaken})
	}
	sent := []modelv1.ReasoningHistory{0, modelv1.ReasoningHistory_REASONING_HISTORY_AUTO, c.ForceReasoning}
	if c.ForceReasoning != 0 && !slices.Contains(sent, config.GetReasoningHistory()) {
		unsent = append(unsent, Unsent{"reasoning_history", "whose past reasoning is always replayed as " + enum.Word(c.ForceReasoning)})
	}
	if config.GetStreamIdleTimeout() != 0 && !c.Features.GetStreaming() {
		unsent = append(unsent, Unsent{"stream_idle_timeout", "whose answers are not streamed"})
	}
	if o, ok := p.(OptionDropper); ok {
		unsent = append(unsent, o.Overruled(config)...)
	}
	for _, u := range unsent {
		options = append(options, u.Option)
	}
	return chat.Without(config, options), unsent
}

// CheckOutputs fails for an output other than images, the only one beside text that an API has. model is its full name.
func CheckOutputs(model string, c *modelv1.GenerateConfig) error {
	for _, modality := range c.GetModalities().GetValues() {
		if kind := modality.GetType(); kind != "image" {
			unsupported := rpcerr.CapabilityUnsupported("modality", "%s gives no output of the kind %q", model, kind)
			return rpcerr.In("config.modalities", unsupported)
		}
	}
	return nil
}

// modelMember of extra_body is never sent: a call has the price and the limits of its own model.
const modelMember = "model"

// unsentMembers are the members of extra_body that are not sent.
func (c Capabilities) unsentMembers(extraBody string) []string {
	if extraBody == "" {
		return nil
	}
	body, err := orderedjson.DecodeObject([]byte(extraBody))
	if err != nil {
		return nil // The provider reports the fault.
	}
	var all []string
	for member := range body.All() {
		if member == modelMember || c.ExtraBody != nil && !slices.Contains(c.ExtraBody, member) || slices.Contains(c.ExtraBodyDropped, member) {
			all = append(all, member)
		}
	}
	return all
}
