package providertest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/config"
)

// Load loads a provider's configuration as the case has it: from its variables, then its key and address.
func (s GoldenSetup) Load(t testing.TB, c any, key *config.Secret, baseURL *string) {
	t.Helper()
	require.NoError(t, config.Load(t.Context(), c, "", s.LookUp))
	if s.APIKey != "" {
		*key = config.NewSecret(s.APIKey)
	}
	if s.BaseURL != "" {
		*baseURL = s.BaseURL
	}
}
