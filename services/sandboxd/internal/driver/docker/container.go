package docker

import (
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"

	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest"
)

// keptCapabilities are what the guest needs to start commands as any user of the image, to end them, to read and write
// files for them, and to take all capabilities away from them. Commands have none. Every engine can give these: they
// are among its defaults.
var keptCapabilities = []string{"CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETPCAP", "SETUID"}

const (
	// guestPIDs are the processes and threads of the guest itself, in addition to those that the tenant may have.
	guestPIDs = 32
	// outOfMemoryScore makes the kernel kill sandboxes before the platform when the machine runs out of memory. It is
	// above the score of an engine without CAP_SYS_RESOURCE, and below that of commands, which are killed before the
	// guest.
	outOfMemoryScore = 500
	// noResolver is an address where nothing answers, in place of the resolvers of this machine.
	noResolver = "127.0.0.1"
	hostname   = "sandbox"
)

// readonlyPaths are the paths that an engine makes read-only by default (Docker's default; moby, oci/defaults.go), and
// further paths through which a file can make the kernel do work.
var readonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger", "/proc/pressure"}

// configuration returns the container of a box. The image's own entry point is not started.
func (d *Driver) configuration(spec driver.Spec, image settings) *container.Config {
	labels := map[string]string{labelOwner: spec.Owner, labelBox: spec.ID}
	if !spec.Deadline.IsZero() {
		labels[labelDeadline] = spec.Deadline.UTC().Format(time.RFC3339)
	}
	for key, value := range spec.Labels {
		if _, ours := labels[key]; !ours {
			labels[key] = value
		}
	}
	return &container.Config{
		Image: image.name, Hostname: hostname, Labels: labels,
		Entrypoint: []string{guest.ContainerProgram}, Cmd: []string{"container"},
		User: "0:0", WorkingDir: "/", // in place of the image's settings, which apply to commands
		Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
	}
}

// bounds returns the limits of a container.
func (d *Driver) bounds(spec driver.Spec, can facts) *container.HostConfig {
	l := spec.Limits
	h := &container.HostConfig{
		NetworkMode: "none", IpcMode: "private", DNS: []string{noResolver}, DNSSearch: []string{"."},
		CapDrop: []string{"ALL"}, CapAdd: keptCapabilities, SecurityOpt: []string{"no-new-privileges"},
		LogConfig:     container.LogConfig{Type: "none"}, // or output could fill the disk
		RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled},
		AutoRemove:    true, // a box that ends without a host leaves nothing in the engine
		Init:          new(false),
		Runtime:       d.cfg.Runtime, OomScoreAdj: outOfMemoryScore,
		ReadonlyPaths: readonlyPaths,
		Mounts: []mount.Mount{
			{Type: mount.TypeBind, Source: d.folder, Target: path.Dir(guest.ContainerProgram), ReadOnly: true},
			{Type: mount.TypeBind, Source: d.guest.Path, Target: guest.ContainerProgram, ReadOnly: true},
			{Type: mount.TypeBind, Source: d.boxes.Control(spec.ID), Target: guest.ContainerFolder, ReadOnly: true},
		},
	}
	if d.boundsTerminals() {
		h.Mounts = append(h.Mounts, terminals(can))
	}
	h.Memory, h.MemorySwap = l.MemoryBytes, l.MemoryBytes // the same: no swap
	if !can.swap {
		h.MemorySwap = 0
	}
	if l.PIDs > 0 {
		h.PidsLimit = new(l.PIDs + guestPIDs)
	}
	if can.cpu {
		h.NanoCPUs = min(l.CPUMillis, can.processors*1000) * 1e6 // the engine rejects more than the machine has
	}
	if l.DiskBytes > 0 && can.quota {
		h.StorageOpt = map[string]string{"size": strconv.FormatInt(l.DiskBytes, 10)}
	}
	return h
}

// boundsTerminals reports whether the driver gives containers terminals of their own. A runtime that the operator names
// may be a kernel of its own, with its own terminals.
func (d *Driver) boundsTerminals() bool { return d.cfg.Runtime == "" }

// terminals returns a mount with a bounded number of terminals, in place of the engine's mount, which is bounded only
// for the whole machine.
func terminals(can facts) mount.Mount {
	options := fmt.Sprintf("nosuid,noexec,mode=0620,ptmxmode=0666,max=%d", bound.BoxTerminals)
	if !can.remapped {
		options += ",gid=5" // as engines set it
	}
	return mount.Mount{Type: mount.TypeVolume, Target: "/dev/pts", VolumeOptions: &mount.VolumeOptions{
		NoCopy:       true,
		DriverConfig: &mount.Driver{Name: "local", Options: map[string]string{"type": "devpts", "device": "devpts", "o": options}},
	}}
}

// disk is the way in which the data that a container writes is bounded.
type disk int

const (
	diskUnmeasured    disk = iota // removed files that are open are not seen
	diskBytesMeasured             // every some seconds; how many files there are is not seen
	diskMeasured                  // every some seconds, bytes and files
	diskQuota
)

// report describes the isolation of a box of that specification.
func (d *Driver) report(spec driver.Spec, image settings, can facts, writes disk) driver.Report {
	r := driver.Report{GuestPath: guest.ContainerProgram, Workdir: spec.Workdir, User: spec.User, Env: image.environment()}
	iso := &r.Isolation
	iso.Parts = append([]string{
		"mount namespace", "process namespace", "ipc namespace", "uts namespace", "network namespace", "image", "no capabilities", "no_new_privs",
	}, can.others...)
	bounded := func(asked, can bool, part, weaker string) {
		switch {
		case asked && can:
			iso.Parts = append(iso.Parts, part)
		case asked:
			iso.Weaker = append(iso.Weaker, weaker)
		}
	}
	bounded(true, can.seccomp, "seccomp", "system calls: the engine filters none; the guest refuses some to commands")
	bounded(spec.Limits.MemoryBytes > 0, can.memory, "cgroup memory", "memory: unbounded, since the engine cannot bound it")
	bounded(spec.Limits.MemoryBytes > 0 && !can.swap, false, "", "memory: without a bound of swap")
	bounded(spec.Limits.MemoryBytes > 0 && can.apart, false, "", "memory: buffers of sockets are not counted, as cgroups of version 1 count them apart")
	bounded(spec.Limits.PIDs > 0, can.pids, "cgroup pids", "pids: unbounded, since the engine cannot bound them")
	bounded(spec.Limits.CPUMillis > 0, can.cpu, "cgroup cpu", "cpu: unbounded, since the engine cannot bound it")
	bounded(true, writes == diskQuota, "disk quota", fmt.Sprintf(
		"disk: unbounded by the engine, whose storage (%s) has no quotas here; the sandbox is ended some seconds after it has written over %d MiB", can.storage, spec.Limits.DiskBytes>>20))
	bounded(writes == diskUnmeasured, false, "", "disk: removed files that are open are not measured, which takes root in the engine's process namespace")
	bounded(writes != diskMeasured, false, "", "disk: the number of files, of which a disk has room for so many, is neither bounded nor measured")
	bounded(len(image.volumes) > 0, false, "", "disk: what is written to volumes of the image ("+strings.Join(image.volumes, ", ")+") is neither bounded nor measured")
	bounded(true, d.boundsTerminals(), "terminals", "terminals: bounded as the runtime "+d.cfg.Runtime+" does it")
	bounded(spec.AllowUnisolated, false, "", "inotify: instances and watches are counted with those of the machine's users")
	return r
}

// needed names a required part of the isolation that this engine lacks; empty if it lacks none.
func needed(spec driver.Spec, can facts) string {
	switch {
	case spec.Limits.MemoryBytes > 0 && !can.memory:
		return "cgroup memory"
	case spec.Limits.PIDs > 0 && !can.pids:
		return "cgroup pids"
	}
	return ""
}
