package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/box"
)

// handProc mounts a /proc of a box's process namespace and hands it to the guest.
//
// In a container parts of /proc are covered, and there the kernel lets no process in a user namespace mount a fresh
// one, which would show what is covered. This process, root of the machine's own user namespace, is trusted with it.
func (d *Driver) handProc(ctx context.Context, rec *record, socket *os.File) error {
	ns, err := os.Open("/proc/" + strconv.Itoa(rec.PID) + "/ns/pid")
	if err != nil {
		return fmt.Errorf("open the process namespace of the guest: %w", err)
	}
	defer ns.Close()
	if alive, err := rec.alive(); err != nil { // asked after it was opened, so that it is the guest's
		return err
	} else if !alive {
		return errors.New("the guest has ended")
	}
	err = box.HandProc(int(socket.Fd()), int(ns.Fd()))
	if errors.Is(err, unix.EINVAL) {
		return d.handProcFromWithin(ctx, ns, socket)
	}
	return err
}

// handProcFromWithin does the same on kernels that mount a /proc only for the process namespace one is in: by a process
// in that of the box, and otherwise in the namespaces of this one. It has ended when no command has begun yet.
func (d *Driver) handProcFromWithin(ctx context.Context, ns, socket *os.File) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var words bytes.Buffer
	cmd := exec.CommandContext(ctx, d.guest.Path, "proc")
	cmd.Env, cmd.Dir, cmd.Stderr, cmd.ExtraFiles = []string{}, "/", &words, []*os.File{socket}
	started := make(chan error)
	go func() {
		// The namespace is that of this thread's children from now on, so the thread ends with the goroutine.
		runtime.LockOSThread()
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWPID); err != nil {
			started <- fmt.Errorf("enter the process namespace of the guest: %w", err)
			return
		}
		started <- cmd.Start()
	}()
	if err := <-started; err != nil {
		return err
	}
	err := cmd.Wait()
	if err == nil {
		return nil
	}
	err = fmt.Errorf("mount a proc from within: %w; it said: %s", err, strings.TrimSpace(words.String()))
	if transientExit(cmd.ProcessState, words.Bytes()) {
		err = &box.TransientError{Err: err}
	}
	return err
}
