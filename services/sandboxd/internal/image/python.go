package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"time"
)

// pythonLink is where a Python outside of the system's folders is found, so that PATH tells nothing of this machine.
const pythonLink = "/opt/python"

// ask is what Python is asked: which program it is, where its standard library is, and the mark of what it has
// compiled.
const ask = `
import json, os, sys
print(json.dumps({
    "executable": os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable),
    "prefix": sys.base_prefix, "path": sys.path, "mark": sys.implementation.cache_tag,
}))`

// interpreter is what Python answers.
type interpreter struct {
	Executable, Prefix, Mark string
	Path                     []string
}

// leftOut are parts of the standard library that no program of a sandbox misses.
var leftOut = []string{"test", "tests", "idlelib", "turtledemo", "tkinter", "ensurepip", "lib2to3", "site-packages", "dist-packages"}

// python adds Python, by the name python3 and with its standard library.
func (f *finder) python(ctx context.Context, cfg Config) error {
	// The one that people get when they type its name comes first.
	folders := append(splitPath(cfg.SearchPath), systemFolders...)
	if cfg.Python != "" {
		folders = []string{path.Join(cfg.Python, "bin")}
	}
	program := (&finder{folders: folders}).look("python3")
	if program == "" {
		return fmt.Errorf("there is no python3 in %s; install it, or say where it is (sandboxd.python)", strings.Join(folders, ":"))
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	// Isolated, without packages, and without writing what it compiles.
	cmd := exec.CommandContext(ctx, program, "-I", "-S", "-B", "-c", ask)
	cmd.Env = []string{"PATH=" + cfg.SearchPath, "HOME=/"}
	out, err := cmd.Output()
	var py interpreter
	if err == nil {
		err = json.Unmarshal(out, &py)
	}
	if err != nil {
		return fmt.Errorf("ask %s where it is: %w", program, err)
	}
	if err := f.program(py.Executable); err != nil {
		return err
	}
	if err := f.names(py); err != nil {
		return err
	}
	for _, dir := range py.Path {
		if info, err := os.Stat(dir); err != nil || !path.IsAbs(dir) {
			continue // a place that it would look in
		} else if !info.IsDir() {
			if _, err := f.tree.add(dir); err != nil {
				return err
			}
			continue
		}
		if err := f.all(dir, py.leaves); err != nil {
			return err
		}
	}
	return f.modules()
}

// names makes Python known as python3, and as python where it is so on this machine.
func (f *finder) names(py interpreter) error {
	bin := path.Join(py.Prefix, "bin")
	for _, name := range []string{"python3", "python"} {
		file := path.Join(bin, name)
		if _, err := os.Stat(file); err != nil {
			if name == "python3" {
				f.tree.link("/usr/local/bin/python3", py.Executable)
			}
			continue
		}
		if _, err := f.tree.add(file); err != nil {
			return err
		}
	}
	if slices.Contains(systemFolders, bin) {
		return nil
	}
	// At its own path, since that is built into it.
	f.searchPath = slices.DeleteFunc(f.searchPath, func(dir string) bool {
		return dir == bin || dir == path.Dir(py.Executable) && !slices.Contains(systemFolders, dir)
	})
	f.searchPath = append([]string{pythonLink + "/bin"}, f.searchPath...)
	if py.Prefix != pythonLink {
		f.tree.link(pythonLink, py.Prefix)
	}
	return nil
}

// leaves tells what is left out of the standard library.
func (py interpreter) leaves(name string, isFolder bool) bool {
	base := path.Base(name)
	switch {
	case isFolder:
		return slices.Contains(leftOut, base) || strings.HasPrefix(base, "config-")
	case path.Base(path.Dir(name)) == "__pycache__":
		return !strings.HasSuffix(base, "."+py.Mark+".pyc")
	}
	return strings.HasSuffix(base, ".a") || strings.HasSuffix(base, ".o") || strings.HasPrefix(base, "_tkinter.")
}

// modules adds what Python's own modules load. A module whose library is not here does not work here, and is left out.
func (f *finder) modules() error {
	for _, name := range f.tree.names() {
		e := f.tree.entries[name]
		if e.kind != regular {
			continue
		}
		if strings.HasSuffix(name, ".pyc") {
			e.cache = true
		}
		if !strings.HasSuffix(name, ".so") {
			continue
		}
		err := f.libraries.of(name)
		if _, lacking := errors.AsType[*notFoundError](err); lacking {
			delete(f.tree.entries, name)
		} else if err != nil {
			return err
		}
	}
	return nil
}
