package local_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver/local"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/threadtest"
)

// TestSuiteInAContainer runs the suite in a program that sees /proc as in a container: with parts covered and parts
// read-only.
func TestSuiteInAContainer(t *testing.T) {
	needsRoot(t)
	another := t.TempDir()
	besideAnother := func() error { return errors.Join(mountProc(another), coverProc()) }
	assert.Error(t, inMounts(besideAnother, mountsProc(t)), "it is not allowed in user namespaces there, so the suite shows that it need not be")
	self, err := os.Executable()
	require.NoError(t, err)
	require.NoError(t, inMounts(coverProc, suite(t, self)))
}

// TestSuiteWithoutRoot runs the suite in a program of another user, who has only user namespaces and a delegated
// cgroup.
func TestSuiteWithoutRoot(t *testing.T) {
	needsRoot(t)
	cmd := withoutRoot(t, "^TestSuite$", local.DelegateGroups(t, unprivileged)...)
	require.NoError(t, inMounts(uncoverProc, cmd))
}

// TestWithoutRootAndCgroups runs, as another user who can create no cgroup, the test of the refusals there.
func TestWithoutRootAndCgroups(t *testing.T) {
	needsRoot(t)
	require.NoError(t, inMounts(uncoverProc, withoutRoot(t, "^TestWithoutCgroupsABoxNeedsLeave$")))
}

// unprivileged is a user of this machine without rights.
const unprivileged = 23456

// withoutRoot is tests in a program of another user, that is in cgroups of these folders.
func withoutRoot(t *testing.T, tests string, groups ...string) *exec.Cmd {
	t.Helper()
	require.NoError(t, inMounts(uncoverProc, mountsProc(t)), "what they can do takes a whole /proc, which this test's own machine may lack")
	dir, err := os.MkdirTemp("/tmp", "unprivileged") //nolint:usetesting // a folder that another user can walk to
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.Chown(dir, unprivileged, unprivileged))
	program, guest := filepath.Join(dir, "local.test"), filepath.Join(dir, "guestd")
	self, err := os.Executable()
	require.NoError(t, err)
	copyFile(t, self, program)
	copyFile(t, guestPath, guest)
	ctx, cancel := context.WithTimeout(t.Context(), suiteTimeout)
	t.Cleanup(cancel)
	id := strconv.Itoa(unprivileged)
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", `program=$1 tests=$2; shift 2; for group; do echo $$ > "$group/cgroup.procs" || exit; done
		exec setpriv --reuid ` + id + ` --regid ` + id + ` --clear-groups "$program" -test.run "$tests" -test.timeout 6m`, "sh", program, tests}, groups...)...)
	cmd.WaitDelay = waittest.Bound // for a process that has its output open
	cmd.Dir = dir
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + dir, "TMPDIR=" + dir, guestVariable + "=" + guest}
	return cmd
}

func needsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("this program has no root; TestSuite is that test")
	}
}

// suiteTimeout is longer than the tests' own timeout.
const suiteTimeout = 31 * time.Minute

// suite is TestSuite in a test program of its own.
func suite(t *testing.T, program string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), suiteTimeout)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, program, "-test.run", "^TestSuite$", "-test.timeout", "30m")
	cmd.WaitDelay = waittest.Bound
	return cmd
}

// mountsProc is a command that succeeds if a user namespace may mount a /proc.
func mountsProc(t *testing.T) *exec.Cmd {
	t.Helper()
	return exec.CommandContext(t.Context(), "unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "true")
}

// inMounts runs a command in a mount namespace of its own, after change there. The error contains the command's output.
func inMounts(change func() error, cmd *exec.Cmd) error {
	ran := make(chan error)
	threadtest.Go(func() { // The thread sees other mounts than the rest.
		ran <- func() error {
			if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
				return err
			}
			if err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), change()); err != nil {
				return err
			}
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		}()
	})
	return <-ran
}

// coverProc covers parts of /proc as engines of containers do. Other mounts of /proc are removed then, since the kernel
// would treat an uncovered one as permission to mount more.
func coverProc() error {
	errs := []error{unmountOtherProcs()}
	each := func(names []string, mount func(path string) error) {
		for _, name := range names {
			path := filepath.Join("/proc", name)
			if _, err := os.Lstat(path); err == nil {
				errs = append(errs, mount(path))
			}
		}
	}
	each([]string{"acpi", "scsi"}, func(path string) error {
		return unix.Mount("tmpfs", path, "tmpfs", unix.MS_RDONLY, "")
	})
	each([]string{"kcore", "keys", "timer_list"}, func(path string) error {
		return unix.Mount("/dev/null", path, "", unix.MS_BIND, "")
	})
	each([]string{"bus", "fs", "irq", "sys", "sysrq-trigger"}, func(path string) error {
		return errors.Join(unix.Mount(path, path, "", unix.MS_BIND, ""), unix.Mount("", path, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	})
	return errors.Join(errs...)
}

// unmountOtherProcs unmounts every proc file system that is not at /proc or below.
func unmountOtherProcs() error {
	mounts, err := os.ReadFile("/proc/thread-self/mounts")
	if err != nil {
		return err
	}
	var errs []error
	for line := range strings.Lines(string(mounts)) { // proc /mount/point proc rw 0 0
		f := strings.Fields(line)
		if len(f) < 3 || f[2] != "proc" || f[1] == "/proc" || strings.HasPrefix(f[1], "/proc/") {
			continue
		}
		at := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(f[1])
		if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
			errs = append(errs, fmt.Errorf("unmount %s: %w", at, err))
		}
	}
	return errors.Join(errs...)
}

// uncoverProc shows the whole of /proc.
func uncoverProc() error { return mountProc("/proc") }

func mountProc(at string) error {
	return unix.Mount("proc", at, "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
}
