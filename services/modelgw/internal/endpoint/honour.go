package endpoint

import (
	"cmp"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// usual are the values of options with which answers are as they are without them.
var usual = (&modelv1.GenerateConfig{
	Temperature: new(1.0), TopP: new(1.0), FrequencyPenalty: new(0.0), PresencePenalty: new(0.0), NumChoices: new(int32(1)), LogitBias: &modelv1.LogitBias{},
	Logprobs: new(false), TopLogprobs: new(int32(0)), Verbosity: new("medium"),
}).ProtoReflect()

// honoured fails where a request asks for what its model's provider would pass over. Callers of the platform's own API are told of it beside the answer, for which no
// vendor's format has a place.
func (f *format) honoured(config *modelv1.GenerateConfig, m *provider.Model) error {
	asked := config.ProtoReflect()
	for _, option := range m.Capabilities().Ignored {
		field := asked.Descriptor().Fields().ByName(protoreflect.Name(option))
		if asked.Has(field) && !(usual.Has(field) && usual.Get(field).Equal(asked.Get(field))) {
			return dialect.NotSupported(cmp.Or(f.members[option], option), "is not supported by %s; leave it out", m.FullName())
		}
	}
	return nil
}
