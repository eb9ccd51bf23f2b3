package image

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// systemFolders are where the system's own programs lie.
var systemFolders = []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}

// needed are the programs without which there is no image.
var needed = strings.Fields(`
	bash sh cat chmod cp cut date dd df dirname basename du echo env expr false head id ln ls mkdir mktemp mv printf pwd readlink
	rm rmdir sleep sort stat tail tee test touch tr true uname uniq wc whoami grep sed find xargs`)

// wanted are programs that the image has where this machine has them.
var wanted = strings.Fields(`
	[ arch b2sum base32 base64 basenc chcon chgrp chown chroot cksum comm csplit dir dircolors expand factor fmt fold groups hostid
	install join link logname md5sum mkfifo mknod nice nl nohup nproc numfmt od paste pathchk pinky pr printenv ptx realpath runcon
	seq sha1sum sha224sum sha256sum sha384sum sha512sum shred shuf split stdbuf stty sum sync tac timeout truncate tsort tty unexpand
	unlink users vdir who yes
	awk bc cmp diff diff3 dash egrep fgrep file gawk getopt gunzip gzip hostname kill less mawk more mount nologin patch pgrep pidof
	pkill ps rev sdiff setsid su tar top umount unshare uptime watch which xz zcat bzip2`)

// finder fills a tree.
type finder struct {
	tree       *tree
	libraries  *libraries
	folders    []string // where programs are looked for
	searchPath []string // where the image looks for them
}

// programs adds the programs.
func (f *finder) programs() error {
	f.searchPath = slices.Clone(systemFolders)
	var missing []string
	for _, name := range needed {
		file := f.look(name)
		if file == "" {
			missing = append(missing, name)
			continue
		}
		if err := f.program(file); err != nil {
			return err
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("this machine has no %s; install bash and the core utilities (Debian: bash coreutils grep sed findutils)", strings.Join(missing, ", "))
	}
	for _, name := range wanted {
		if file := f.look(name); file != "" && f.plain(file) {
			if err := f.program(file); err != nil {
				return err
			}
		}
	}
	return nil
}

// look finds a program of this machine.
func (f *finder) look(name string) string {
	for _, dir := range f.folders {
		file := path.Join(dir, name)
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return file
		}
	}
	return ""
}

// plain tells that a program needs nothing but libraries, or a shell.
func (f *finder) plain(file string) bool {
	r, err := os.Open(file)
	if err != nil {
		return false
	}
	defer r.Close()
	start := make([]byte, 128)
	n, err := io.ReadFull(r, start)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return false
	}
	line, script := bytes.CutPrefix(start[:n], []byte("#!"))
	if !script {
		return true
	}
	line, _, _ = bytes.Cut(line, []byte("\n"))
	return slices.Contains([]string{"/bin/sh", "/bin/bash", "/usr/bin/sh", "/usr/bin/bash"}, strings.TrimSpace(strings.TrimSuffix(string(line), " -e")))
}

// program adds a program with what it loads, and its folder to the image's PATH.
func (f *finder) program(file string) error {
	at, err := f.tree.add(file)
	if err != nil {
		return err
	}
	if dir := path.Dir(file); !slices.Contains(f.searchPath, dir) {
		f.searchPath = append(f.searchPath, dir)
	}
	return f.libraries.of(at)
}

// all adds a file, or a folder with all that leave does not leave out. Links are followed.
func (f *finder) all(name string, leave func(name string, folder bool) bool) error {
	top, err := f.tree.add(name)
	if err != nil {
		return err
	}
	return filepath.WalkDir(top, func(at string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case leave != nil && at != top && leave(at, e.IsDir()):
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		case !e.IsDir() && !e.Type().IsRegular() && e.Type() != fs.ModeSymlink:
			return nil
		}
		if _, err := f.tree.add(at); errors.Is(err, fs.ErrNotExist) {
			delete(f.tree.entries, at) // a link that leads nowhere
			return nil
		} else if err != nil {
			return err
		}
		return nil
	})
}
