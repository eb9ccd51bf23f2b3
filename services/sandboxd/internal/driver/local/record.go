package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver/boxstore"
)

// record is the record of a box in its folder: enough to find its first process again, and never to mistake another
// process for it.
type record struct {
	boxstore.Record
	// PID, Start and Boot are the first process: its id, when it began in ticks of this boot, and which boot that is.
	PID   int
	Start uint64
	Boot  string
	// Namespaces tells that the kernel ends all processes of the box with the first.
	Namespaces bool
	// Cgroups are the groups to remove with the box, children first.
	Cgroups []groupRef `json:",omitempty"`
}

// isGuest reports whether pid is the first process of the box.
func (r *record) isGuest(pid int) bool { return pid == r.PID }

// identify records which process pid is.
func (r *record) identify(pid int) error {
	start, _, err := processStart(pid)
	if err != nil {
		return err
	}
	boot, err := bootID()
	r.PID, r.Start, r.Boot = pid, start, boot
	return err
}

// alive reports whether the first process still runs and is the one of this record. An error means that this is
// unknown.
func (r *record) alive() (bool, error) {
	boot, err := bootID()
	if err != nil || r.PID <= 0 || boot != r.Boot {
		return false, err
	}
	start, state, err := processStart(r.PID)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) {
		return false, nil
	}
	return err == nil && start == r.Start && state != 'Z' && state != 'X', err
}

// kill ends the box's processes and waits until the first is gone.
func (r *record) kill(ctx context.Context) error {
	if r.PID <= 0 {
		return nil
	}
	fd, err := unix.PidfdOpen(r.PID, 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) { // the last two where a thread has the id now
		return nil
	}
	if err != nil {
		return fmt.Errorf("find the first process of %s: %w", r.ID, err)
	}
	defer unix.Close(fd)
	if alive, err := r.alive(); err != nil || !alive { // asked after the descriptor was opened, so that it is the same process
		return err
	}
	if !r.Namespaces {
		// Without a process namespace only the guest knows what it started; it ends that first.
		if err := unix.PidfdSendSignal(fd, unix.SIGTERM, nil, 0); err == nil && awaitExit(ctx, fd, 5*time.Second) == nil {
			return nil
		}
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill the first process of %s: %w", r.ID, err)
	}
	return awaitExit(ctx, fd, time.Minute)
}

// awaitExit waits until the process behind a pidfd has ended.
func awaitExit(ctx context.Context, fd int, limit time.Duration) error {
	for end := time.Now().Add(limit); time.Now().Before(end); {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 100)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for a process: %w", err)
		}
		if n > 0 {
			return nil
		}
	}
	return fmt.Errorf("a process did not end within %s: %w", limit, syscall.ETIMEDOUT)
}

// processStart reads when a process began, in ticks since the boot, and its state.
func processStart(pid int) (ticks uint64, state byte, err error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, 0, err
	}
	// "pid (name) state …", and the start is the 22nd field; the name may hold anything.
	rest := data[bytes.LastIndexByte(data, ')')+1:]
	f := strings.Fields(string(rest))
	if len(f) < 20 {
		return 0, 0, fmt.Errorf("read /proc/%d/stat: %q", pid, data)
	}
	ticks, err = strconv.ParseUint(f[19], 10, 64)
	return ticks, f[0][0], err
}

func bootID() (string, error) {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(data)), err
}
