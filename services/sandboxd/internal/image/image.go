// Package image builds a small image for sandboxes out of this machine's own files: bash, core utilities, python3 with
// its standard library, and the shared libraries that they load. It needs no network, no registry and no engine, and
// works on any Linux.
//
// An image has one layer, whose bytes depend on the files alone: the same machine gives the same image again. Content
// names it without its being written.
package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
)

// Config says what to build from.
type Config struct {
	// Python is the prefix of the Python installation to take; empty takes the python3 of SearchPath.
	Python string
	// SearchPath is this machine's PATH, where programs are looked for after the system's own folders.
	SearchPath string
}

// LabelContent is the label of an image that holds its Content.
const LabelContent = "evalfleet.content"

// form changes when images of the same files are to be built anew.
const form = "1"

// What the image decides of its sandboxes.
const (
	userName = "agent"
	userID   = 1000
	userHome = "/home/agent"
	workdir  = "/workspace"
)

// Image is what goes into an image.
type Image struct {
	// Content is a hash over what is in it.
	Content string
	// Files and Bytes tell how much that is.
	Files int
	Bytes int64

	tree *tree
	path string // PATH in the image
}

// Find finds on this machine all that goes into the image. It starts Python once, to ask where its parts are. It fails
// when bash, a core utility or Python is missing, or a library that one of them loads.
func Find(ctx context.Context, cfg Config) (*Image, error) {
	t := newTree()
	f := finder{tree: t, libraries: newLibraries(t), folders: append(slices.Clone(systemFolders), splitPath(cfg.SearchPath)...)}
	for _, link := range []string{"/bin", "/sbin", "/lib", "/lib64"} {
		_, _ = t.add(link) // as they are here: folders, or links into /usr
	}
	if err := f.programs(); err != nil {
		return nil, err
	}
	if err := f.python(ctx, cfg); err != nil {
		return nil, err
	}
	if err := f.addOthers(); err != nil {
		return nil, err
	}
	f.addOwn()
	img := &Image{tree: t, path: strings.Join(f.searchPath, ":")}
	return img, img.measure()
}

// measure fills in what is told of the image.
func (img *Image) measure() error {
	sum := sha256.New()
	fmt.Fprintf(sum, "%s\n%s\n%s\n", form, runtime.GOARCH, img.path)
	for _, name := range img.tree.names() {
		e := img.tree.entries[name]
		if e.kind == regular {
			img.Files++
			img.Bytes += e.size
		}
		if e.cache {
			continue // what Python made of a file that counts already
		}
		fmt.Fprintf(sum, "%s %d %o %d:%d %s\n", name, e.kind, e.mode, e.uid, e.gid, e.target)
		if e.kind != regular {
			continue
		}
		r, err := e.open()
		if err != nil {
			return err
		}
		_, err = io.Copy(sum, r)
		r.Close()
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
	}
	img.Content = hex.EncodeToString(sum.Sum(nil))
	return nil
}

// addOwn adds what is the image's own and not this machine's.
func (f *finder) addOwn() {
	t := f.tree
	for name, mode := range map[string]int64{"/tmp": 0o1777, "/var/tmp": 0o1777, "/root": 0o711, "/proc": 0o555, "/sys": 0o555, "/dev": 0o755, "/run": 0o755, "/opt": 0o755} {
		t.folder(name, mode, 0)
	}
	for _, name := range []string{userHome, workdir} {
		t.folder(name, 0o755, userID)
	}
	for name, content := range map[string]string{
		"/etc/passwd": "root:x:0:0::/root:/bin/bash\n" +
			fmt.Sprintf("%s:x:%d:%d::%s:/bin/bash\n", userName, userID, userID, userHome) +
			"nobody:x:65534:65534::/nonexistent:/usr/sbin/nologin\n",
		"/etc/group":         fmt.Sprintf("root:x:0:\ntty:x:5:\n%s:x:%d:\nnogroup:x:65534:\n", userName, userID),
		"/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
		// A login shell keeps the environment that the command was given.
		"/etc/profile": "# The environment is the one that the sandbox gives.\n[ -n \"$PATH\" ] || export PATH=" + strings.Join(f.searchPath, ":") + "\n",
	} {
		t.content(name, content)
	}
}

// addOthers adds what programs load without naming it in their files: the cache of libraries, the plain locale,
// terminals.
func (f *finder) addOthers() error {
	for _, name := range []string{
		"/etc/ld.so.cache", "/etc/os-release", "/usr/lib/locale/C.utf8", "/usr/lib/locale/C.UTF-8",
		"/lib/terminfo/d/dumb", "/lib/terminfo/l/linux", "/lib/terminfo/v/vt100", "/lib/terminfo/x/xterm", "/lib/terminfo/x/xterm-256color",
		"/usr/share/terminfo/d/dumb", "/usr/share/terminfo/x/xterm", "/usr/share/terminfo/x/xterm-256color",
	} {
		if _, err := os.Stat(name); err == nil {
			if err := f.all(name, nil); err != nil {
				return err
			}
		}
	}
	// The last four are parts of libc since glibc 2.34; programs that were built with an earlier one ask for them.
	for _, name := range []string{"libgcc_s.so.1", "libnss_files.so.2", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1"} {
		if err := f.libraries.optional(name); err != nil {
			return err
		}
	}
	return nil
}

func splitPath(list string) []string {
	var out []string
	for dir := range strings.SplitSeq(list, ":") {
		if path.IsAbs(dir) {
			out = append(out, path.Clean(dir))
		}
	}
	return out
}
