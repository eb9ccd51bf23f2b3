package image

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// libraries finds what programs load, as the loader of the system does (ld.so(8)).
type libraries struct {
	tree    *tree
	folders []string // where libraries lie on this machine
	seen    map[string]bool
	machine elf.Machine
}

func newLibraries(t *tree) *libraries {
	l := &libraries{tree: t, seen: map[string]bool{}}
	l.readConfig("/etc/ld.so.conf", 0)
	for _, pattern := range []string{
		"/lib/*-linux-*", "/usr/lib/*-linux-*", "/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib", "/usr/local/lib64",
	} {
		found, _ := filepath.Glob(pattern)
		l.folders = append(l.folders, found...)
	}
	return l
}

// readConfig reads a list of folders, with the lists that it includes.
func (l *libraries) readConfig(file string, depth int) {
	data, err := os.ReadFile(file)
	if err != nil || depth > 4 {
		return
	}
	for line := range strings.Lines(string(data)) {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		switch {
		case len(fields) == 2 && fields[0] == "include":
			pattern := fields[1]
			if !path.IsAbs(pattern) {
				pattern = path.Join(path.Dir(file), pattern)
			}
			more, _ := filepath.Glob(pattern)
			for _, name := range more {
				l.readConfig(name, depth+1)
			}
		case len(fields) == 1 && path.IsAbs(fields[0]):
			l.folders = append(l.folders, path.Clean(fields[0]))
		}
	}
}

// notFoundError says that a library is not on this machine.
type notFoundError struct{ library, by string }

func (e *notFoundError) Error() string {
	return fmt.Sprintf("%s loads %s, which is not on this machine", e.by, e.library)
}

// of adds what a program or library loads: its loader, its libraries, theirs. What is no program for this machine loads
// nothing. The file itself is not added.
func (l *libraries) of(file string) error {
	if l.seen[file] {
		return nil
	}
	l.seen[file] = true
	f, err := elf.Open(file)
	if _, other := errors.AsType[*elf.FormatError](err); other {
		return nil
	}
	if err != nil {
		return nil //nolint:nilerr // Too short to be a program.
	}
	defer f.Close()
	if l.machine == elf.EM_NONE {
		l.machine = f.Machine
	}
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		name := make([]byte, p.Filesz)
		if _, err := p.ReadAt(name, 0); err != nil {
			return fmt.Errorf("read the loader of %s: %w", file, err)
		}
		if err := l.add(strings.TrimRight(string(name), "\x00")); err != nil {
			return err
		}
	}
	needed, err := f.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("read the libraries of %s: %w", file, err)
	}
	for _, name := range needed {
		found := l.find(name, runPath(f, file))
		if found == "" {
			return &notFoundError{library: name, by: file}
		}
		if err := l.add(found); err != nil {
			return err
		}
	}
	return nil
}

// add adds a library with what it loads.
func (l *libraries) add(file string) error {
	at, err := l.tree.add(file)
	if err != nil {
		return err
	}
	return l.of(at)
}

// optional adds a library that may be loaded later, if it is there.
func (l *libraries) optional(name string) error {
	if found := l.find(name, nil); found != "" {
		return l.add(found)
	}
	return nil
}

// find gives the path of a library for the machine of the programs, or nothing.
func (l *libraries) find(name string, first []string) string {
	if strings.Contains(name, "/") {
		return name
	}
	for _, dir := range slices.Concat(first, l.folders) {
		file := path.Join(dir, name)
		if info, err := os.Stat(file); err != nil || info.Mode()&fs.ModeType != 0 {
			continue
		}
		f, err := elf.Open(file)
		if err != nil {
			continue
		}
		machine := f.Machine
		f.Close()
		if l.machine == elf.EM_NONE || machine == l.machine {
			return file
		}
	}
	return ""
}

// runPath is where a file itself says that its libraries are.
func runPath(f *elf.File, file string) []string {
	var out []string
	for _, tag := range []elf.DynTag{elf.DT_RPATH, elf.DT_RUNPATH} {
		values, err := f.DynString(tag)
		if err != nil {
			continue
		}
		for _, value := range values {
			for dir := range strings.SplitSeq(value, ":") {
				dir = strings.NewReplacer("${ORIGIN}", path.Dir(file), "$ORIGIN", path.Dir(file)).Replace(dir)
				if path.IsAbs(dir) {
					out = append(out, path.Clean(dir))
				}
			}
		}
	}
	return out
}
