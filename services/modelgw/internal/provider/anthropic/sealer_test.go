package anthropic_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/anthropic"
)

// Anthropic's models read each other's thinking, in every cloud and with every account. A server at another address may
// be anybody's.
func TestThinkingIsReadWhereverAnthropicsModelsAre(t *testing.T) {
	t.Parallel()
	sealer := func(c anthropic.Config, model string) string {
		t.Helper()
		p, err := openModel(t, c, provider.Spec{Model: model})
		require.NoError(t, err)
		return p.Capabilities().Sealer
	}
	own := sealer(anthropic.Config{APIKey: config.NewSecret("k")}, "claude-sonnet-4-5")
	assert.Equal(t, "anthropic/claude", own)
	assert.Equal(t, own, sealer(anthropic.Config{APIKey: config.NewSecret("other")}, "claude-opus-4-5"))
	assert.Equal(t, own, sealer(bedrockAt("http://127.0.0.1:1"), onBedrock))
	assert.Equal(t, own, sealer(vertexAt(t, "http://127.0.0.1:1"), "vertex/claude-sonnet-4-5@20250929"))
	assert.Equal(t, "anthropic/127.0.0.1:1/default", sealer(anthropic.Config{APIKey: config.NewSecret("k"), BaseURL: "http://127.0.0.1:1"}, "claude-sonnet-4-5"))
}
