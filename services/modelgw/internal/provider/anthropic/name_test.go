package anthropic

import (
	"testing"

	"github.com/stretchr/testify/assert"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

func TestWhatNamesSay(t *testing.T) {
	t.Parallel()
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
