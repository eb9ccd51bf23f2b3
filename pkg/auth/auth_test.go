package auth_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/auth"
	"github.com/evalfleet/evalfleet/pkg/config"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

func TestTokens(t *testing.T) {
	t.Parallel()
	tokens := auth.NewTokens("toolexec", map[string]config.Secret{"admin": config.NewSecret("t1")})
	p, err := tokens.Authenticate(t.Context(), "t1")
	require.NoError(t, err)
	assert.Equal(t, "admin", p.Name)
	for _, bad := range []string{"", "t2", "t1 "} {
		_, err := tokens.Authenticate(t.Context(), bad)
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_TOKEN_INVALID), "%q", bad)
		if bad != "" {
			assert.ErrorContains(t, err, "not known to toolexec", "who of several refuses it")
		}
		assert.NotContains(t, err.Error(), "t1")
	}
}

func TestBearer(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]string{"Bearer x": "x", "bearer  x ": "x", "Basic x": "", "x": "", "": ""} {
		assert.Equal(t, want, auth.Bearer(header), "%q", header)
	}
}

func TestATokenFileIsMadeOnceAndForItsOwnerOnly(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "token")
	first, err := auth.TokenFile(path)
	require.NoError(t, err)
	assert.Len(t, first.Reveal(), 64)
	second, err := auth.TokenFile(path)
	require.NoError(t, err)
	assert.Equal(t, first.Reveal(), second.Reveal())

	require.NoError(t, os.Chmod(path, 0o644))
	_, err = auth.TokenFile(path)
	assert.ErrorContains(t, err, "chmod 600")
}
