package local

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/box"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/fault"
)

// Create makes a box, or gives the one of the same id.
func (d *Driver) Create(ctx context.Context, spec driver.Spec) (driver.Report, error) {
	d.look(ctx)
	if err := d.check(&spec); err != nil {
		return driver.Report{}, err
	}
	return d.boxes.Create(ctx, spec.ID, func() (driver.Report, error) { return d.make(ctx, spec) })
}

// check fills in what the driver decides and refuses what it cannot do.
func (d *Driver) check(spec *driver.Spec) error {
	if spec.Workdir == "" {
		spec.Workdir = workdir
	}
	if spec.User == "" {
		spec.User = userName
	}
	clean := filepath.Clean(spec.Workdir)
	if !filepath.IsAbs(clean) || clean == "/" {
		return rpcerr.InvalidField("spec.workdir", "%q is not an absolute path below the root", spec.Workdir)
	}
	for _, t := range append([]box.Tree{{Target: "/proc"}, {Target: "/dev"}}, d.system.trees...) {
		if clean == t.Target || strings.HasPrefix(clean, t.Target+"/") {
			return rpcerr.InvalidField("spec.workdir", "%s is read-only in this sandbox; choose a path outside of it", t.Target)
		}
	}
	spec.Workdir = clean
	if !d.many && spec.User != userName && spec.User != strconv.Itoa(userID) {
		return fault.NoUserSwitch(spec.User)
	}
	return nil
}

// make tries the best isolation first, and where that is allowed goes without what is missing.
func (d *Driver) make(ctx context.Context, spec driver.Spec) (driver.Report, error) {
	d.askForGroups(ctx)
	groups, why := d.groups()
	p := plan{spec: spec, namespaces: true, groups: groups}
	if groups == nil {
		missing := &box.PartError{Part: groupsPart, Err: errors.New(strings.ReplaceAll(why.Error(), "\n", "; "))}
		if !spec.AllowUnisolated {
			return driver.Report{}, d.unavailable(missing)
		}
		p.missing = append(p.missing, missing.Error())
	}
	report, err := d.launch(ctx, p)
	part, missing := errors.AsType[*box.PartError](err)
	if !missing {
		return report, err
	}
	if !spec.AllowUnisolated || part.Part == box.GuestProgram {
		return driver.Report{}, d.unavailable(part)
	}
	d.log.Warn("a part of the isolation is missing; making the box without", "box", spec.ID, "part", part.Part, "reason", part.Err)
	if err := d.boxes.Clear(ctx, spec.ID); err != nil {
		return driver.Report{}, err
	}
	p.namespaces = false
	p.missing = append(p.missing, part.Error())
	report, err = d.launch(ctx, p)
	if part, missing := errors.AsType[*box.PartError](err); missing {
		err = d.unavailable(part)
	}
	return report, err
}

// moreNamespaces is what lets users make namespaces, and have powers in them.
const moreNamespaces = "set the sysctl user.max_user_namespaces above 0 (and kernel.unprivileged_userns_clone to 1, " +
	"kernel.apparmor_restrict_unprivileged_userns to 0, where they exist), or run as root"

// nextSteps tells for a missing part what would help.
var nextSteps = map[string]string{
	"mount namespace": moreNamespaces,
	"user namespace":  moreNamespaces,
	"own /proc":       "run as root with CAP_SYS_ADMIN, or in a container whose /proc is not masked (docker: --security-opt systempaths=unconfined)",
	"system folders":  "use Linux 5.12 or later",
	groupsPart:        "run with CAP_SYS_ADMIN and a cgroup hierarchy that has memory and pids",
}

// groupsPart bounds memory and processes of a box.
const groupsPart = "cgroups for memory and pids"

// userGroups is what gives an ordinary user cgroups.
const userGroups = "start it in a session of systemd (systemd-run --user --scope -p Delegate=yes evalfleet …, or log in so that systemctl --user works), run as root"

func (d *Driver) unavailable(part *box.PartError) error {
	if part.Part == box.GuestProgram {
		return rpcerr.IsolationUnavailable(part.Part,
			"%s cannot serve a sandbox: %w; build it with CGO_ENABLED=0, as `make build` does, and say where it is with guest_path", d.given, part.Err)
	}
	next := nextSteps[part.Part]
	switch {
	case part.Part == groupsPart && !d.root:
		next = userGroups
	case next == "":
		next = "run as root, in a container with CAP_SYS_ADMIN, seccomp=unconfined and apparmor=unconfined"
	}
	return rpcerr.IsolationUnavailable(part.Part,
		"this machine cannot isolate a sandbox: %s; %s, use another driver, or allow it with --allow-unisolated", part, next)
}

// defaultDisk bounds what is written in a box when nothing else is asked for.
const (
	defaultDisk   = 1 << 30
	defaultInodes = 250_000
)

// rootBytes bounds what is written in a box. It is memory too.
func rootBytes(l driver.Limits) int64 {
	switch {
	case l.DiskBytes > 0:
		return l.DiskBytes
	case l.MemoryBytes > 0:
		return min(defaultDisk, l.MemoryBytes/2)
	}
	return defaultDisk
}

// guestBytes bounds the memory of the guest. The files that are written through it are in its account.
func guestBytes(l driver.Limits) int64 {
	return bound.GuestMemory(bound.GuestOutput(l.MemoryBytes)) + rootBytes(l)
}

// processors is how many whole processors a share of them takes.
func processors(l driver.Limits) int { return int((l.CPUMillis + 999) / 1000) }

// specification is what the guest is told.
func (d *Driver) specification(p plan, g *group) box.Spec {
	l := p.spec.Limits
	s := box.Spec{
		Isolated: p.namespaces, Hostname: hostname, Inodes: defaultInodes, RootBytes: rootBytes(l),
		Guest: box.Guest{
			DeadlineUnix: unixSeconds(p.spec.Deadline), OrphanSeconds: int64(p.spec.OrphanTimeout / time.Second), KeptBytes: bound.GuestOutput(l.MemoryBytes),
		},
		Command: box.Command{OOMScoreAdj: 1000, MayLackFilter: p.spec.AllowUnisolated},
		Limits:  box.UserLimits(),
	}
	if (g == nil || !g.cpu) && l.CPUMillis > 0 {
		s.Command.Processors = processors(l)
	}
	if l.FileSizeBytes > 0 {
		s.Limits = append(s.Limits, box.Limit{Resource: unix.RLIMIT_FSIZE, Value: uint64(l.FileSizeBytes)})
	}
	s.Command.Limits = []box.Limit{{Resource: unix.RLIMIT_NOFILE, Value: uint64(l.OpenFiles)}}
	if g == nil {
		s.Command.Limits = append(s.Command.Limits,
			box.Limit{Resource: unix.RLIMIT_DATA, Value: uint64(l.MemoryBytes)}, box.Limit{Resource: unix.RLIMIT_NPROC, Value: uint64(l.PIDs)})
	}
	if !p.namespaces {
		s.Guest.Workdir = filepath.Join(d.boxes.Folder(p.spec.ID), filesFolder) // with all folders of the box
		s.Guest.ChecksDir = filepath.Join(s.Guest.Workdir, "checks")
		return s
	}
	s.Guest.ChecksDir, s.Guest.Workdir, s.Guest.User = checksTarget, p.spec.Workdir, p.spec.User
	s.Command.HideCgroups = g == nil || g.born == ""
	root := userID
	s.TerminalGroup = -1
	if d.many {
		root, s.TerminalGroup = 0, ttyGroup
	}
	s.Trees = append(s.Trees, d.system.trees...)
	s.Trees = append(s.Trees, box.Tree{Target: guestTarget, Mount: box.Mount{Source: d.guest}, File: true})
	s.Fixed = []string{filepath.Dir(guestTarget)}
	s.Links, s.Devices = d.system.links, d.system.devices
	s.Files = settings(accounts(d.many))
	s.Folders = d.system.folders(root, userID, p.spec.Workdir)
	return s
}

func unixSeconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

// report tells what was made; weaker is what the guest found missing.
func (d *Driver) report(p plan, g *group, weaker []string) driver.Report {
	r := driver.Report{GuestPath: guestTarget, Workdir: p.spec.Workdir, User: p.spec.User, Env: map[string]string{"PATH": d.system.path}}
	iso := &r.Isolation
	iso.Unisolated = len(p.missing) > 0
	iso.Weaker = append(append(iso.Weaker, p.missing...), weaker...)
	if p.namespaces {
		iso.Parts = append(iso.Parts, "user namespace", "mount namespace", "process namespace", "ipc namespace", "uts namespace", "network namespace", "private root")
	} else {
		files := filepath.Join(d.boxes.Folder(p.spec.ID), filesFolder)
		r.GuestPath, r.Workdir, r.User = d.guest, filepath.Join(files, "workspace"), ""
		r.Env = map[string]string{"PATH": d.system.hostPath(), "HOME": filepath.Join(files, "home"), "TMPDIR": filepath.Join(files, "tmp")}
	}
	iso.Parts = append(iso.Parts, "no capabilities", "no_new_privs")
	if g != nil {
		iso.Parts = append(iso.Parts, g.parts...)
		iso.Weaker = append(iso.Weaker, g.weaker...)
	} else {
		iso.Weaker = append(iso.Weaker, "memory: a bound per process (RLIMIT_DATA) instead of a cgroup", "pids: a bound per user (RLIMIT_NPROC) instead of a cgroup")
		if p.spec.Limits.CPUMillis > 0 {
			iso.Weaker = append(iso.Weaker, unboundedCPU(errors.New("there is no cgroup")))
		}
	}
	if !d.many && p.namespaces {
		iso.Weaker = append(iso.Weaker, "users: commands run as the one user that can be mapped without root, and so do the checks of scorers")
	}
	return r
}

// describe is for errors of starting the guest.
func describe(err error) error { return fmt.Errorf("start the guest: %w", err) }
