// Package file reads, writes, lists and removes files of a sandbox for one of its users. It never hangs on a pipe or a socket,
// keeps to limits while it reads, and replaces files at once.
package file

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/timestamppb"

	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/account"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/fault"
)

// Place says where relative paths start and whose rights count.
type Place struct {
	Workdir string
	User    account.Account
}

// maxLinks bounds a chain of symbolic links.
const maxLinks = 40

// resolve makes path absolute. It does not clean it, since `..` after a symbolic link means the link's target's parent.
func (p Place) resolve(path string) (string, error) {
	switch {
	case path == "":
		return "", fault.InvalidPath(path, "empty path")
	case strings.ContainsRune(path, 0):
		return "", fault.InvalidPath(strings.ReplaceAll(path, "\x00", "\\0"), "a path cannot hold a NUL")
	case filepath.IsAbs(path):
		return path, nil
	}
	return p.Workdir + "/" + path, nil
}

// do runs f with the user's rights and gives its error a kind.
func (p Place) do(op, path string, f func(full string) error) error {
	full, err := p.resolve(path)
	if err != nil {
		return err
	}
	return fault.File(op, path, p.User.Do(func() error { return f(full) }))
}

// follow gives the path that writing to path means: the end of its chain of links, whether that exists or not.
func follow(path string) (string, error) {
	for range maxLinks {
		info, err := os.Lstat(path)
		if err != nil || info.Mode()&fs.ModeSymlink == 0 {
			return path, nil
		}
		to, err := os.Readlink(path)
		if err != nil {
			return "", err
		}
		if !filepath.IsAbs(to) {
			to = filepath.Dir(path) + "/" + to
		}
		path = to
	}
	return "", unix.ELOOP
}

// describe fills a FileInfo; link is the path to read a symbolic link from.
func describe(name, full string, info fs.FileInfo) *sandboxv1.FileInfo {
	out := &sandboxv1.FileInfo{
		Path: name, Size: info.Size(), Mode: uint32(info.Mode().Perm()), ModifyTime: timestamppb.New(info.ModTime()),
		Type: sandboxv1.FileType_FILE_TYPE_OTHER,
	}
	switch mode := info.Mode(); {
	case mode.IsRegular():
		out.Type = sandboxv1.FileType_FILE_TYPE_FILE
	case mode.IsDir():
		out.Type = sandboxv1.FileType_FILE_TYPE_DIRECTORY
	case mode&fs.ModeSymlink != 0:
		out.Type = sandboxv1.FileType_FILE_TYPE_SYMLINK
		out.LinkTarget, _ = os.Readlink(full)
	}
	return out
}
