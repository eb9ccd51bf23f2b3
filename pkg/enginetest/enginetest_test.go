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
	pid, err := os.ReadFile(filepath.Join(filepath.Dir(socket), "pid"))
	require.NoError(t, err)
	network, err := os.Readlink(filepath.Join("/proc", strings.TrimSpace(string(pid)), "ns/net"))
	require.NoError(t, err)
	machine, err := os.Readlink("/proc/self/ns/net")
	require.NoError(t, err)
	assert.NotEqual(t, machine, network, "an engine without a bridge removes docker0, which is that of the machine's engine")
	require.NoError(t, e.Stop())
	assert.NoDirExists(t, filepath.Dir(socket))
}
