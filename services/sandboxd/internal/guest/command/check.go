package command

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/filebody"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/account"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/fault"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/process"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/proclink"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/rmtree"
)

// A check does not trust what ran in the sandbox before it: it starts when all other processes have ended, as a user of
// its own, in a room of its own. A fault that a tenant can cause (the disk is full, the room is missing) is an exit
// code of the check and no error.

// Folders of a room, and the variables that name them.
const (
	roomWork = "work"
	roomHome = "home"
	roomTemp = "tmp"

	checkDirVariable = "EVALFLEET_CHECK_DIR"
	workdirVariable  = "EVALFLEET_WORKDIR"
)

// checkRoot is where a check works: folders that only its user can enter.
type checkRoot struct {
	base *os.Root // where rooms are
	name string
	user account.Account
}

func (m *checkRoot) path(folder string) string { return filepath.Join(m.base.Name(), m.name, folder) }

// lookThrough bounds the search of the agent's folders before a check.
const lookThrough = 30 * time.Second

// enter ends all other processes and removes links into /proc, unless the check keeps processes, and makes the room of
// the check. The caller calls leave.
func (r *Runner) enter(spec *sandboxv1.ExecSpec) (*checkRoot, error) {
	r.checking <- struct{}{} // one check at a time: the next would end this one
	made, err := r.newRoom(spec)
	if err != nil {
		r.leave(nil, spec, made)
		return nil, err
	}
	return made, nil
}

// leave ends what the check has left and removes its room, so that no later command finds the files of the check, and
// no later check its processes. A nil process never was, and a nil room is none.
func (r *Runner) leave(ended *process.Process, spec *sandboxv1.ExecSpec, made *checkRoot) {
	defer func() { <-r.checking }()
	switch {
	case !spec.GetCheck().GetKeepProcesses():
		r.table.KillAll()
	case ended != nil:
		ended.KillLeft()
	}
	if made != nil {
		made.remove()
	}
}

// remove removes the room. What cannot be removed stays out of reach, save for its own user.
func (m *checkRoot) remove() {
	base, err := m.base.Open(".")
	if err != nil {
		return
	}
	defer base.Close()
	_ = rmtree.RemoveAt(int(base.Fd()), m.name)
}

func (r *Runner) newRoom(spec *sandboxv1.ExecSpec) (*checkRoot, error) {
	check := spec.GetCheck()
	if !check.GetKeepProcesses() {
		if n := r.table.KillAll(); n > 0 {
			return nil, &badProgram{exitNotExecutable, fmt.Sprintf("%d processes of the sandbox could not be ended before the check", n)}
		}
		if err := r.removeLinks(); err != nil {
			return nil, err
		}
	}
	user := account.Checker()
	if name := spec.GetUser(); name != "" {
		var err error
		if user, err = account.Lookup(name); err != nil {
			return nil, err
		}
		if err := user.Reachable(); err != nil {
			return nil, err
		}
	}
	if r.rooms == nil {
		return nil, rpcerr.Internal("the guest has no folder for checks")
	}
	made := &checkRoot{base: r.rooms, name: strings.ToLower(rand.Text()), user: user}
	return made, made.furnish(check.GetFiles())
}

// removeLinks removes links into /proc from the agent's folders. While processes live, they could be there again at
// once.
func (r *Runner) removeLinks() error {
	until := time.Now().Add(lookThrough)
	for _, folder := range r.folders {
		if err := proclink.Remove(folder, until); err != nil {
			return &badProgram{exitNotExecutable, "links into /proc cannot be removed from " + folder + " before the check: " + err.Error()}
		}
	}
	return nil
}

// furnish makes the folders and files of the room, all but the first folder with the rights of its user.
func (m *checkRoot) furnish(files []*sandboxv1.FileToPlace) error {
	if err := m.base.Mkdir(m.name, 0o700); err != nil {
		return spoilt(err)
	}
	if os.Geteuid() == 0 {
		if err := m.base.Lchown(m.name, int(m.user.UID), int(m.user.GID)); err != nil {
			return spoilt(err)
		}
	}
	if err := m.atItsPath(); err != nil {
		return err
	}
	return m.user.Do(func() error {
		inside, err := m.base.OpenRoot(m.name)
		if err != nil {
			return spoilt(err)
		}
		defer inside.Close()
		for _, folder := range []string{roomWork, roomHome, roomTemp} {
			if err := inside.Mkdir(folder, 0o700); err != nil {
				return spoilt(err)
			}
		}
		for _, f := range files {
			if err := place(inside, f); err != nil {
				return err
			}
		}
		return nil
	})
}

// atItsPath fails where the folder of rooms was moved and another put in its place, which a tenant can who owns the
// root.
func (m *checkRoot) atItsPath() error {
	made, err := m.base.Lstat(m.name)
	if err != nil {
		return spoilt(err)
	}
	found, err := os.Lstat(m.path(""))
	if err != nil {
		return spoilt(err)
	}
	if !os.SameFile(made, found) {
		return spoilt(syscall.ENOENT)
	}
	return nil
}

// place writes a file that the check needs.
func place(inside *os.Root, f *sandboxv1.FileToPlace) error {
	if !filepath.IsLocal(f.GetPath()) || path.Clean(f.GetPath()) == "." {
		return rpcerr.InvalidField("spec.check.files", "%q is not a path below the check's folder", f.GetPath())
	}
	name := path.Join(roomWork, f.GetPath())
	mode := os.FileMode(cmp.Or(f.GetMode(), 0o644)).Perm()
	err := inside.MkdirAll(path.Dir(name), 0o755)
	if err == nil {
		err = inside.WriteFile(name, filebody.Bytes(f), 0o600)
	}
	if err == nil {
		err = inside.Chmod(name, mode)
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return spoilt(err)
	}
	return fault.File("place", f.GetPath(), err)
}

// spoilt is the error of a room that could not be made, for a reason that a tenant can cause.
func spoilt(err error) error {
	return &badProgram{exitNotExecutable, "the check has no folder of its own: " + err.Error()}
}

// environment returns the variables of the check: those of commands, with folders of its own, and those that the check
// sets.
func (m *checkRoot) environment(s *settings, own map[string]string) (env []string, path string) {
	vars := maps.Clone(s.Env)
	if vars == nil {
		vars = map[string]string{}
	}
	vars["HOME"], vars["TMPDIR"] = m.path(roomHome), m.path(roomTemp)
	vars["USER"], vars["LOGNAME"] = m.user.Name, m.user.Name
	vars[checkDirVariable], vars[workdirVariable] = m.path(roomWork), s.Workdir
	maps.Copy(vars, own)
	return environment(vars, m.user, nil)
}
