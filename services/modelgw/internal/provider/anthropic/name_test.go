package anthropic

import (
	"testing"

	"github.com/stretchr/testify/assert"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

func TestWhatNamesSay(t *testing.T) {
	t.Parallel()
	for n, want := range map[name]generation{
		"claude-3-opus-20240229":     {opus, 30},
		"claude-3-5-haiku-20241022":  {haiku, 35},
		"claude-3-7-sonnet-latest":   {sonnet, 37},
		"claude-sonnet-4-20250514":   {sonnet, 40},
		"claude-opus-4-1-20250805":   {opus, 41},
		"claude-opus-4-8":            {opus, 48},
		"claude-opus-5-20270101":     {opus, 50},
		"claude-fable-5-1":           {fable, 51},
		"claude-haiku-5-5@20270101":  {haiku, 55},
		"proxy/claude-sonnet-4-5-v1": {sonnet, 45},
		"heron-preview":              {"", frontier},
		"claude-mythos-preview":      {mythos, frontier},
		"claude-instant-1.2":         {"", frontier},
	} {
		assert.Equal(t, want, n.generation(), n)
	}
	assert.False(t, name("claude-instant-1.2").caches())
	assert.True(t, name("claude-3-5-sonnet").caches())
	assert.True(t, name("heron-preview").generation().takesSystemTurns())
	assert.False(t, name("claude-mythos-preview").generation().takesSystemTurns())
}

func TestRoomByGeneration(t *testing.T) {
	t.Parallel()
	high, most := &modelv1.GenerateConfig{ReasoningEffort: new("high")}, &modelv1.GenerateConfig{ReasoningTokens: new(int64(1 << 20))}
	for n, want := range map[name][3]int64{ // plain, with high effort, with a budget beyond all bounds
		"claude-3-5-haiku": {4096, 4096, 4096},
		"claude-3-7":       {32000, 48000, 128000},
		"claude-opus-4-1":  {32000, 32000, 32000},
		"claude-haiku-4-5": {32000, 48000, 64000},
		"claude-opus-4-6":  {32000, 48000, 128000},
		"claude-haiku-4-6": {32000, 48000, 64000},
		"claude-sonnet-5":  {32000, 48000, 128000},
		"heron-preview":    {32000, 48000, 128000},
	} {
		g := n.generation()
		c := provider.Capabilities{MaxTokens: g.base(), ReasoningHeadroom: g.room()}
		assert.Equal(t, want, [3]int64{c.MaxTokensFor(nil), c.MaxTokensFor(high), c.MaxTokensFor(most)}, n)
	}
}
