package process

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// LookPath finds the program that name means: name itself where it holds a slash, else the first executable of that
// name in the folders of path; relative folders start in dir. It fails with ENOENT, or with EACCES when only files that
// are not executable bear the name.
func LookPath(name, path, dir string) (string, error) {
	if name == "" {
		return "", syscall.ENOENT
	}
	if strings.Contains(name, "/") {
		return name, nil
	}
	found := error(syscall.ENOENT)
	for _, folder := range filepath.SplitList(path) {
		if folder == "" {
			folder = "."
		}
		if !filepath.IsAbs(folder) {
			folder = filepath.Join(dir, folder)
		}
		file := filepath.Join(folder, name)
		info, err := os.Stat(file)
		switch {
		case err != nil || info.IsDir():
		case info.Mode()&0o111 != 0:
			return file, nil
		default:
			found = syscall.EACCES
		}
	}
	return "", found
}
