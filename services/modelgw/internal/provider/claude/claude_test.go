package claude

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestWhatNamesSay(t *testing.T) {
	t.Parallel()
	for n, want := range map[string]Generation{
		"claude-3-opus-20240229":          {Opus, 30},
		"claude-3-5-haiku-20241022":       {Haiku, 35},
		"claude-3-7-sonnet-latest":        {Sonnet, 37},
		"claude-sonnet-4-20250514":        {Sonnet, 40},
		"claude-opus-4-1-20250805":        {Opus, 41},
		"claude-opus-4-8":                 {Opus, 48},
		"claude-opus-5-20270101":          {Opus, 50},
		"claude-fable-5-1":                {Fable, 51},
		"claude-haiku-5-5@20270101":       {Haiku, 55},
		"proxy/claude-sonnet-4-5-v1":      {Sonnet, 45},
		"us.anthropic.claude-opus-4-7-v1": {Opus, 47},
		"heron-preview":                   {"", Frontier},
		"claude-mythos-preview":           {Mythos, Frontier},
		"claude-instant-1.2":              {"", Frontier},
	} {
		assert.Equal(t, want, GenerationOf(n), n)
	}
}
