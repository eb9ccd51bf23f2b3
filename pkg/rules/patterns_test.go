package rules

import (
	"testing"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"github.com/stretchr/testify/assert"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	// Every file of the protocol with a pattern.
	_ "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	_ "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/blob/v1"
)

// An error describes what is wanted in words, not by a regular expression.
func TestEveryPatternIsDescribed(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	protoregistry.GlobalTypes.RangeMessages(func(message protoreflect.MessageType) bool {
		for i := range message.Descriptor().Fields().Len() {
			rules, _ := proto.GetExtension(message.Descriptor().Fields().Get(i).Options(), validate.E_Field).(*validate.FieldRules)
			for _, of := range []*validate.FieldRules{rules, rules.GetRepeated().GetItems(), rules.GetMap().GetKeys(), rules.GetMap().GetValues()} {
				if pattern := of.GetString().GetPattern(); pattern != "" {
					found[pattern] = true
					assert.NotEmpty(t, patterns[pattern], "%s: %s", message.Descriptor().FullName(), pattern)
				}
			}
		}
		return true
	})
	for pattern := range patterns {
		assert.True(t, found[pattern], "no field has the pattern %s", pattern)
	}
}
