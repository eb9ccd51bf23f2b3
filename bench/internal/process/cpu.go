package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// On runs f with its thread on one processor. A process that f starts so runs on that one from its start, and a program
// in Go sees no other.
func On(cpu int, f func() error) (err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return fmt.Errorf("processors: %w", err)
	}
	one.Set(cpu)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return fmt.Errorf("processor %d: %w", cpu, err)
	}
	defer func() { err = errors.Join(err, unix.SchedSetaffinity(0, &before)) }()
	return f()
}

// KeepOff reserves the first processor that this process may use for others, which it returns: the threads of this
// process leave it until restore is called. A process that may use one keeps it.
func KeepOff() (cpu int, restore func() error, err error) {
	var before unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return 0, nil, fmt.Errorf("processors: %w", err)
	}
	for !before.IsSet(cpu) {
		cpu++
	}
	rest := before
	rest.Clear(cpu)
	if rest.Count() == 0 {
		return cpu, func() error { return nil }, nil
	}
	return cpu, func() error { return move(&before) }, move(&rest)
}

// move moves all threads of this process. A new thread is where the one that made it is, so that it takes two rounds.
func move(to *unix.CPUSet) error {
	for range 2 {
		threads, err := filepath.Glob("/proc/self/task/*")
		if err != nil {
			return err
		}
		for _, path := range threads {
			thread, err := strconv.Atoi(filepath.Base(path))
			if err != nil {
				return err
			}
			if err := unix.SchedSetaffinity(thread, to); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("processors: %w", err)
			}
		}
	}
	return nil
}

// Resident is the memory of the child that is resident now, in bytes, with the files that it maps.
func (c *Child) Resident() (int64, error) { return c.status("VmRSS") }

// MostResident is the most resident memory that the child has had, in bytes.
func (c *Child) MostResident() (int64, error) { return c.status("VmHWM") }

// status is a size in the child's status.
func (c *Child) status(name string) (int64, error) {
	path := fmt.Sprintf("/proc/%d/status", c.cmd.Process.Pid)
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return sizeIn(path, text, name)
}

func sizeIn(path string, text []byte, name string) (int64, error) {
	for line := range bytes.Lines(text) {
		words := bytes.Fields(line)
		if len(words) == 3 && string(words[0]) == name+":" {
			kib, err := strconv.ParseInt(string(words[1]), 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("%s has no %s", path, name)
}
