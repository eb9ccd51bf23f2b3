package providertest

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"google.golang.org/protobuf/reflect/protoreflect"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// efforts are the words for how long a model thinks.
var efforts = []string{"none", "minimal", "low", "medium", "high", "xhigh", "max"}

// testEfforts checks that the configuration which is said to be sent has the word that a request has for an asked one.
// Without are the words of a request that asks for none.
func testEfforts(t *testing.T, r *recorder, p provider.Provider, without []string) {
	t.Helper()
	fields := (&modelv1.GenerateConfig{}).ProtoReflect().Descriptor().Fields()
	for _, option := range []protoreflect.Name{"effort", "reasoning_effort"} {
		for _, word := range efforts {
			config := &modelv1.GenerateConfig{}
			config.ProtoReflect().Set(fields.ByName(option), protoreflect.ValueOfString(word))
			request, _, left, err := sent(t, r, p, config, nil)
			if err != nil {
				continue
			}
			if all := words(request.body); len(all) > len(without) {
				assert.Contains(t, all, left.ProtoReflect().Get(fields.ByName(option)).String(), "%s %s", option, word)
			}
			assert.Empty(t, provider.Fit(p, left).Changed, "%s %s is changed, and then once more", option, word)
		}
	}
}

// words are the efforts in the body of a request.
func words(body any) (all []string) {
	switch v := body.(type) {
	case map[string]any:
		for _, member := range v {
			all = append(all, words(member)...)
		}
	case []any:
		for _, element := range v {
			all = append(all, words(element)...)
		}
	case string:
		if word := strings.ToLower(strings.TrimPrefix(v, "EFFORT_")); slices.Contains(efforts, word) {
			all = append(all, word)
		}
	}
	return all
}
