package enginetest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/evalfleet/evalfleet/pkg/enginetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAnEngineOfTheTestsOwnLeavesNothing(t *testing.T) {
	t.Parallel()
	e, err := enginetest.Start(t.Context())
	require.NoError(t, err)
	socket := strings.TrimPrefix(e.Host, "unix://")
	assert.True(t, e.Own)
	_, err = os.Stat(socket)
	require.NoError(t, err)
	mounts, err := os.ReadFile("/proc/self/mounts")
	require.NoError(t, err)
	assert.NotContains(t, string(mounts), filepath.Dir(socket), "its mounts are its own")
	require.NoError(t, e.Stop())
	assert.NoDirExists(t, filepath.Dir(socket))
}
