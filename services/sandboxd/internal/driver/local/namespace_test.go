package local

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/box"
)

// noneVariable is set in the program that this test starts to bound the namespaces of its own.
const noneVariable = "EVALFLEET_TEST_NO_NAMESPACES"

// mostNetworks bounds the network namespaces of a user namespace.
const mostNetworks = "/proc/sys/user/max_net_namespaces"

// TestNamespacesThatAreForbiddenAreNoShortage forbids a kind of namespaces, and then uses them up. The kernel has the
// same error for both.
func TestNamespacesThatAreForbiddenAreNoShortage(t *testing.T) {
	t.Parallel()
	if errors.Is(unix.Access(mostNetworks, unix.W_OK), unix.EROFS) {
		t.Skip("SKIP: " + mostNetworks + " is read-only here, as it is in most containers")
	}
	if os.Getenv(noneVariable) == "" {
		self, err := os.Executable()
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), waittest.Bound)
		defer cancel()
		cmd := exec.CommandContext(ctx, self, "-test.run", "^TestNamespacesThatAreForbiddenAreNoShortage$")
		cmd.Env = append(os.Environ(), noneVariable+"=1")
		// Bounds of namespaces are those of a user namespace.
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}},
		}
		out, err := cmd.CombinedOutput()
		if out == nil && err != nil {
			t.Skip("SKIP: this machine gives this user no user namespace: ", err)
		}
		require.NoError(t, err, "%s", out)
		return
	}
	d := newTestDriver(t)
	bounded := func(most string) *box.PartError {
		require.NoError(t, os.WriteFile(mostNetworks, []byte(most), 0))
		cmd := exec.CommandContext(t.Context(), d.guest.Path, "version")
		cmd.SysProcAttr = d.attributes(plan{capabilities: allCapabilities})
		err := cmd.Start()
		require.ErrorIs(t, err, unix.ENOSPC)
		return d.refused(t.Context(), err)
	}
	part := bounded("0")
	assert.Equal(t, "network namespace", part.Part)
	assert.ErrorContains(t, part, "user.max_net_namespaces is 0")
	assert.False(t, box.Transient(part))

	require.NoError(t, os.WriteFile(mostNetworks, []byte("1"), 0))
	one := exec.CommandContext(t.Context(), "sleep", "60")
	one.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	require.NoError(t, one.Start())
	assert.True(t, box.Transient(bounded("1")))
	require.NoError(t, one.Process.Kill())
	_ = one.Wait()
}
