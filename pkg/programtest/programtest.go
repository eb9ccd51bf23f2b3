// Package programtest builds the programs that tests start. All tests of a checkout share the results, in bin/test: a
// program whose sources are unchanged is not linked again, by any package and in any run.
package programtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/evalfleet/evalfleet/pkg/goldentest"
)

// Build builds main packages, named from the module's root as ./path, without C and with the given build tags. It
// returns a new folder with the programs, which later builds do not change; the caller removes it. Build is safe for
// concurrent use, also by several processes.
func Build(tags string, packages ...string) (dir string, err error) {
	root, err := goldentest.ModuleRoot()
	if err != nil {
		return "", err
	}
	// One folder for each list of programs, so that it contains exactly those.
	shared := filepath.Join(root, "bin", "test", name(tags, packages))
	if err := os.MkdirAll(shared, 0o750); err != nil {
		return "", err
	}
	lock, err := os.Open(shared)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock %s: %w", shared, err)
	}
	// Go links a program again if the present one has other sources.
	args := append([]string{"build", "-tags", tags, "-o", shared + "/"}, packages...)
	build := exec.Command("go", args...)
	build.Dir = root
	build.Env = append(build.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return private(shared, packages)
}

// name is the name of a build's folder.
func name(tags string, packages []string) string {
	name := tags
	for _, p := range packages {
		name += "+" + filepath.Base(p)
	}
	return name
}

// private returns a new folder with the programs of a shared one. Go removes a program before it writes another in its
// place, so that a link keeps its content.
func private(shared string, packages []string) (dir string, err error) {
	dir, err = os.MkdirTemp(filepath.Dir(shared), "run-")
	if err != nil {
		return "", err
	}
	for _, p := range packages {
		program := filepath.Base(p)
		if err := os.Link(filepath.Join(shared, program), filepath.Join(dir, program)); err != nil {
			return "", errors.Join(err, os.RemoveAll(dir))
		}
	}
	return dir, nil
}
