package provider_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

func TestRoomForReasoning(t *testing.T) {
	t.Parallel()
	room := &provider.ReasoningHeadroom{Efforts: map[string]int64{"low": 10}, Budget: true, Least: map[string]int64{"max": 150}, Most: 200}
	effortFirst := &provider.ReasoningHeadroom{Efforts: room.Efforts, Budget: true, EffortFirst: true}
	both := &modelv1.GenerateConfig{ReasoningEffort: new("low"), ReasoningTokens: new(int64(40))}
	for name, test := range map[string]struct {
		room   *provider.ReasoningHeadroom
		config *modelv1.GenerateConfig
		want   int64
	}{
		"no room":            {nil, both, 100},
		"nothing asked":      {room, nil, 100},
		"an effort":          {room, &modelv1.GenerateConfig{ReasoningEffort: new("low")}, 110},
		"an unknown effort":  {room, &modelv1.GenerateConfig{ReasoningEffort: new("none")}, 100},
		"a budget":           {room, &modelv1.GenerateConfig{ReasoningTokens: new(int64(30))}, 130},
		"both":               {room, both, 140},
		"both, no budget":    {room, &modelv1.GenerateConfig{ReasoningEffort: new("low"), ReasoningTokens: new(int64(0))}, 100},
		"both, effort first": {effortFirst, both, 110},
		"great effort":       {room, &modelv1.GenerateConfig{Effort: new("max")}, 150},
		"over the most":      {room, &modelv1.GenerateConfig{ReasoningTokens: new(int64(3000))}, 200},
	} {
		assert.Equal(t, test.want, provider.Capabilities{MaxTokens: 100, ReasoningHeadroom: test.room}.MaxTokensFor(test.config), name)
	}
	assert.Zero(t, provider.Capabilities{ReasoningHeadroom: room}.MaxTokensFor(both), "without a default the server decides")
}
