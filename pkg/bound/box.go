package bound

// Each user's share of resources of which the machine has a fixed number. Beyond it, calls of programs fail.
const (
	// BoxOpenFiles is how many files all processes of a sandbox together may open in any case. A sandbox whose limits
	// pids and open_files allow more than that, and more than its share of the machine's, is not created.
	BoxOpenFiles = 65_536
	// BoxOpenFilesShare is the share of the machine's open files (fs.file-max) that a sandbox may have: one in so many.
	BoxOpenFilesShare = 16
	// BoxInotifyInstances bounds watchers of files (user.max_inotify_instances; beyond it EMFILE).
	BoxInotifyInstances = 64
	// BoxInotifyWatches bounds the watches of all these (user.max_inotify_watches; beyond it ENOSPC).
	BoxInotifyWatches = 8192
	// BoxPendingSignals bounds queued signals (RLIMIT_SIGPENDING; beyond it EAGAIN).
	BoxPendingSignals = 1024
	// BoxMessageQueueBytes bounds POSIX message queues (RLIMIT_MSGQUEUE; beyond it EMFILE), as the kernel does by
	// default.
	BoxMessageQueueBytes = 819_200
	// BoxLockedBytes bounds memory that is locked (RLIMIT_MEMLOCK; beyond it ENOMEM), as the kernel does by default.
	BoxLockedBytes = 8 << 20
	// BoxTerminals bounds pseudo-terminals (devpts; beyond it ENOSPC).
	BoxTerminals = 64
)
