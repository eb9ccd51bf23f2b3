package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/closeonexec"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver/boxstore"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/box"
)

// plan is what kind of box is being made.
type plan struct {
	capabilities
	spec   driver.Spec
	groups *cgroups // nil: the box has none
}

const (
	filesFolder  = "files"
	startTimeout = 30 * time.Second
)

// launch creates the folder, the cgroups and the guest of a box. A missing part of the isolation is a *box.PartError;
// the caller then destroys what is left.
//
// The guest waits for its specification, and exits without one. So the record, with the guest's process id, is written
// before anything can happen that a later process would not find.
func (d *Driver) launch(ctx context.Context, p plan) (driver.Report, error) {
	if err := d.guest.Stage(); err != nil {
		return driver.Report{}, err
	}
	id, folder, control := p.spec.ID, d.boxes.Folder(p.spec.ID), d.boxes.Control(p.spec.ID)
	if err := errors.Join(os.MkdirAll(folder, 0o700), os.MkdirAll(control, 0o755)); err != nil {
		return driver.Report{}, fmt.Errorf("make the folder of a box: %w", err)
	}
	rec := &record{Record: boxstore.NewRecord(p.spec), Namespaces: p.namespaces}
	owner := os.Geteuid()
	if d.many && p.namespaces {
		owner = rangeOf(id)
	}
	var g *group
	if p.groups != nil {
		var err error
		if g, err = p.groups.create(ctx, id, share{p.spec.Limits, guestBytes(p.spec.Limits)}, owner); err != nil {
			return driver.Report{}, &box.PartError{Part: groupsPart, Err: err}
		}
		rec.Cgroups = g.refs
	}
	if err := d.boxes.Write(id, rec); err != nil {
		return driver.Report{}, err
	}
	s := d.specification(p, g)
	if !p.namespaces {
		if err := hostFolders(folder); err != nil {
			return driver.Report{}, err
		}
	}
	start, err := d.start(ctx, p, g, &s, control)
	if err != nil {
		return driver.Report{}, err
	}
	defer start.close()
	if err := rec.identify(start.pid); err != nil {
		return driver.Report{}, start.explain(describe(err), folder)
	}
	if err := d.boxes.Write(id, rec); err != nil {
		return driver.Report{}, err
	}
	if g != nil {
		if err := g.admit(start.pid); err != nil {
			return driver.Report{}, start.explain(&box.PartError{Part: groupsPart, Err: err}, folder)
		}
	}
	if _, err := d.boxes.Listen(id, rec.isGuest); err != nil {
		return driver.Report{}, err
	}
	if start.proc != nil {
		if err := d.handProc(ctx, rec, start.proc); err != nil {
			return driver.Report{}, start.explain(&box.PartError{Part: "own /proc", Err: err}, folder)
		}
	}
	outcome, err := start.begin(ctx, s)
	if err != nil {
		return driver.Report{}, start.explain(fmt.Errorf("start the guest: %w", err), folder)
	}
	if outcome.Failed != "" {
		err := errors.New(outcome.Reason)
		if outcome.Transient {
			err = &box.TransientError{Err: err}
		}
		return driver.Report{}, &box.PartError{Part: outcome.Failed, Err: err}
	}
	rec.Ready, rec.Report = true, d.report(p, g, outcome.Weaker)
	return rec.Report, d.boxes.Write(id, rec)
}

// starting is a guest that waits for its specification.
type starting struct {
	pid     int
	ended   chan *os.ProcessState // how the guest ended, once
	spec    *os.File
	outcome *os.File
	proc    *os.File // where the guest takes its /proc from; nil when it mounts that itself
}

// explain replaces the failure of a step that needs the guest by the guest's end, if that is the cause: SANDBOX_QUOTA
// after a shortage, else INTERNAL. All other failures stay as they are.
func (s *starting) explain(err error, folder string) error {
	if box.Transient(err) {
		return err
	}
	select {
	case state := <-s.ended:
		said := guestLog(folder)
		// In words alone: a step that the guest's end made fail is no part that the machine lacks.
		err = fmt.Errorf("the guest ended while it started: %s: %s; it said: %s", state, err.Error(), lastWords(said))
		if transientExit(state, said) {
			return driver.Shortage(err)
		}
		return rpcerr.Internal("%w", err)
	case <-time.After(time.Second):
		return fmt.Errorf("%w; the guest said: %s", err, lastWords(guestLog(folder)))
	}
}

func (s *starting) close() { closeAll([]*os.File{s.spec, s.outcome, s.proc}) }

// begin sends the guest its specification and waits for its answer.
func (s *starting) begin(ctx context.Context, spec box.Spec) (box.Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = s.outcome.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var outcome box.Outcome
	if err := json.NewEncoder(s.spec).Encode(spec); err != nil {
		return outcome, err
	}
	s.spec.Close()
	if err := json.NewDecoder(s.outcome).Decode(&outcome); err != nil {
		if ctx.Err() != nil {
			return outcome, context.Cause(ctx)
		}
		return outcome, err
	}
	return outcome, nil
}

// start clones the guest into its namespaces. It fills in which descriptors the guest has.
func (d *Driver) start(ctx context.Context, p plan, g *group, s *box.Spec, control string) (_ *starting, err error) {
	var theirs []*os.File
	defer func() { closeAll(theirs) }()
	give := func(f *os.File, err error) (int, error) {
		if err != nil {
			return 0, err
		}
		theirs = append(theirs, f)
		return guest.SpecFD + len(theirs) - 1, nil
	}
	specRead, specWrite, err := os.Pipe()
	if err != nil {
		return nil, describe(err)
	}
	outcomeRead, outcomeWrite, err := os.Pipe()
	if err != nil {
		closeAll([]*os.File{specRead, specWrite})
		return nil, describe(err)
	}
	st := &starting{spec: specWrite, outcome: outcomeRead}
	defer func() {
		if err != nil {
			st.close()
		}
	}()
	_, _ = give(specRead, nil)
	_, _ = give(outcomeWrite, nil)
	// What leads out of the box if it were a path is given as a mount of its own. Without root the guest makes those
	// itself.
	detach := func(m *box.Mount) (err error) {
		if d.many && p.namespaces {
			m.FD, err = give(detached(m.Source))
		}
		return err
	}
	s.Guest.Control.Source = control
	program := box.Mount{Source: d.guest.Path}
	for _, m := range []*box.Mount{&s.Guest.Control, &program} {
		if err := detach(m); err != nil {
			return nil, &box.PartError{Part: "system folders", Err: err}
		}
	}
	if err := giveGroup(g, s, give, detach); err != nil {
		return nil, &box.PartError{Part: groupsPart, Err: err}
	}
	if d.many && p.namespaces {
		theirEnd, err := st.procSocket()
		if err != nil {
			return nil, describe(err)
		}
		s.ProcFD, _ = give(theirEnd, nil)
		for i := range s.Trees {
			if err := detach(&s.Trees[i].Mount); err != nil {
				return nil, &box.PartError{Part: "system folders", Err: err}
			}
		}
	}
	logFile, err := os.OpenFile(filepath.Join(filepath.Dir(control), "guestd.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, describe(err)
	}
	defer logFile.Close()
	cmd := &exec.Cmd{
		Path: d.guest.Path, Args: []string{"guestd", "init"}, Env: []string{}, Dir: "/",
		Stdout: logFile, Stderr: logFile, ExtraFiles: theirs, SysProcAttr: d.attributes(p),
	}
	if program.FD > 0 {
		// By its descriptor: the guest is another user, who may not walk to the file.
		cmd.Path = fmt.Sprintf("/proc/self/fd/%d", program.FD)
	}
	if err := closeonexec.MarkAll(); err != nil {
		return nil, describe(err)
	}
	if err := cmd.Start(); err != nil {
		if p.namespaces {
			return nil, d.refused(ctx, err)
		}
		return nil, describe(err)
	}
	st.pid = cmd.Process.Pid
	st.ended = make(chan *os.ProcessState, 1)
	go func() { // reaps; the box's life does not hang on it
		if state, err := cmd.Process.Wait(); err == nil {
			st.ended <- state
		}
	}()
	return st, nil
}

// procSocket makes the socket through which the guest takes its /proc, and gives the guest's end of it.
func (s *starting) procSocket() (theirs *os.File, err error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make a socket for /proc: %w", err)
	}
	s.proc = os.NewFile(uintptr(ends[0]), "proc")
	return os.NewFile(uintptr(ends[1]), "proc"), nil
}

// giveGroup opens the files of the cgroup that the guest needs.
func giveGroup(g *group, s *box.Spec, give func(*os.File, error) (int, error), detach func(*box.Mount) error) (err error) {
	if g == nil {
		return nil
	}
	if s.Guest.OOMFD, err = give(os.Open(g.events)); err != nil {
		return err
	}
	for _, tasks := range g.tasks {
		fd, err := give(os.OpenFile(tasks, os.O_WRONLY, 0))
		if err != nil {
			return err
		}
		s.Command.TasksFDs = append(s.Command.TasksFDs, fd)
	}
	if g.born == "" {
		return nil
	}
	s.Command.Cgroup.Source = g.born
	err = detach(&s.Command.Cgroup)
	if errors.Is(err, unix.EINVAL) {
		// Before Linux 6.15 nothing can be detached from a hierarchy that this process mounted for itself, which has no
		// place among other files either: a path through it ends at its root.
		s.Command.Cgroup.FD, err = give(os.OpenFile(g.born, unix.O_PATH|unix.O_DIRECTORY, 0))
	}
	return err
}

// detached makes a mount of its own of a file or folder.
func detached(path string) (*os.File, error) {
	fd, err := box.OpenTree(path)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// hostFolders makes the folders of a box that sees the host's files.
func hostFolders(folder string) error {
	for _, name := range []string{"workspace", "home", "tmp"} {
		if err := os.MkdirAll(filepath.Join(folder, filesFolder, name), 0o700); err != nil {
			return fmt.Errorf("make the folders of a box: %w", err)
		}
	}
	return nil
}

// guestLog returns what the guest of a box wrote to its log, if anything.
func guestLog(folder string) []byte {
	data, _ := os.ReadFile(filepath.Join(folder, "guestd.log")) // nothing where it cannot be read
	return data
}

// lastWords are the end of what a guest wrote.
func lastWords(said []byte) string {
	const most = 4 << 10
	return strings.TrimSpace(string(said[max(0, len(said)-most):]))
}
