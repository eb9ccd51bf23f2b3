// Package program keeps the guest program where boxes can reach it.
package program

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Stage copies the guest program at path into a folder and gives the copy's path, so that every box can reach it and an update of
// the original does not change the program under running boxes. Everybody may read and start the copy.
func Stage(path, dir string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("find the guest program: %w; build it with `make build`, or say where it is", err)
	}
	name := fmt.Sprintf("guestd.%x.%x", info.Size(), info.ModTime().UnixNano())
	staged := filepath.Join(dir, name)
	if have, err := os.Stat(staged); err == nil && have.Size() == info.Size() {
		return staged, nil
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the guest program: %w", err)
	}
	if err := write(staged, content); err != nil {
		return "", fmt.Errorf("copy the guest program: %w", err)
	}
	return staged, nil
}

// write writes a program at once. No process is forked meanwhile: it would inherit the open file for a moment, in which the
// program could not be started ("text file busy").
func write(path string, content []byte) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	temp, err := os.CreateTemp(filepath.Dir(path), ".guestd-*")
	if err != nil {
		return err
	}
	_, err = temp.Write(content)
	err = errors.Join(err, unix.Fchmod(int(temp.Fd()), 0o755), temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		os.Remove(temp.Name())
	}
	return err
}
