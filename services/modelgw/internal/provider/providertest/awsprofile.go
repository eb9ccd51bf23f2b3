package providertest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// AWSProfile makes `work`, with a key and in a region, the only profile in the shared configuration of AWS until the
// test ends.
func AWSProfile(t *testing.T, region string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config")
	text := fmt.Sprintf("[profile work]\nregion = %s\naws_access_key_id = AKIAPROFILEPROFILE00\naws_secret_access_key = secret-of-the-profile\n", region)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	t.Setenv("AWS_CONFIG_FILE", file)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file+"-absent")
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION"} {
		t.Setenv(name, "")
	}
}
