package image

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// kind is what an entry of a tree is.
type kind int

const (
	folder kind = iota
	regular
	link
)

// entry is a file, folder or link of the image.
type entry struct {
	kind     kind
	mode     int64
	uid, gid int
	source   string // of a file of this machine
	text     string // of a file of the image's own
	target   string // of a link
	size     int64
	changed  time.Time // a file of this machine keeps it: what Python compiled is known by it
	cache    bool      // it can be missing, or differ, without a change of what the image does
}

// open opens the content of a file.
func (e *entry) open() (io.ReadCloser, error) {
	if e.source == "" {
		return io.NopCloser(strings.NewReader(e.text)), nil
	}
	return os.Open(e.source)
}

// tree is the files of an image by their absolute paths.
type tree struct{ entries map[string]*entry }

func newTree() *tree { return &tree{entries: map[string]*entry{"/": {kind: folder, mode: 0o755}}} }

// names lists the paths, each folder before what it holds.
func (t *tree) names() []string { return slices.Sorted(maps.Keys(t.entries)) }

// errLoop is given for links that lead nowhere.
var errLoop = errors.New("too many symbolic links")

// add adds what is at a path of this machine, with the folders above it and every link on the way, and gives where it
// really is. Of a folder, what it holds is not added. What is added belongs to root, for all to read: nothing keeps the
// powers of setuid.
func (t *tree) add(name string) (where string, err error) {
	const mostLinks = 40
	links := 0
	done, rest := "/", strings.Split(strings.Trim(path.Clean(name), "/"), "/")
	for len(rest) > 0 {
		part := rest[0]
		rest = rest[1:]
		at := path.Join(done, part)
		if part == "" || part == ".." {
			done = at
			continue
		}
		info, err := os.Lstat(at)
		if err != nil {
			return "", err
		}
		switch mode := info.Mode(); {
		case mode.IsDir():
			if t.entries[at] == nil {
				t.entries[at] = &entry{kind: folder, mode: 0o755}
			}
			done = at
		case mode.Type() == fs.ModeSymlink:
			if links++; links > mostLinks {
				return "", fmt.Errorf("%s: %w", name, errLoop)
			}
			target, err := os.Readlink(at)
			if err != nil {
				return "", err
			}
			t.entries[at] = &entry{kind: link, mode: 0o777, target: target}
			if path.IsAbs(target) {
				done = "/"
			}
			rest = append(strings.Split(strings.Trim(target, "/"), "/"), rest...)
		case mode.IsRegular():
			bits := int64(0o644)
			if mode&0o111 != 0 {
				bits = 0o755
			}
			if t.entries[at] == nil {
				t.entries[at] = &entry{kind: regular, mode: bits, source: at, size: info.Size(), changed: info.ModTime()}
			}
			done = at
		default:
			return "", fmt.Errorf("%s is neither a file nor a folder", at)
		}
	}
	return done, nil
}

// folder adds a folder of the image's own, with those above it.
func (t *tree) folder(name string, mode int64, owner int) {
	for above := path.Dir(name); above != "/"; above = path.Dir(above) {
		if t.entries[above] == nil {
			t.entries[above] = &entry{kind: folder, mode: 0o755}
		}
	}
	t.entries[name] = &entry{kind: folder, mode: mode, uid: owner, gid: owner}
}

// content adds a small file of the image's own.
func (t *tree) content(name, text string) {
	if dir := path.Dir(name); t.entries[dir] == nil {
		t.folder(dir, 0o755, 0)
	}
	t.entries[name] = &entry{kind: regular, mode: 0o644, text: text, size: int64(len(text))}
}

// link adds a link of the image's own.
func (t *tree) link(name, target string) {
	if dir := path.Dir(name); t.entries[dir] == nil {
		t.folder(dir, 0o755, 0)
	}
	t.entries[name] = &entry{kind: link, mode: 0o777, target: target}
}
