// Package guestbinary keeps the guest program where boxes can reach it.
package guestbinary

import (
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

//go:embed embedded
var embedded embed.FS

// Stage copies the guest program into a folder and gives the copy's path, so that every box can reach it and an update
// of the original does not change the program under running boxes. Everybody may read and start the copy.
//
// The original is at path. Where path is empty it is the file guestd beside the running program, else the one within
// it.
func Stage(path, dir string) (string, error) {
	if path == "" {
		beside, err := besideUs()
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return stageEmbedded(dir)
		case err != nil:
			return "", fmt.Errorf("find the guest program: %w", err)
		}
		path = beside
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("find the guest program: %w; build it with `make build`, and name it in sandboxd.guest_path (EVALFLEET_SANDBOXD_GUEST_PATH)", err)
	}
	staged := filepath.Join(dir, fmt.Sprintf("guestd.%x.%x", info.Size(), info.ModTime().UnixNano()))
	if isStaged(staged, info.Size()) {
		return staged, nil
	}
	program, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("read the guest program: %w", err)
	}
	return staged, errors.Join(write(staged, program), program.Close())
}

// besideUs is the guest program in the folder of the running program.
func besideUs() (string, error) {
	running, err := os.Executable()
	if err != nil {
		return "", err
	}
	path := filepath.Join(filepath.Dir(running), "guestd")
	_, err = os.Stat(path)
	return path, err
}

func stageEmbedded(dir string) (string, error) {
	program, err := embedded.Open("embedded/guestd")
	if err != nil {
		return "", errors.New("this program was built without the guest program, and none is beside it; build with `make build`, " +
			"or name one in sandboxd.guest_path (EVALFLEET_SANDBOXD_GUEST_PATH)")
	}
	defer program.Close()
	content := program.(io.ReadSeeker) // Files that are embedded are.
	sum := sha256.New()
	size, err := io.Copy(sum, content)
	if err != nil {
		return "", err
	}
	staged := filepath.Join(dir, fmt.Sprintf("guestd.%x", sum.Sum(nil)))
	if isStaged(staged, size) {
		return staged, nil
	}
	if _, err := content.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	return staged, write(staged, content)
}

func isStaged(path string, size int64) bool {
	have, err := os.Stat(path)
	return err == nil && have.Size() == size
}

// write writes a program, which is too long to be held in memory for it, at once. No process is forked meanwhile: it would inherit the open file for a moment, in which
// the program could not be started ("text file busy").
func write(path string, content io.Reader) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	temp, err := os.CreateTemp(filepath.Dir(path), ".guestd-*")
	if err != nil {
		return err
	}
	_, err = io.Copy(temp, content)
	err = errors.Join(err, unix.Fchmod(int(temp.Fd()), 0o755), temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		os.Remove(temp.Name())
		return fmt.Errorf("copy the guest program: %w", err)
	}
	return nil
}
