package provider

import (
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// usual are the values of options with which answers are as they are without them.
var usual = (&modelv1.GenerateConfig{
	Temperature: new(1.0), TopP: new(1.0), FrequencyPenalty: new(0.0), PresencePenalty: new(0.0), NumChoices: new(int32(1)), LogitBias: &modelv1.LogitBias{},
	Logprobs: new(false), TopLogprobs: new(int32(0)), Verbosity: new("medium"), BestOf: new(int32(1)), ParallelToolCalls: new(true), InternalTools: new(false),
	FallbackModels: &modelv1.StringList{}, Modalities: &modelv1.ModalityList{},
}).ProtoReflect()

// Asks returns those of the options that a configuration sets to something else than what is usual.
func Asks(c *modelv1.GenerateConfig, options []string) []string {
	asked := c.ProtoReflect()
	var all []string
	for _, option := range options {
		field := asked.Descriptor().Fields().ByName(protoreflect.Name(option))
		if asked.Has(field) && !(usual.Has(field) && usual.Get(field).Equal(asked.Get(field))) {
			all = append(all, option)
		}
	}
	return all
}

// Sent returns what of a configuration the provider is sent, and which of its options it is not sent although they ask
// for something.
func (c Capabilities) Sent(config *modelv1.GenerateConfig) (sent *modelv1.GenerateConfig, unsent []string) {
	options := slices.Concat(c.Ignored, c.Dropped)
	return chat.Without(config, options), Asks(config, options)
}
