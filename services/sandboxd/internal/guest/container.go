package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/evalfleet/evalfleet/services/sandboxd/internal/closeonexec"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/account"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/box"
)

// Where `guestd container` finds what the host has mounted, and itself.
const (
	ContainerProgram = "/.evalfleet/guestd"
	ContainerFolder  = "/.evalfleet/ctl"
	containerChecks  = "/.evalfleet-checks"
	// ContainerSpecName is the file in ContainerFolder that holds the ContainerSpec, as JSON.
	ContainerSpecName = "spec.json"
)

// ContainerSpec is the host's specification for the first process of a container. It is read once; the engine has done
// the rest.
type ContainerSpec struct {
	// Guest says how the guest runs; its descriptors are the guest's own to find. Its Workdir is made where the image
	// lacks it, for its User.
	Guest box.Guest
	// Limits are set on the guest and inherited by all commands. One above what the engine allows is lowered to that.
	Limits []box.Limit
	// Command says how commands are held.
	Command box.Command
}

// spareThreads are made before commands can use up the processes of the container, which the guest shares: a program in
// Go ends when it cannot make a thread that it needs.
const spareThreads = 16

// oomFiles count kills for memory: of cgroup v2, of v1.
var oomFiles = []string{"/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"}

// runContainer serves as the first process of a container, until that ends. Nothing but the two mounts need be in the
// image.
func runContainer() error {
	if err := closeonexec.MarkAll(); err != nil {
		return err
	}
	folder, err := unix.Open(ContainerFolder, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", ContainerFolder, err)
	}
	data, err := os.ReadFile(path.Join(ContainerFolder, ContainerSpecName))
	if err != nil {
		return err
	}
	var c ContainerSpec
	if err := json.Unmarshal(data, &c); err != nil {
		return fmt.Errorf("read the container's specification: %w", err)
	}
	spareSomeThreads(spareThreads)
	spec := box.Spec{Contained: true, Guest: c.Guest, Command: c.Command, Limits: c.Limits}
	spec.Guest.Control.FD, spec.Guest.ChecksDir = folder, containerChecks
	for _, file := range oomFiles {
		if fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
			spec.Guest.OOMFD = fd
			break
		}
	}
	if err := makeWorkdir(spec.Guest.Workdir, spec.Guest.User); err != nil {
		return err
	}
	g, _, err := begin(&spec)
	if err != nil {
		return err
	}
	if spec.Guest.OOMFD == 0 {
		g.notes = append(g.notes, "out of memory: not told, since the container does not show its cgroup")
	}
	return g.serve(folder)
}

// spareSomeThreads makes the runtime start n threads, which it keeps from then on.
func spareSomeThreads(n int) {
	var started, ended sync.WaitGroup
	release := make(chan struct{})
	started.Add(n)
	for range n {
		ended.Go(func() {
			runtime.LockOSThread() // a thread of its own while it waits
			started.Done()
			<-release
			runtime.UnlockOSThread()
		})
	}
	started.Wait()
	close(release)
	ended.Wait()
}

// makeWorkdir creates the folder where commands start, unless the image has it. Its user may be one that the image
// lacks; the first command reports that.
func makeWorkdir(dir, user string) error {
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the working directory: %w", err)
	}
	who, err := account.Lookup(user)
	if err != nil {
		return nil //nolint:nilerr // See above.
	}
	return os.Chown(dir, int(who.UID), int(who.GID))
}
