package dataset

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// resolver reports whether a value is content or names a file.
type resolver func(text string) (Content, error)

// maxPathBytes is the maximum length of a path, the bound of Linux. Longer texts are contents.
const maxPathBytes = 4096

// newResolver returns a resolver for files below dir, which takes the name of an existing file or folder as a reference
// and everything else as content. A name that leads out of dir to an existing file is refused, rather than taken for
// content or followed. Without dir, everything is content.
func newResolver(dir string) (resolve resolver, closeDir func(), err error) {
	if dir == "" {
		return func(text string) (Content, error) { return Content{Text: text}, nil }, func() {}, nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("dataset directory: %w", err)
	}
	resolve = func(text string) (Content, error) { return resolveIn(root, dir, text) }
	return resolve, func() { _ = root.Close() }, nil // it was only read
}

func resolveIn(root *os.Root, dir, text string) (Content, error) {
	if text == "" || len(text) > maxPathBytes || strings.ContainsAny(text, "\x00\n") {
		return Content{Text: text}, nil
	}
	name, absolute := text, filepath.IsAbs(text)
	if absolute {
		relative, err := filepath.Rel(dir, text)
		if err != nil {
			return Content{Text: text}, nil
		}
		name = relative
	}
	_, err := root.Stat(name)
	if err == nil {
		return Content{HostPath: filepath.Join(dir, name)}, nil
	}
	// A value that is not the name of an existing file is content. Only an existing file outside the folder is refused.
	if outside := filepath.Join(dir, name); !errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(outside); err == nil {
			return Content{}, fmt.Errorf("%q is a file outside of the dataset's directory: move it into that, or write the text as a data URI if it is meant as such", text)
		}
	}
	return Content{Text: text}, nil
}
