package auth_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/auth"
	"github.com/evalfleet/evalfleet/pkg/bound"
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

// A token that another user could have put there is not taken.
func TestATokenFileIsItsOwnersAlone(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	path := filepath.Join(folder, "token")
	_, err := auth.TokenFile(path)
	require.NoError(t, err)
	require.NoError(t, os.Chmod(folder, 0o777))
	_, err = auth.TokenFile(path)
	require.ErrorContains(t, err, "chmod o-w")
	require.NoError(t, os.Chmod(folder, 0o777|os.ModeSticky))
	_, err = auth.TokenFile(path)
	require.NoError(t, err)

	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Mkdir(path, 0o700))
	_, err = auth.TokenFile(path)
	require.ErrorContains(t, err, "is a folder")
	require.NoError(t, os.Remove(path))
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	_, err = auth.TokenFile(path)
	require.ErrorContains(t, err, "is a pipe", "the start does not wait for a writer")
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.WriteFile(path, make([]byte, 1<<20), 0o600))
	_, err = auth.TokenFile(path)
	require.ErrorContains(t, err, "more than")

	if os.Geteuid() != 0 {
		t.Skip("the rest needs root, to make files of others")
	}
	require.NoError(t, os.WriteFile(path, []byte("known to another"), 0o600))
	require.NoError(t, os.Chown(path, 12345, 12345))
	_, err = auth.TokenFile(path)
	require.ErrorContains(t, err, "belongs to user 12345")
	require.NoError(t, os.Chown(folder, 12345, 12345))
	_, err = auth.TokenFile(path)
	require.NoError(t, err, "a folder of that user's was named")
}

func TestAShortTokenIsRefused(t *testing.T) {
	t.Parallel()
	require.NoError(t, auth.CheckToken(config.NewSecret(strings.Repeat("x", bound.TokenCharacters)), "token"))
	err := auth.CheckToken(config.NewSecret("hunter2"), "token (EVALFLEET_TOKEN)")
	require.ErrorContains(t, err, "token (EVALFLEET_TOKEN): the token has 7 characters and needs at least 16")
	assert.NotContains(t, err.Error(), "hunter2")
}
