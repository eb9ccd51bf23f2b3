package local

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
)

// shortVariable is set in the program that this test starts to lower the limit of its own open files.
const shortVariable = "EVALFLEET_TEST_SHORT"

// mayBeUnisolated is a box that may lack a part of the isolation.
func mayBeUnisolated(id string) driver.Spec {
	return driver.Spec{
		ID: id, Owner: "test", Deadline: time.Now().Add(time.Minute), AllowUnisolated: true, Limits: driver.Limits{MemoryBytes: 256 << 20, PIDs: 64, CPUMillis: 700},
	}
}

// TestAShortageLowersNoIsolation creates boxes in a program that may open few files, at first too few, at last enough.
func TestAShortageLowersNoIsolation(t *testing.T) {
	t.Parallel()
	if os.Getenv(shortVariable) == "" {
		self, err := os.Executable()
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), waittest.Bound)
		defer cancel()
		cmd := exec.CommandContext(ctx, self, "-test.run", "^TestAShortageLowersNoIsolation$")
		cmd.Env = append(os.Environ(), shortVariable+"=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	one := newTestDriver(t)
	id := "one-" + strings.ToLower(rand.Text())
	full, err := one.Create(t.Context(), mayBeUnisolated(id))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, one.Destroy(context.Background(), id)) })
	if full.Isolation.Unisolated {
		t.Skip("SKIP: this machine does not isolate: ", full.Isolation.Weaker)
	}
	for name, driverOf := range map[string]func() *Driver{
		"a driver that has made none": func() *Driver { return newTestDriver(t) },
		"a driver that has made one":  func() *Driver { return one },
	} {
		refused, made := 0, 0
		for more := 0; made == 0 && more < 500; more += 5 {
			d, short := driverOf(), "short-"+strings.ToLower(rand.Text())
			var report driver.Report
			var err, lookErr error
			var seen []driver.Observed
			withFiles(t, more, func() {
				report, err = d.Create(t.Context(), mayBeUnisolated(short))
				seen, lookErr = d.List(t.Context(), "test")
			})
			if err == nil {
				made++
				assert.Equal(t, full.Isolation, report.Isolation, "%s, %d files", name, more)
			} else {
				refused++
				assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_SANDBOX_QUOTA), "%s, %d files: %v", name, more, err)
				assert.Positive(t, rpcerr.RetryAfter(err))
			}
			if lookErr == nil {
				for _, box := range seen {
					assert.True(t, box.Alive, "%s, %d files: %s lives, whatever can be opened", name, more, box.ID)
				}
			}
			require.NoError(t, d.Destroy(t.Context(), short))
		}
		assert.Positive(t, refused, name)
		assert.Positive(t, made, name)
	}
}

// withFiles calls f while this program may open that many more files.
func withFiles(t *testing.T, more int, f func()) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	highest := 0
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		require.NoError(t, err)
		highest = max(highest, fd)
	}
	for { // those between are used first
		f, err := os.Open(os.DevNull)
		require.NoError(t, err)
		defer f.Close()
		if int(f.Fd()) >= highest {
			highest = int(f.Fd())
			break
		}
	}
	var before syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before))
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: uint64(highest + 1 + more), Max: before.Max}))
	f()
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before))
}

// TestABoxWhoseCgroupFailsIsNotMadeWithout has the cgroups of a machine fail that had them.
func TestABoxWhoseCgroupFailsIsNotMadeWithout(t *testing.T) {
	t.Parallel()
	d := newTestDriver(t)
	if _, err := d.groups(); err != nil {
		t.Skip("SKIP: this user can make no cgroups: ", err)
	}
	_, _, err := make1(t, d, true)
	require.NoError(t, err)
	whole := d.cgroups
	broken := *whole
	broken.base = map[string]string{}
	for tree := range whole.base {
		broken.base[tree] = "/no/such/group"
	}
	d.cgroups = &broken
	_, _, err = make1(t, d, true)
	require.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_ISOLATION_UNAVAILABLE), "%v", err)
	require.ErrorContains(t, err, groupsPart)

	d.cgroups, d.noGroup = nil, &os.PathError{Op: "open", Path: "/proc/self/cgroup", Err: unix.EMFILE}
	report, _, err := make1(t, d, true)
	require.NoError(t, err)
	assert.False(t, report.Isolation.Unisolated, "they were looked for again")
	assert.True(t, slices.Contains(report.Isolation.Parts, "cgroup memory"))
}

// TestCgroupsThatSystemdGrantsAreUsed lets a driver find no cgroups until it has requested some from systemd.
func TestCgroupsThatSystemdGrantsAreUsed(t *testing.T) {
	t.Parallel()
	machine := newTestDriver(t)
	granted, err := machine.groups()
	if err != nil {
		t.Skip("SKIP: this user can make no cgroups: ", err)
	}
	d := newTestDriver(t)
	none := errors.New("there are no cgroups yet")
	asked := 0
	d.source = groupSource{
		unifiedBounds: func() (bool, error) { return true, nil },
		enterScope: func(context.Context) error {
			asked++
			return nil
		},
		find: func() (*cgroups, error) {
			if asked == 0 {
				return nil, none
			}
			return granted, nil
		},
	}
	d.asked, d.cgroups, d.noGroup = false, nil, none
	for range 2 {
		report, _, err := make1(t, d, false)
		require.NoError(t, err)
		assert.True(t, slices.Contains(report.Isolation.Parts, "cgroup memory"))
	}
	assert.Equal(t, 1, asked)
}

// TestAShortageWhileSystemdIsAskedLowersNoIsolation lets the driver call systemd when this program can open or start
// nothing.
func TestAShortageWhileSystemdIsAskedLowersNoIsolation(t *testing.T) {
	t.Parallel()
	machine := newTestDriver(t)
	granted, err := machine.groups()
	if err != nil {
		t.Skip("SKIP: this user can make no cgroups: ", err)
	}
	for name, short := range map[string]groupSource{
		"nothing can be opened":  {unifiedBounds: func() (bool, error) { return false, unix.EMFILE }},
		"nothing can be started": {enterScope: func(context.Context) error { return fmt.Errorf("start busctl: %w", unix.EAGAIN) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newTestDriver(t)
			entered := false
			whole := groupSource{
				unifiedBounds: func() (bool, error) { return true, nil },
				enterScope: func(context.Context) error {
					entered = true
					return nil
				},
				find: func() (*cgroups, error) {
					if !entered {
						return nil, unix.EACCES
					}
					return granted, nil
				},
			}
			d.asked, d.cgroups, d.noGroup, d.source = false, nil, unix.EACCES, whole
			if short.unifiedBounds != nil {
				d.source.unifiedBounds = short.unifiedBounds
			} else {
				d.source.enterScope = short.enterScope
			}
			_, _, err := make1(t, d, true)
			require.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_SANDBOX_QUOTA), "%v", err)
			d.source = whole
			report, _, err := make1(t, d, true)
			require.NoError(t, err)
			assert.False(t, report.Isolation.Unisolated, "%q", report.Isolation.Weaker)
		})
	}
}

func TestACallThatEndsDoesNotWaitForAMeasurement(t *testing.T) {
	t.Parallel()
	d := newTestDriver(t)
	d.measuring <- struct{}{}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err := d.Create(ctx, mayBeUnisolated("waits"))
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// TestABoxThatCannotBeAsItIsAskedForIsNotMadeUnisolated has a specification fail, and not the machine.
func TestABoxThatCannotBeAsItIsAskedForIsNotMadeUnisolated(t *testing.T) {
	t.Parallel()
	d := newTestDriver(t)
	if report, _, err := make1(t, d, true); err != nil || report.Isolation.Unisolated && !strings.Contains(strings.Join(report.Isolation.Weaker, ""), groupsPart) {
		t.Skip("SKIP: this machine does not isolate: ", report.Isolation.Weaker, err)
	}
	spec := mayBeUnisolated("small-" + strings.ToLower(rand.Text()))
	spec.Limits.DiskBytes = 1
	_, err := d.Create(t.Context(), spec)
	require.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_ISOLATION_UNAVAILABLE), "it is no shortage that passes: %v", err)
	require.ErrorContains(t, err, "private root")
}

// TestTheFewestProcessesThatMayBeAskedForAreEnough creates a box with four, and runs a shell that starts a command.
func TestTheFewestProcessesThatMayBeAskedForAreEnough(t *testing.T) {
	t.Parallel()
	d := newTestDriver(t)
	if _, err := d.groups(); err != nil {
		t.Skip("SKIP: this user can make no cgroups: ", err)
	}
	_, run, err := makeWith(t, d, false, driver.Limits{MemoryBytes: 256 << 20, PIDs: 4})
	require.NoError(t, err)
	r := run("sh", "-c", "cat /dev/null; echo done")
	assert.Equal(t, "done\n", string(r.GetStdout()), "%s", r.GetStderr())
}
