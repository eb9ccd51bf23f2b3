package cli_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Accounts in clouds are shown where they can be used, or where their provider is asked for.
func TestAccountsInCloudsAreShown(t *testing.T) {
	t.Parallel()
	flags := serve(t, &server{keyed: []string{"google", "openai/azure"}})
	c := begin(t, append(flags, "models")...)
	require.Equal(t, 0, c.end(t), c.stderr.String())
	assert.Regexp(t, `openai/azure +default .*the cloud's credentials, if it gives any`, c.stdout.String())
	assert.NotContains(t, c.stdout.String(), "google/azure")
	c = begin(t, append(flags, "models", "--provider", "google")...)
	require.Equal(t, 0, c.end(t), c.stderr.String())
	assert.Regexp(t, `google/azure +default .*no:`, c.stdout.String())
}

func TestAModelIsCheckedWithoutACall(t *testing.T) {
	t.Parallel()
	flags := serve(t, &server{keyed: []string{"openai"}})
	c := begin(t, append(flags, "models", "--check", "openai/gpt-4o")...)
	require.Equal(t, 0, c.end(t), c.stderr.String())
	assert.Regexp(t, `openai/default +1 +key +ok +it is set`, c.stdout.String())

	c = begin(t, append(flags, "models", "--check", "openai/gpt-4o", "google/gemini-2.5-pro")...)
	assert.Equal(t, 1, c.end(t))
	assert.Contains(t, c.stdout.String(), "the key is refused (status 401)")
	assert.Contains(t, c.stderr.String(), "1 of 2 credentials cannot be used")

	c = begin(t, append(flags, "models", "--check", "google/gemini-2.5-pro", "--json")...)
	assert.Equal(t, 1, c.end(t))
	var check struct {
		Provider string
		Key      int
		Failed   bool
		Steps    []struct{ Name, Result, Detail string }
	}
	require.NoError(t, json.Unmarshal([]byte(c.stdout.String()), &check))
	assert.Equal(t, "google", check.Provider)
	assert.True(t, check.Failed)
	assert.Equal(t, "ACCOUNT_CHECK_RESULT_FAILED", check.Steps[1].Result)
}
