package local_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver/drivertest"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver/local"
)

// guestPath is the guest program, built once.
var guestPath string

// guestVariable tells tests, and a test program that was started as another user, where the guest program is.
const guestVariable = "EVALFLEET_TEST_GUEST"

func TestMain(m *testing.M) {
	os.Exit(func() int {
		guestPath = os.Getenv(guestVariable)
		if guestPath == "" {
			dir, err := os.MkdirTemp("", "guestd")
			if err != nil {
				panic(err)
			}
			defer os.RemoveAll(dir)
			guestPath = filepath.Join(dir, "guestd")
			cmd := exec.Command("go", "build", "-trimpath", "-o", guestPath, "../../../cmd/guestd")
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
			if out, err := cmd.CombinedOutput(); err != nil {
				fmt.Fprintf(os.Stderr, "build the guest: %v\n%s", err, out)
				return 1
			}
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
	require.Empty(t, caps.Problem, "this machine must be able to isolate, or the promises below are not tested")
	root := os.Geteuid() == 0
	drivertest.Run(t, drivertest.Harness{New: newDriver, OneUser: !root, PerProcess: !root && len(caps.Isolation.Weaker) > 0})
}

// TestSuiteWithoutRoot runs the suite in a program of another user, who has nothing but user namespaces.
func TestSuiteWithoutRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("this program has no root; TestSuite is that test")
	}
	const user = 23456
	dir, err := os.MkdirTemp("/tmp", "unprivileged") //nolint:usetesting // a folder that another user can walk to
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.Chown(dir, user, user))
	program, guest := filepath.Join(dir, "local.test"), filepath.Join(dir, "guestd")
	self, err := os.Executable()
	require.NoError(t, err)
	copyFile(t, self, program)
	copyFile(t, guestPath, guest)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "-test.run", "^TestSuite$", "-test.timeout", "3m30s")
	cmd.Dir = dir
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + dir, "TMPDIR=" + dir, guestVariable + "=" + guest}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
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
