package chat

import (
	"cmp"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
)

// Merge overlays configurations, the lowest first: a member that is set in a higher one replaces it whole, lists and
// maps too. It modifies none; nil is an empty one.
func Merge(layers ...*modelv1.GenerateConfig) *modelv1.GenerateConfig {
	var lowest *modelv1.GenerateConfig
	if len(layers) > 0 {
		lowest, layers = layers[0], layers[1:]
	}
	merged := cmp.Or(proto.CloneOf(lowest), &modelv1.GenerateConfig{})
	m := merged.ProtoReflect()
	for _, layer := range layers {
		proto.CloneOf(layer).ProtoReflect().Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
			m.Set(field, value)
			return true
		})
	}
	return merged
}

// ExtraBodyMember is the prefix of the name of a member of extra_body where options are named.
const ExtraBodyMember = "extra_body."

// Without returns a configuration without options, named as in GenerateConfig, and members of extra_body; it ignores
// unknown names. A configuration that has none of them is returned itself.
func Without(config *modelv1.GenerateConfig, options []string) *modelv1.GenerateConfig {
	less := config
	own := func() *modelv1.GenerateConfig {
		if less == config {
			less = proto.CloneOf(config)
		}
		return less
	}
	has := config.ProtoReflect()
	for _, option := range options {
		if member, ok := strings.CutPrefix(option, ExtraBodyMember); ok {
			if config.GetExtraBodyJson() != "" {
				dropExtra(own(), member)
			}
		} else if field := has.Descriptor().Fields().ByName(protoreflect.Name(option)); field != nil && has.Has(field) {
			own().ProtoReflect().Clear(field)
		}
	}
	return less
}

// Changed returns a configuration with options as they are sent to a provider; one that has none of the changed options
// with the asked value is returned itself.
func Changed(config *modelv1.GenerateConfig, changes []*modelv1.ChangedOption) *modelv1.GenerateConfig {
	sent := config
	for _, change := range changes {
		field := config.ProtoReflect().Descriptor().Fields().ByName(protoreflect.Name(change.GetOption()))
		if field == nil || field.Kind() != protoreflect.StringKind || field.IsList() || !config.ProtoReflect().Has(field) {
			continue
		}
		if config.ProtoReflect().Get(field).String() != change.GetAsked() {
			continue
		}
		if sent == config {
			sent = proto.CloneOf(config)
		}
		sent.ProtoReflect().Set(field, protoreflect.ValueOfString(change.GetSent()))
	}
	return sent
}

// dropExtra removes a member from extra_body, and extra_body itself if it was the last one.
func dropExtra(c *modelv1.GenerateConfig, member string) {
	body, err := orderedjson.DecodeObject([]byte(c.GetExtraBodyJson()))
	if err != nil {
		return
	}
	if body.Delete(member); body.Len() == 0 {
		c.ExtraBodyJson = nil
		return
	}
	c.ExtraBodyJson = new(string(orderedjson.Append(nil, body)))
}

// ResolveConfig returns the configuration of a call from those of the model, of the run and of the call. The run's
// configuration applies whole to the model under evaluation (active). Any other model takes from it only the options of
// connections, retries and the cache, and fail_on_refusal if it has none of its own.
func ResolveConfig(model, run, call *modelv1.GenerateConfig, active bool) *modelv1.GenerateConfig {
	if active {
		return Merge(model, run, call)
	}
	shared := &modelv1.GenerateConfig{}
	if run != nil {
		shared.MaxConnections, shared.AdaptiveConnections = run.MaxConnections, run.AdaptiveConnections
		shared.MaxRetries, shared.Timeout, shared.Cache = run.MaxRetries, run.Timeout, run.Cache
		if model == nil || model.FailOnRefusal == nil {
			shared.FailOnRefusal = run.FailOnRefusal
		}
	}
	return Merge(model, shared, call)
}
