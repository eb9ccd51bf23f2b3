// Package box turns its process into the first process of a box: it builds a private root, drops the privileges that
// the program does not need, and prepares the thread that starts commands. The launcher gives the process its
// namespaces, and all settings in a Spec; this package decides no policy.
package box

import (
	"encoding/json"
	"fmt"
	"io"
)

// Spec is the launcher's specification for the first process of a box.
type Spec struct {
	// Isolated reports that the process has namespaces of its own and has to build a private root. Without it only
	// Limits apply.
	Isolated bool `json:"isolated"`
	// Contained reports that the process is the first of a container, which an engine has isolated already.
	Contained bool
	Hostname  string
	// RootBytes bounds the private root with all that is written to it.
	RootBytes int64
	// Inodes bounds the number of files in the private root.
	Inodes int64
	// Trees are shown read-only.
	Trees []Tree
	// Links are symbolic links of the root: path to target.
	Links map[string]string
	// Files are small files of the root: path to content.
	Files map[string]string
	// Folders are writable folders of the root.
	Folders []Folder
	// Fixed are folders of the root that no user of the box may change or move.
	Fixed []string
	// Devices are device nodes of the host that are shown, such as `null`.
	Devices []string
	// ProcFD is a socket through which the launcher hands over a /proc of the box (HandProc); 0: the first process
	// mounts its own.
	ProcFD int
	// TerminalGroup owns terminals; below 0 where it is not mapped.
	TerminalGroup int
	// Limits are set on this process and inherited by all others.
	Limits []Limit
	// Command is how commands are bounded.
	Command Command
	// Guest is how the guest runs.
	Guest Guest
}

// Tree is a file or folder of the host, with all below it, that is shown read-only.
type Tree struct {
	Target string
	Mount
	// File reports that it is a file.
	File bool
}

// Mount is a file or folder of the host as a detached mount: no path leads from it to its surroundings.
type Mount struct {
	// Source is opened in the box's first process when FD is 0.
	Source string
	// FD is the detached mount, made by the launcher where that has the right to.
	FD int
}

// Folder is a writable folder of the private root.
type Folder struct {
	Path     string
	Mode     uint32
	UID, GID int
}

// Limit is a resource limit.
type Limit struct {
	Resource int
	Value    uint64
}

// Command is how commands are bounded, in addition to the bounds of the whole box.
type Command struct {
	// TasksFDs are open `tasks` files of cgroups v1 for the threads that start commands.
	TasksFDs []int
	// Cgroup is a folder of the cgroup v2 hierarchy into which commands are born; the zero value: none.
	Cgroup Mount
	// HideCgroups makes the groups that commands are in appear as the roots of the hierarchies. It cannot be used for
	// births into a group of version 2: the kernel lets no process start another in a group that it does not see.
	HideCgroups bool
	// Limits are set on commands alone, each of which inherits them to what it starts; entries of value 0 are left as
	// they are.
	Limits []Limit
	// Processors is how many processors commands run on where no cgroup bounds their share; 0: all.
	Processors int
	// NoWatches forbids commands to watch files (inotify: EMFILE), if their watches would count with the watches of the
	// machine's users.
	NoWatches bool
	// MayLackFilter lets commands run without the filter of system calls where the kernel has no such filters.
	MayLackFilter bool
	// OOMScoreAdj raises the chance that the kernel takes a command and not the guest; 0 leaves it.
	OOMScoreAdj int
}

// Guest is how the guest runs.
type Guest struct {
	// Control is the folder in which the host listens.
	Control Mount
	// OOMFD is a cgroup file that counts kills for memory (`memory.events` or `memory.oom_control`); 0: none.
	OOMFD int
	// ChecksDir is an absolute path in the box: the folder below which checks work. The guest makes it.
	ChecksDir string
	// Workdir is where commands start, and User is the user that they run as. If that is root, the whole box belongs to
	// the agent, so checks may change it.
	Workdir, User string
	// KeptBytes bounds the stored output of all commands; 0: bound.GuestOutputBytes.
	KeptBytes int64
	// DeadlineUnix is when the guest ends by itself, in seconds since 1970; 0: never.
	DeadlineUnix int64
	// OrphanSeconds is how long the guest lives without a host; 0: for ever.
	OrphanSeconds int64
}

// Outcome is what the first process answers to its Spec, once.
type Outcome struct {
	// Failed names the part that could not be made; empty when the box is ready.
	Failed string `json:",omitempty"`
	// Reason is the system's reason.
	Reason string `json:",omitempty"`
	// Transient reports that the reason is transient (see [Transient]).
	Transient bool `json:",omitempty"`
	// Weaker are parts that are missing but not needed.
	Weaker []string `json:",omitempty"`
}

// GuestProgram is the part that is the program itself, without which there is no box at all.
const GuestProgram = "guest program"

// PartError is the error of a part of the isolation that could not be made.
type PartError struct {
	Part string
	Err  error
}

func (e *PartError) Error() string { return e.Part + ": " + e.Err.Error() }

// Unwrap gives the system's reason.
func (e *PartError) Unwrap() error { return e.Err }

// ReadSpec reads the launcher's Spec. An end without one means that the launcher died; then there must be no box.
func ReadSpec(r io.Reader) (Spec, error) {
	var spec Spec
	if err := json.NewDecoder(r).Decode(&spec); err != nil {
		return spec, fmt.Errorf("read the box's specification: %w", err)
	}
	return spec, nil
}
