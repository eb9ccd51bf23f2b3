package command

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/account"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/fault"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/process"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/walk"
)

// pipeBytes is what fits into a pipe without a reader, so that short input needs no goroutine.
const pipeBytes = 64 << 10

// start starts the process of c, or completes c at once when it cannot.
func (r *Runner) start(c *Command, spec *sandboxv1.ExecSpec) {
	var in *checkRoot
	if spec.GetCheck() != nil {
		var err error
		if in, err = r.enter(spec); err != nil {
			c.fail(err)
			return
		}
		c.after = func() { r.leave(c.process, spec, in) }
		c.began = time.Now() // ending processes and placing files is not the check's time
	}
	cmd, err := r.prepare(spec, in)
	if err != nil {
		c.fail(err)
		return
	}
	pipes, err := openPipes(r.null, spec)
	if err != nil {
		c.fail(rpcerr.Internal("open pipes: %w", err))
		return
	}
	cmd.Files = pipes.theirs

	ooms := c.oomCount()
	r.table.Start(*cmd, func(p *process.Process, err error) {
		pipes.closeTheirs()
		if err != nil {
			pipes.closeOurs()
			c.fail(explain(err, cmd, in != nil))
			return
		}
		if pipes.stdin != nil {
			c.input.open(pipes.stdin, spec)
		}
		var timeout *time.Timer
		if d := spec.GetTimeout(); d != nil {
			timeout = time.AfterFunc(d.AsDuration()-time.Since(c.began), func() { c.kill(timedOut) })
		}
		c.mu.Lock()
		c.process = p
		c.state = running
		if c.cause != notKilled {
			c.killTree() // cancelled while it started
		}
		c.mu.Unlock()
		close(c.begun)
		go c.watch(timeout, []*pump{newPump(pipes.stdout, c.stdout), newPump(pipes.stderr, c.stderr)}, ooms)
	})
}

// open gives a command its input, beginning with what came with it.
func (in *input) open(file *os.File, spec *sandboxv1.ExecSpec) {
	in.mu.Lock()
	in.file = file
	in.mu.Unlock()
	if data := spec.GetStdin(); len(data) > pipeBytes {
		in.feed(data, spec.GetStdinOpen())
		return
	}
	in.send(spec.GetStdin())
	if !spec.GetStdinOpen() {
		in.close()
	}
}

// prepare works out user, folder, environment and program. A check has a room.
func (r *Runner) prepare(spec *sandboxv1.ExecSpec, in *checkRoot) (*process.Command, error) {
	settings := r.settings.Load()
	user := settings.user
	if in != nil {
		user = in.user
	} else if name := spec.GetUser(); name != "" && name != settings.User {
		var err error
		if user, err = account.Lookup(name); err != nil {
			return nil, err
		}
	}
	if err := user.Reachable(); err != nil {
		return nil, err
	}
	dir := spec.GetCwd()
	if in != nil && dir == "" {
		dir = in.path(roomWork)
	}
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(settings.Workdir, dir)
	}
	env, path := settings.env, settings.path
	if in != nil {
		env, path = in.environment(settings, spec.GetEnv())
	} else if len(spec.GetEnv()) > 0 || user.Name != settings.user.Name {
		env, path = environment(settings.Env, user, spec.GetEnv())
	}
	for _, arg := range slices.Concat(spec.GetArgv(), env) {
		if strings.ContainsRune(arg, 0) {
			if in != nil { // it may hold what the agent said
				return nil, &badProgram{exitNotExecutable, spec.GetArgv()[0] + ": arguments and environment cannot hold a NUL"}
			}
			return nil, rpcerr.InvalidField("spec.argv", "arguments and environment cannot hold a NUL")
		}
	}
	cmd := &process.Command{Argv: spec.GetArgv(), Env: env, Dir: dir, Apart: in != nil}
	if !user.Current() && os.Geteuid() == 0 {
		cmd.User = &process.Credential{UID: user.UID, GID: user.GID, Groups: user.Groups}
		if in != nil && spec.GetUser() == "" {
			cmd.User.Capabilities = r.checkCaps
		}
	}
	var err error
	if cmd.Path, err = process.LookPath(cmd.Argv[0], path, dir); err != nil {
		return nil, explain(err, cmd, in != nil)
	}
	return cmd, nil
}

// spoiltStarts are what a start fails with where somebody in the sandbox spoilt the program that a check names.
var spoiltStarts = []syscall.Errno{syscall.EACCES, syscall.EPERM, syscall.ENAMETOOLONG, syscall.ELOOP, syscall.ENOTDIR, syscall.ETXTBSY}

// explain turns the reason why a program did not start into what the caller shall see. A check whose folder is not
// there has failed, since commands before it could have removed the folder.
func explain(err error, cmd *process.Command, check bool) error {
	folder, dirErr := walk.Open(cmd.Dir, unix.O_PATH|unix.O_DIRECTORY)
	if dirErr != nil {
		err := fault.File("start in", cmd.Dir, dirErr)
		if check {
			return &badProgram{exitNotExecutable, err.Error()}
		}
		return err
	}
	unix.Close(folder)
	if errors.Is(err, process.ErrBlocked) {
		return &badProgram{exitNotExecutable, cmd.Argv[0] + ": " + err.Error()}
	}
	errno, _ := errors.AsType[syscall.Errno](err)
	if check && slices.Contains(spoiltStarts, errno) {
		return &badProgram{exitNotExecutable, cmd.Argv[0] + ": " + errno.Error()}
	}
	switch errno { //nolint:exhaustive // All others are faults of the start.
	case syscall.ENOENT:
		return &badProgram{exitNotFound, cmd.Argv[0] + ": no such program in the sandbox"}
	case syscall.EIO:
		if diskFails(cmd.Path) {
			return rpcerr.Internal("read %s: %w; the disk of its host may be failing", cmd.Argv[0], err)
		}
		fallthrough
	case syscall.ENOEXEC, syscall.ELIBBAD, syscall.EINVAL, syscall.EISDIR: // the last ones, as EIO, of a broken ELF file
		return &badProgram{exitNotExecutable, cmd.Argv[0] + ": not a program that this machine can execute"}
	case syscall.ETXTBSY:
		return &badProgram{exitNotExecutable, cmd.Argv[0] + ": a process of the sandbox has it open for writing"}
	case syscall.EACCES, syscall.EPERM:
		return fault.NotExecutable(cmd.Argv[0])
	case syscall.E2BIG:
		return &badProgram{exitNotExecutable, cmd.Argv[0] + ": arguments and environment are longer than the kernel allows, which is 128 KiB for each; pass longer texts in a file"}
	case syscall.ENAMETOOLONG, syscall.ELOOP, syscall.ENOTDIR:
		return fault.File("execute", cmd.Argv[0], err)
	case syscall.EAGAIN, syscall.ENOMEM:
		if check {
			return &badProgram{exitNotExecutable, "the sandbox has no room for the check: " + errno.Error()}
		}
		return fault.NoRoom(err)
	}
	return rpcerr.Internal("start a process: %w", err)
}

// diskFails tells that a program cannot be read. The kernel gives the same error number for one that is cut short.
func diskFails(path string) bool {
	fd, err := walk.Open(path, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return errors.Is(err, syscall.EIO)
	}
	defer unix.Close(fd)
	_, err = unix.Pread(fd, make([]byte, headBytes), 0)
	return errors.Is(err, syscall.EIO)
}

// headBytes is where the kernel finds what a program is.
const headBytes = 4 << 10

// environment gives the variables of a command, sorted, and its PATH: PATH, HOME and LANG, what the sandbox sets, what
// the command sets.
func environment(sandbox map[string]string, user account.Account, own map[string]string) (env []string, path string) {
	vars := make(map[string]string, 3+len(sandbox)+len(own))
	vars["LANG"], vars["HOME"] = "C.UTF-8", user.Home
	maps.Copy(vars, sandbox)
	maps.Copy(vars, own)
	env = make([]string, 0, len(vars))
	for k, v := range vars {
		env = append(env, k+"="+v)
	}
	slices.Sort(env)
	return env, vars["PATH"]
}

// pipes are the standard streams of a command: the command's ends and ours.
type pipes struct {
	theirs         [3]uintptr
	close          []int
	stdin          *os.File // nil without input
	stdout, stderr int
}

func openPipes(null *os.File, spec *sandboxv1.ExecSpec) (*pipes, error) {
	p := &pipes{stdout: -1, stderr: -1}
	var errs []error
	for i, ours := range []*int{&p.stdout, &p.stderr} {
		r, w, err := pipe()
		errs = append(errs, err)
		if err == nil {
			*ours, p.theirs[i+1], p.close = r, uintptr(w), append(p.close, w)
			errs = append(errs, nonblock(r))
		}
	}
	p.theirs[0] = null.Fd()
	if len(spec.GetStdin()) > 0 || spec.GetStdinOpen() {
		r, w, err := pipe()
		errs = append(errs, err)
		if err == nil {
			p.theirs[0], p.close = uintptr(r), append(p.close, r)
			errs = append(errs, nonblock(w))
			p.stdin = os.NewFile(uintptr(w), "stdin")
		}
	}
	if err := errors.Join(errs...); err != nil {
		p.closeTheirs()
		p.closeOurs()
		return nil, err
	}
	return p, nil
}

func pipe() (r, w int, err error) {
	var fds [2]int
	err = unix.Pipe2(fds[:], unix.O_CLOEXEC)
	return fds[0], fds[1], err
}

// nonblock is for an end of a new pipe, which has no other flags to keep.
func nonblock(fd int) error {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, unix.O_NONBLOCK)
	return err
}

func (p *pipes) closeTheirs() {
	for _, fd := range p.close {
		unix.Close(fd)
	}
	p.close = nil
}

func (p *pipes) closeOurs() {
	for _, fd := range []int{p.stdout, p.stderr} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	if p.stdin != nil {
		p.stdin.Close()
	}
}
