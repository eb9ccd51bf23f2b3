package local_test

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/evalfleet/evalfleet/pkg/programtest"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver/drivertest"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver/local"
)

// guestPath is the guest program, built once.
var guestPath string

// guestVariable passes the path of the guest program to tests, and to a test program that runs as another user.
const guestVariable = "EVALFLEET_TEST_GUEST"

// slowVariable tells tests that they run on an emulated machine.
const slowVariable = "EVALFLEET_TEST_SLOW"

func TestMain(m *testing.M) {
	os.Exit(func() int {
		guestPath = os.Getenv(guestVariable)
		if guestPath == "" {
			dir, err := programtest.Build("", "./services/sandboxd/cmd/guestd")
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
			defer os.RemoveAll(dir)
			guestPath = filepath.Join(dir, "guestd")
			os.Setenv(guestVariable, guestPath)
		}
		code := m.Run()
		if err := goleak.Find(); err != nil && code == 0 {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return code
	}())
}

func newDriver(t *testing.T, dir string) driver.Driver {
	t.Helper()
	d, err := local.New(local.Config{Dir: dir, GuestPath: guestPath, SearchPath: os.Getenv("PATH"), Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, d.Close()) })
	return d
}

func TestSuite(t *testing.T) {
	t.Parallel()
	caps, err := newDriver(t, t.TempDir()).Probe(t.Context())
	require.NoError(t, err)
	h := drivertest.Harness{New: newDriver, OneUser: os.Geteuid() != 0, Slow: os.Getenv(slowVariable) != ""}
	if problem, ok := rpcerr.As(caps.Problem); ok && h.OneUser && problem.Metadata["missing"] == "cgroups for memory and pids" {
		t.Log("this user can make no cgroups, so boxes are made as where that is allowed: ", caps.Problem)
		h.Unisolated = true
	} else {
		require.NoError(t, caps.Problem, "this machine must be able to isolate, or the promises below are not tested")
		assert.Contains(t, caps.Isolation.Parts, "cgroup memory")
	}
	drivertest.Run(t, h)
}

// A machine that lost its power leaves nothing of a box but its folder.
func TestABoxWithoutARecordIsClearedAway(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "box"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "box", "box.json"), nil, 0o600))
	d := newDriver(t, dir)
	left, err := d.List(t.Context(), "me")
	require.NoError(t, err)
	require.Len(t, left, 1)
	assert.WithinDuration(t, time.Now(), left[0].Created, time.Minute, "its folder tells")
	left[0].Created = time.Time{}
	assert.Equal(t, []driver.Observed{{ID: "box"}}, left)
	require.NoError(t, d.Destroy(t.Context(), "box"))
	left, err = d.List(t.Context(), "me")
	require.NoError(t, err)
	assert.Empty(t, left)
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	require.NoError(t, err)
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	require.NoError(t, err)
	_, err = io.Copy(out, in)
	require.NoError(t, err)
	require.NoError(t, out.Close())
}
