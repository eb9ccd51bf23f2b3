package local

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
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

// Create makes a box, or returns the one of the same id.
func (d *Driver) Create(ctx context.Context, spec driver.Spec) (driver.Report, error) {
	d.look(ctx)
	if err := d.check(&spec); err != nil {
		return driver.Report{}, err
	}
	return d.boxes.Create(ctx, spec.ID, func() (driver.Report, error) { return d.make(ctx, spec) })
}

// check sets the driver's defaults and rejects what it cannot do.
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

// make makes a box with every part of the isolation or, if that is allowed, without the parts that this machine was
// measured to lack. The failure of one box does not change the measurement: it concerns that box, or a transient
// shortage.
func (d *Driver) make(ctx context.Context, spec driver.Spec) (driver.Report, error) {
	has := allCapabilities
	if spec.AllowUnisolated {
		var err error
		if has, err = d.measure(ctx); err != nil {
			return driver.Report{}, err
		}
	}
	report, part, err := d.try(ctx, spec, has)
	if part != nil {
		return driver.Report{}, d.unavailable(part)
	}
	if err == nil && len(has.missing) == 0 {
		d.measured.Store(&allCapabilities)
	}
	return report, err
}

// try makes a box with the capabilities of a machine. part is a part that the machine lacks; a transient lack of a part
// is an error (SANDBOX_QUOTA).
func (d *Driver) try(ctx context.Context, spec driver.Spec, has capabilities) (_ driver.Report, lacks *box.PartError, err error) {
	p := plan{spec: spec, capabilities: has}
	if has.cgroups {
		if err = d.askForGroups(ctx); err == nil {
			p.groups, err = d.groups()
		}
		if err != nil {
			err = &box.PartError{Part: groupsPart, Err: err}
		}
	}
	var report driver.Report
	if err == nil {
		report, err = d.launch(ctx, p)
	}
	part, lacking := errors.AsType[*box.PartError](err)
	switch {
	case !lacking:
		return report, nil, err
	case box.Transient(part):
		return driver.Report{}, nil, driver.Shortage(part)
	}
	return driver.Report{}, part, nil
}

// capabilities are the parts of the isolation that a machine may lack.
type capabilities struct {
	cgroups, namespaces bool
	missing             []string // the reasons why it lacks them
}

// allCapabilities are those of a machine that lacks nothing.
var allCapabilities = capabilities{cgroups: true, namespaces: true}

// measure finds, once, which parts of the isolation this machine lacks: it makes boxes and destroys them, first with
// every part, then with those that remain.
func (d *Driver) measure(ctx context.Context) (capabilities, error) {
	select {
	case d.measuring <- struct{}{}:
		defer func() { <-d.measuring }()
	case <-ctx.Done():
		return capabilities{}, ctx.Err()
	}
	if has := d.measured.Load(); has != nil {
		return *has, nil
	}
	has := allCapabilities
	for has.namespaces {
		part, err := d.probe(ctx, has)
		if err != nil {
			return capabilities{}, err
		}
		if part == nil {
			break
		}
		if part.Part == box.GuestProgram {
			return capabilities{}, d.unavailable(part)
		}
		d.log.Warn("this machine lacks a part of the isolation; boxes that may be are made without", "part", part.Part, "reason", part.Err)
		has.missing = append(has.missing, strings.ReplaceAll(part.Error(), "\n", "; "))
		if has.cgroups && slices.Contains(partsOfGroups, part.Part) {
			has.cgroups = false
		} else {
			has.namespaces = false
		}
	}
	d.measured.CompareAndSwap(nil, &has) // a complete box that was made in the meantime takes precedence
	return *d.measured.Load(), nil
}

// probe tries to make a box, and throws it away.
func (d *Driver) probe(ctx context.Context, has capabilities) (lacks *box.PartError, err error) {
	spec := driver.Probe()
	spec.AllowUnisolated = true // a kernel without filters of system calls has the rest
	if err := d.check(&spec); err != nil {
		return nil, err
	}
	_, err = d.boxes.Create(ctx, spec.ID, func() (report driver.Report, err error) {
		if report, lacks, err = d.try(ctx, spec, has); lacks != nil {
			err = lacks
		}
		return report, err
	})
	if lacks != nil {
		return lacks, nil
	}
	if err != nil {
		return nil, err
	}
	return nil, d.boxes.Destroy(context.WithoutCancel(ctx), spec.ID)
}

// moreNamespaces is what lets users make namespaces, and have powers in them.
const moreNamespaces = "set the sysctl user.max_user_namespaces above 0 (and kernel.unprivileged_userns_clone to 1, " +
	"kernel.apparmor_restrict_unprivileged_userns to 0, where they exist), or run as root"

// nextSteps are the remedies for missing parts.
var nextSteps = map[string]string{
	"mount namespace": moreNamespaces,
	"user namespace":  moreNamespaces,
	"own /proc":       "run as root with CAP_SYS_ADMIN, or in a container whose /proc is not masked (docker: --security-opt systempaths=unconfined)",
	"system folders":  "use Linux 5.12 or later",
	groupsPart:        "run with CAP_SYS_ADMIN and a cgroup hierarchy that has memory and pids",
}

// groupsPart bounds memory and processes of a box.
const groupsPart = "cgroups for memory and pids"

// partsOfGroups fail where a box cannot be put into its cgroups.
var partsOfGroups = []string{groupsPart, "cgroup of commands"}

// userGroups is the way for an ordinary user to get cgroups.
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
		"this machine cannot isolate a sandbox: %s; %s, use another driver, or allow it with --allow-unisolated", strings.ReplaceAll(part.Error(), "\n", "; "), next)
}

// defaultDisk bounds what is written in a box when nothing else is asked for.
const (
	defaultDisk   = 1 << 30
	defaultInodes = 250_000
)

// rootBytes bounds the data that is written in a box. It counts as memory too.
func rootBytes(l driver.Limits) int64 {
	switch {
	case l.DiskBytes > 0:
		return l.DiskBytes
	case l.MemoryBytes > 0:
		return min(defaultDisk, l.MemoryBytes/2)
	}
	return defaultDisk
}

// guestBytes bounds the memory of the guest, with the files that are written through it.
func guestBytes(l driver.Limits) int64 {
	return bound.GuestMemory(bound.GuestOutput(l.MemoryBytes)) + rootBytes(l)
}

// processors returns how many whole processors a share of them needs.
func processors(l driver.Limits) int { return int((l.CPUMillis + 999) / 1000) }

// specification returns the guest's specification.
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
	s.Command.HideCgroups = hidesCgroups(g) && !forbidden("cgroup")
	root := userID
	s.TerminalGroup = -1
	if d.many {
		root, s.TerminalGroup = 0, ttyGroup
	}
	s.Trees = append(s.Trees, d.system.trees...)
	s.Trees = append(s.Trees, box.Tree{Target: guestTarget, Mount: box.Mount{Source: d.guest.Path}, File: true})
	s.Fixed = []string{filepath.Dir(guestTarget)}
	s.Links, s.Devices = d.system.links, d.system.devices
	s.Files = settings(accounts(d.many))
	s.Folders = d.system.folders(root, userID, p.spec.Workdir)
	return s
}

// hidesCgroups reports whether commands see the groups that they are in as the roots of all.
func hidesCgroups(g *group) bool { return g == nil || g.born == "" }

func unixSeconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

// report describes the box that was made; weaker is what the guest found missing.
func (d *Driver) report(p plan, g *group, weaker []string) driver.Report {
	r := driver.Report{GuestPath: guestTarget, Workdir: p.spec.Workdir, User: p.spec.User, Env: map[string]string{"PATH": d.system.path}}
	iso := &r.Isolation
	iso.Unisolated = len(p.missing) > 0
	iso.Weaker = append(append(iso.Weaker, p.missing...), weaker...)
	if p.namespaces {
		iso.Parts = append(iso.Parts, "user namespace", "mount namespace", "process namespace", "ipc namespace", "uts namespace", "network namespace", "private root")
	} else {
		files := filepath.Join(d.boxes.Folder(p.spec.ID), filesFolder)
		r.GuestPath, r.Workdir, r.User = d.guest.Path, filepath.Join(files, "workspace"), ""
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
	if p.namespaces && hidesCgroups(g) && forbidden("cgroup") {
		iso.Weaker = append(iso.Weaker, "cgroup namespace: none (user.max_cgroup_namespaces is 0)")
	}
	if !d.many && p.namespaces {
		iso.Weaker = append(iso.Weaker, "users: commands run as the one user that can be mapped without root, and so do the checks of scorers")
	}
	return r
}

// describe wraps an error of starting the guest.
func describe(err error) error { return fmt.Errorf("start the guest: %w", err) }
