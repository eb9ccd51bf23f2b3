// Package file reads, writes, lists and removes files of a sandbox for one of its users. It never blocks on a pipe or a
// socket, keeps to limits while it reads, and replaces files atomically.
package file

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/timestamppb"

	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/account"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/fault"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/walk"
)

// Place is the folder of relative paths and the user whose rights apply.
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
	err = p.User.Do(func() error { return f(full) })
	if errors.Is(err, walk.ErrNotRegular) {
		return fault.InvalidPath(path, walk.ErrNotRegular.Error())
	}
	return fault.File(op, path, err)
}

// entry is a name in a folder that is open.
type entry struct {
	folder int
	name   string
}

// find opens the folder of what path names. A path that ends in `/`, `.` or `..` names a folder, whose own folder is
// not looked for.
func find(path string, open func(folder string) (int, error)) (entry, error) {
	at := strings.LastIndexByte(path, '/')
	e := entry{folder: -1, name: path[at+1:]}
	if e.name == "" || e.name == "." || e.name == ".." {
		return e, unix.EISDIR
	}
	folder := path[:at]
	if folder == "" {
		folder = "/"
	}
	var err error
	e.folder, err = open(folder)
	return e, err
}

// folder opens a folder, to name what is in it.
func folder(path string) (int, error) { return walk.Open(path, unix.O_PATH|unix.O_DIRECTORY) }

// madeFolder does the same and makes what is missing on the way.
func madeFolder(path string) (int, error) {
	fd, err := folder(path)
	if !errors.Is(err, unix.ENOENT) {
		return fd, err
	}
	above, aboveErr := find(strings.TrimRight(path, "/"), madeFolder)
	if errors.Is(aboveErr, unix.EISDIR) {
		return -1, err // `..` of a folder that is missing is none to make
	}
	if aboveErr != nil {
		return -1, aboveErr
	}
	defer above.close()
	if err := unix.Mkdirat(above.folder, above.name, 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
		return -1, err
	}
	return folder(path)
}

func (e entry) close() {
	if e.folder >= 0 {
		unix.Close(e.folder)
	}
}

// path names the entry for calls that take paths alone.
func (e entry) path() string { return walk.Name(e.folder) + "/" + e.name }

// lstat describes the entry itself.
func (e entry) lstat() (fs.FileInfo, error) { return os.Lstat(e.path()) }

// target finds what writing to path means: the end of its chain of links, whether that exists or not. Folders on the
// way are made.
func target(path string) (entry, error) {
	for range maxLinks {
		e, err := find(path, madeFolder)
		if err != nil {
			return e, err
		}
		info, err := e.lstat()
		if err != nil || info.Mode()&fs.ModeSymlink == 0 {
			return e, nil
		}
		to, err := os.Readlink(e.path())
		e.close()
		if err != nil {
			return entry{folder: -1}, err
		}
		if !filepath.IsAbs(to) {
			to = path[:strings.LastIndexByte(path, '/')+1] + to
		}
		path = to
	}
	return entry{folder: -1}, unix.ELOOP
}

// describe fills a FileInfo; link is the path to read a symbolic link from.
func describe(name, full string, info fs.FileInfo) *sandboxv1.FileInfo {
	out := &sandboxv1.FileInfo{
		Path: printable(name), Size: info.Size(), Mode: uint32(info.Mode().Perm()), ModifyTime: timestamppb.New(info.ModTime()),
		Type: sandboxv1.FileType_FILE_TYPE_OTHER,
	}
	switch mode := info.Mode(); {
	case mode.IsRegular():
		out.Type = sandboxv1.FileType_FILE_TYPE_FILE
	case mode.IsDir():
		out.Type = sandboxv1.FileType_FILE_TYPE_DIRECTORY
	case mode&fs.ModeSymlink != 0:
		out.Type = sandboxv1.FileType_FILE_TYPE_SYMLINK
		to, _ := os.Readlink(full)
		out.LinkTarget = printable(to)
	}
	return out
}

// printable writes a name as text that represents no other name: a byte that is no UTF-8 as \x and two hexadecimal
// digits, and so the backslash of a name that has such a thing in it.
func printable(name string) string {
	if utf8.ValidString(name) && !strings.Contains(name, `\x`) {
		return name
	}
	var b strings.Builder
	for len(name) > 0 {
		r, size := utf8.DecodeRuneInString(name)
		if r == utf8.RuneError && size == 1 || r == '\\' && escapes.MatchString(name) {
			fmt.Fprintf(&b, `\x%02x`, name[0])
		} else {
			b.WriteString(name[:size])
		}
		name = name[size:]
	}
	return b.String()
}

// escapes matches what begins as printable writes a byte.
var escapes = regexp.MustCompile(`^\\x[0-9a-f]{2}`)
