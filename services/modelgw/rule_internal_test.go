package modelgw

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// One process behaves as recorded; replicas that share limits use more of the capacity. An operator may choose either.
func TestTheRuleOfAdaptiveLimits(t *testing.T) {
	t.Parallel()
	redis := RedisConfig{Addresses: []string{"127.0.0.1:6379"}}
	for _, c := range []struct {
		config  Config
		probing bool
	}{
		{Config{}, false},
		{Config{Redis: redis}, true},
		{Config{AdaptiveRule: "probing"}, true},
		{Config{AdaptiveRule: "recorded", Redis: redis}, false},
	} {
		c.config.SetDefaults()
		require.NoError(t, c.config.Validate())
		assert.Equal(t, c.probing, c.config.probing(), "%v", c.config.AdaptiveRule)
	}
	wrong := Config{AdaptiveRule: "cubic"}
	wrong.SetDefaults()
	require.ErrorContains(t, wrong.Validate(), `adaptive_rule: "cubic" is no rule; write recorded or probing`)
}
