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
	p := plan{spec: spec, namespaces: true, groups: d.cgroups != nil}
	if !p.groups && d.root {
		missing := &box.PartError{Part: "cgroups for memory and pids", Err: d.noGroup}
		if !spec.AllowUnisolated {
			return driver.Report{}, unavailable(missing)
		}
		p.missing = append(p.missing, missing.Error())
	}
	report, err := d.launch(ctx, p)
	part, missing := errors.AsType[*box.PartError](err)
	if !missing {
		return report, err
	}
	if !spec.AllowUnisolated {
		return driver.Report{}, unavailable(part)
	}
	d.log.Warn("a part of the isolation is missing; making the box without", "box", spec.ID, "part", part.Part, "reason", part.Err)
	if err := d.boxes.Clear(ctx, spec.ID); err != nil {
		return driver.Report{}, err
	}
	p.namespaces = false
	p.missing = append(p.missing, part.Error())
	return d.launch(ctx, p)
}

// moreNamespaces is what lets users make namespaces, and have powers in them.
const moreNamespaces = "set the sysctl user.max_user_namespaces above 0 (and kernel.unprivileged_userns_clone to 1, " +
	"kernel.apparmor_restrict_unprivileged_userns to 0, where they exist), or run as root"

// nextSteps tells for a missing part what would help.
var nextSteps = map[string]string{
	"mount namespace":             moreNamespaces,
	"user namespace":              moreNamespaces,
	"own /proc":                   "run as root with CAP_SYS_ADMIN, or in a container whose /proc is not masked (docker: --security-opt systempaths=unconfined)",
	"system folders":              "use Linux 5.12 or later",
	"cgroups for memory and pids": "run with CAP_SYS_ADMIN and a cgroup hierarchy that has memory and pids",
}

func unavailable(part *box.PartError) error {
	next := nextSteps[part.Part]
	if next == "" {
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

// specification is what the guest is told.
func (d *Driver) specification(p plan, g *group) box.Spec {
	l := p.spec.Limits
	s := box.Spec{
		Isolated: p.namespaces, Hostname: hostname, Inodes: defaultInodes, RootBytes: l.DiskBytes,
		Guest:   box.Guest{DeadlineUnix: unixSeconds(p.spec.Deadline), OrphanSeconds: int64(p.spec.OrphanTimeout / time.Second)},
		Command: box.Command{OOMScoreAdj: 1000},
		Limits:  []box.Limit{{Resource: unix.RLIMIT_CORE, Value: 0}},
	}
	if s.RootBytes == 0 {
		s.RootBytes = defaultDisk
		if l.MemoryBytes > 0 {
			s.RootBytes = min(s.RootBytes, l.MemoryBytes/2) // it is memory too
		}
	}
	for _, limit := range []box.Limit{{Resource: unix.RLIMIT_NOFILE, Value: uint64(l.OpenFiles)}, {Resource: unix.RLIMIT_FSIZE, Value: uint64(l.FileSizeBytes)}} {
		var now unix.Rlimit
		if limit.Value > 0 && unix.Getrlimit(limit.Resource, &now) == nil {
			limit.Value = min(limit.Value, now.Max)
			s.Limits = append(s.Limits, limit)
		}
	}
	if g == nil {
		s.Command.Limits = []box.Limit{{Resource: unix.RLIMIT_DATA, Value: uint64(l.MemoryBytes)}, {Resource: unix.RLIMIT_NPROC, Value: uint64(l.PIDs)}}
	}
	if !p.namespaces {
		return s
	}
	root := userID
	s.TerminalGroup = -1
	if d.many {
		root, s.TerminalGroup = 0, ttyGroup
	}
	s.Trees = append(s.Trees, d.system.trees...)
	s.Trees = append(s.Trees, box.Tree{Target: guestTarget, Source: d.guest, File: true})
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
			iso.Weaker = append(iso.Weaker, "cpu: unbounded, since there is no cgroup")
		}
	}
	if !d.many && p.namespaces {
		iso.Weaker = append(iso.Weaker, "users: commands run as the one user that can be mapped without root")
	}
	return r
}

// describe is for errors of starting the guest.
func describe(err error) error { return fmt.Errorf("start the guest: %w", err) }
