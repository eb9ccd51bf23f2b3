package editor

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// resolve gives the absolute path behind links, whether or not something is there.
func resolve(path string) (string, error) {
	if strings.ContainsRune(path, 0) {
		return "", refuse("the path holds a NUL character, which no path can")
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", refuse("the path cannot be used: %v", err)
	}
	target, err := filepath.EvalSymlinks(abs)
	switch {
	case err == nil:
		return target, nil
	case errors.Is(err, os.ErrNotExist):
		if dir, dirErr := filepath.EvalSymlinks(filepath.Dir(abs)); dirErr == nil {
			return filepath.Join(dir, filepath.Base(abs)), nil
		}
		return abs, nil
	case errors.Is(err, os.ErrPermission), errors.Is(err, unix.ENOTDIR):
		return abs, nil
	}
	return "", refuse("the path cannot be used: %v", reason(err))
}

// read gives a file as text: line ends are LF.
func read(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return "", failed("read", path, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("not a regular file")
	}
	if err != nil {
		return "", failed("read", path, err)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return "", failed("read", path, err)
	case len(data) > maxFile:
		return "", failed("read", path, fmt.Errorf("it is larger than %d MiB", maxFile>>20))
	case !utf8.Valid(data):
		return "", failed("read", path, errors.New("it is not UTF-8 text"))
	}
	text := strings.ReplaceAll(string(data), "\r\n", "\n")
	return strings.ReplaceAll(text, "\r", "\n"), nil
}

func write(path, text string) error {
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return failed("write to", path, err)
	}
	return nil
}

func failed(what, path string, err error) error {
	return refuse("could not %s %s: %v", what, path, reason(err))
}

// reason is an error without the path that the message names already.
func reason(err error) error {
	if p, ok := errors.AsType[*os.PathError](err); ok {
		return p.Err
	}
	return err
}
