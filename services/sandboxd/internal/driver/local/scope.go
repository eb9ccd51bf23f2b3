package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// A user's own systemd delegates a part of the cgroups to processes of a login on request (systemd.resource-control(5),
// Delegate=). Without it, an ordinary user can create no cgroup on most machines.
const (
	// scopeTimeout bounds the wait for it.
	scopeTimeout = 5 * time.Second
	// scopePoll is how often it is looked whether this process has been moved.
	scopePoll = 10 * time.Millisecond
)

// errNoManager is the error of a user without a reachable systemd.
var errNoManager = errors.New("this user has no systemd to ask for a cgroup")

// enterScope asks the user's systemd to move this process into a scope whose cgroups this process may manage. It does
// what `systemd-run --user --scope -p Delegate=yes` does for a program that it starts. runtime is the user's folder
// (/run/user/ID).
func enterScope(ctx context.Context, runtime string) error {
	bus := filepath.Join(runtime, "bus")
	if _, err := os.Stat(bus); err != nil {
		return fmt.Errorf("%w: %w", errNoManager, err)
	}
	ctx, cancel := context.WithTimeout(ctx, scopeTimeout)
	defer cancel()
	pid := strconv.Itoa(os.Getpid())
	scope := "evalfleet-" + pid + ".scope"
	cmd := exec.CommandContext(ctx, "busctl", "--user", "call", "org.freedesktop.systemd1", "/org/freedesktop/systemd1",
		"org.freedesktop.systemd1.Manager", "StartTransientUnit", "ssa(sv)a(sa(sv))", scope, "fail",
		"3", "Description", "s", "evalfleet sandboxes", "Delegate", "b", "true", "PIDs", "au", "1", pid, "0")
	cmd.Env = []string{"PATH=" + systemPath, "XDG_RUNTIME_DIR=" + runtime, "DBUS_SESSION_BUS_ADDRESS=unix:path=" + bus}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ask systemd for a scope: %w: %s", err, bytes.TrimSpace(out))
	}
	for { // the job that it answers with is done a little later
		own, err := ownGroups()
		if err == nil && strings.HasSuffix(own[unified], "/"+scope) {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("systemd did not move this process into %s in %s", scope, scopeTimeout), err)
		case <-time.After(scopePoll):
		}
	}
}
