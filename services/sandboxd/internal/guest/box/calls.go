package box

import "golang.org/x/sys/unix"

// What a command may call. The list is that of Docker's default profile (github.com/moby/profiles,
// seccomp/default.json, as of Docker 28) for a container without capabilities, with these changes:
//   - clone3 is allowed, since the guest starts commands by it. Its flags cannot be seen by a filter: that a box makes no
//     namespaces is ensured by its missing capabilities and by user.max_user_namespaces.
//   - io_setup and the calls around it, memfd_secret and name_to_handle_at are not allowed: they reach counters of the whole machine, hide
//     memory, or serve only calls that need capabilities.
//   - sync and syncfs succeed without effect: they would flush the disks of the machine.
//   - Limits, priorities and processors can be set only by a process for itself, and its mark cannot be set at all.
//   - personality may also turn off the randomization of addresses, which sanitizers of compilers do.

// allowedCalls are allowed whatever their arguments are, on every machine; machineCalls are further ones of this kind
// of machine.
var allowedCalls = []uint32{
	unix.SYS_ACCEPT, unix.SYS_ACCEPT4, unix.SYS_ADJTIMEX, unix.SYS_BIND, unix.SYS_BRK, unix.SYS_CACHESTAT, unix.SYS_CAPGET, unix.SYS_CAPSET,
	unix.SYS_CHDIR, unix.SYS_CLOCK_GETRES, unix.SYS_CLOCK_GETTIME, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_CLONE3, unix.SYS_CLOSE, unix.SYS_CLOSE_RANGE,
	unix.SYS_CONNECT, unix.SYS_COPY_FILE_RANGE, unix.SYS_DUP, unix.SYS_DUP3, unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT,
	unix.SYS_EPOLL_PWAIT2, unix.SYS_EVENTFD2, unix.SYS_EXECVE, unix.SYS_EXECVEAT, unix.SYS_EXIT, unix.SYS_EXIT_GROUP, unix.SYS_FACCESSAT,
	unix.SYS_FACCESSAT2, unix.SYS_FADVISE64, unix.SYS_FALLOCATE, unix.SYS_FANOTIFY_MARK, unix.SYS_FCHDIR, unix.SYS_FCHMOD, unix.SYS_FCHMODAT,
	unix.SYS_FCHMODAT2, unix.SYS_FCHOWN, unix.SYS_FCHOWNAT, unix.SYS_FCNTL, unix.SYS_FDATASYNC, unix.SYS_FGETXATTR, unix.SYS_FLISTXATTR,
	unix.SYS_FLOCK, unix.SYS_FREMOVEXATTR, unix.SYS_FSETXATTR, unix.SYS_FSTAT, unix.SYS_FSTATFS, unix.SYS_FSYNC, unix.SYS_FTRUNCATE,
	unix.SYS_FUTEX, unix.SYS_FUTEX_REQUEUE, unix.SYS_FUTEX_WAIT, unix.SYS_FUTEX_WAITV, unix.SYS_FUTEX_WAKE, unix.SYS_GETCPU, unix.SYS_GETCWD,
	unix.SYS_GETDENTS64, unix.SYS_GETEGID, unix.SYS_GETEUID, unix.SYS_GETGID, unix.SYS_GETGROUPS, unix.SYS_GETITIMER, unix.SYS_GETPEERNAME,
	unix.SYS_GETPGID, unix.SYS_GETPID, unix.SYS_GETPPID, unix.SYS_GETPRIORITY, unix.SYS_GETRANDOM, unix.SYS_GETRESGID, unix.SYS_GETRESUID,
	unix.SYS_GETRLIMIT, unix.SYS_GETRUSAGE, unix.SYS_GETSID, unix.SYS_GETSOCKNAME, unix.SYS_GETSOCKOPT, unix.SYS_GETTID, unix.SYS_GETTIMEOFDAY,
	unix.SYS_GETUID, unix.SYS_GETXATTR, unix.SYS_GET_ROBUST_LIST, unix.SYS_INOTIFY_ADD_WATCH, unix.SYS_INOTIFY_INIT1, unix.SYS_INOTIFY_RM_WATCH,
	unix.SYS_IOCTL, unix.SYS_IOPRIO_GET, unix.SYS_KILL, unix.SYS_LANDLOCK_ADD_RULE, unix.SYS_LANDLOCK_CREATE_RULESET,
	unix.SYS_LANDLOCK_RESTRICT_SELF, unix.SYS_LGETXATTR, unix.SYS_LINKAT, unix.SYS_LISTEN, unix.SYS_LISTXATTR, unix.SYS_LLISTXATTR,
	unix.SYS_LREMOVEXATTR, unix.SYS_LSEEK, unix.SYS_LSETXATTR, unix.SYS_MADVISE, unix.SYS_MAP_SHADOW_STACK, unix.SYS_MEMBARRIER,
	unix.SYS_MEMFD_CREATE, unix.SYS_MINCORE, unix.SYS_MKDIRAT, unix.SYS_MKNODAT, unix.SYS_MLOCK, unix.SYS_MLOCK2, unix.SYS_MLOCKALL, unix.SYS_MMAP,
	unix.SYS_MPROTECT, unix.SYS_MQ_GETSETATTR, unix.SYS_MQ_NOTIFY, unix.SYS_MQ_OPEN, unix.SYS_MQ_TIMEDRECEIVE, unix.SYS_MQ_TIMEDSEND,
	unix.SYS_MQ_UNLINK, unix.SYS_MREMAP, unix.SYS_MSEAL, unix.SYS_MSGCTL, unix.SYS_MSGGET, unix.SYS_MSGRCV, unix.SYS_MSGSND, unix.SYS_MSYNC,
	unix.SYS_MUNLOCK, unix.SYS_MUNLOCKALL, unix.SYS_MUNMAP, unix.SYS_NANOSLEEP, unix.SYS_NEWFSTATAT, unix.SYS_OPENAT, unix.SYS_OPENAT2,
	unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_SEND_SIGNAL, unix.SYS_PIPE2, unix.SYS_PKEY_ALLOC, unix.SYS_PKEY_FREE, unix.SYS_PKEY_MPROTECT,
	unix.SYS_PPOLL, unix.SYS_PRCTL, unix.SYS_PREAD64, unix.SYS_PREADV, unix.SYS_PREADV2, unix.SYS_PROCESS_MRELEASE, unix.SYS_PROCESS_VM_READV,
	unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PSELECT6, unix.SYS_PTRACE, unix.SYS_PWRITE64, unix.SYS_PWRITEV, unix.SYS_PWRITEV2, unix.SYS_READ,
	unix.SYS_READAHEAD, unix.SYS_READLINKAT, unix.SYS_READV, unix.SYS_RECVFROM, unix.SYS_RECVMMSG, unix.SYS_RECVMSG, unix.SYS_REMAP_FILE_PAGES,
	unix.SYS_REMOVEXATTR, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_RESTART_SYSCALL, unix.SYS_RSEQ, unix.SYS_RT_SIGACTION,
	unix.SYS_RT_SIGPENDING, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGQUEUEINFO, unix.SYS_RT_SIGRETURN, unix.SYS_RT_SIGSUSPEND,
	unix.SYS_RT_SIGTIMEDWAIT, unix.SYS_RT_TGSIGQUEUEINFO, unix.SYS_SCHED_GETAFFINITY, unix.SYS_SCHED_GETATTR, unix.SYS_SCHED_GETPARAM,
	unix.SYS_SCHED_GETSCHEDULER, unix.SYS_SCHED_GET_PRIORITY_MAX, unix.SYS_SCHED_GET_PRIORITY_MIN, unix.SYS_SCHED_RR_GET_INTERVAL,
	unix.SYS_SCHED_YIELD, unix.SYS_SECCOMP, unix.SYS_SEMCTL, unix.SYS_SEMGET, unix.SYS_SEMOP, unix.SYS_SEMTIMEDOP, unix.SYS_SENDFILE,
	unix.SYS_SENDMMSG, unix.SYS_SENDMSG, unix.SYS_SENDTO, unix.SYS_SETFSGID, unix.SYS_SETFSUID, unix.SYS_SETGID, unix.SYS_SETGROUPS,
	unix.SYS_SETITIMER, unix.SYS_SETPGID, unix.SYS_SETREGID, unix.SYS_SETRESGID, unix.SYS_SETRESUID, unix.SYS_SETREUID, unix.SYS_SETSID,
	unix.SYS_SETUID, unix.SYS_SETXATTR, unix.SYS_SET_ROBUST_LIST, unix.SYS_SET_TID_ADDRESS, unix.SYS_SHMAT, unix.SYS_SHMCTL,
	unix.SYS_SHMDT, unix.SYS_SHMGET, unix.SYS_SHUTDOWN, unix.SYS_SIGALTSTACK, unix.SYS_SIGNALFD4, unix.SYS_SOCKETPAIR, unix.SYS_SPLICE,
	unix.SYS_STATFS, unix.SYS_STATX, unix.SYS_SYMLINKAT, unix.SYS_SYNC_FILE_RANGE, unix.SYS_SYSINFO, unix.SYS_TEE, unix.SYS_TGKILL,
	unix.SYS_TIMERFD_CREATE, unix.SYS_TIMERFD_GETTIME, unix.SYS_TIMERFD_SETTIME, unix.SYS_TIMER_CREATE, unix.SYS_TIMER_DELETE,
	unix.SYS_TIMER_GETOVERRUN, unix.SYS_TIMER_GETTIME, unix.SYS_TIMER_SETTIME, unix.SYS_TIMES, unix.SYS_TKILL, unix.SYS_TRUNCATE, unix.SYS_UMASK,
	unix.SYS_UNAME, unix.SYS_UNLINKAT, unix.SYS_UTIMENSAT, unix.SYS_VMSPLICE, unix.SYS_WAIT4, unix.SYS_WAITID, unix.SYS_WRITE, unix.SYS_WRITEV,
}

// watchCalls begin to watch files.
var watchCalls = append([]uint32{unix.SYS_INOTIFY_INIT1}, machineWatchCalls...)

// refusedCalls exist and are refused with EPERM, as where a capability is missing. All calls that are in no list do not
// exist (ENOSYS), so that programs fall back to older ones.
var refusedCalls = []uint32{
	unix.SYS_ACCT, unix.SYS_ADD_KEY, unix.SYS_BPF, unix.SYS_CHROOT, unix.SYS_CLOCK_ADJTIME, unix.SYS_CLOCK_SETTIME, unix.SYS_DELETE_MODULE,
	unix.SYS_FANOTIFY_INIT, unix.SYS_FINIT_MODULE, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSOPEN, unix.SYS_FSPICK, unix.SYS_INIT_MODULE,
	unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER, unix.SYS_IO_URING_SETUP, unix.SYS_KCMP, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_KEXEC_LOAD,
	unix.SYS_KEYCTL, unix.SYS_LOOKUP_DCOOKIE, unix.SYS_MOUNT, unix.SYS_MOUNT_SETATTR, unix.SYS_MOVE_MOUNT, unix.SYS_NAME_TO_HANDLE_AT,
	unix.SYS_NFSSERVCTL, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_OPEN_TREE, unix.SYS_PERF_EVENT_OPEN, unix.SYS_PIDFD_GETFD, unix.SYS_PIVOT_ROOT,
	unix.SYS_PROCESS_MADVISE, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_REBOOT, unix.SYS_REQUEST_KEY, unix.SYS_SETDOMAINNAME,
	unix.SYS_SETHOSTNAME, unix.SYS_SETNS, unix.SYS_SETTIMEOFDAY, unix.SYS_SWAPOFF, unix.SYS_SWAPON, unix.SYS_SYSLOG, unix.SYS_UMOUNT2,
	unix.SYS_UNSHARE, unix.SYS_USERFAULTFD, unix.SYS_VHANGUP,
}

// ineffectiveCalls succeed and do nothing.
var ineffectiveCalls = []uint32{unix.SYS_SYNC, unix.SYS_SYNCFS}

// allowedFamilies are the socket families that a command may open, beside netlink for routes, which libraries of C read
// addresses from. Others reach past the network namespace (vsock) or into the kernel; other netlink sockets queue to
// each other memory that no cgroup counts.
var allowedFamilies = []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6}

// refusedOptions are options of sockets that load programs into the kernel, for which the whole machine has a bounded
// memory (net.core.bpf_jit_limit), and those that queue each sent packet to its sender, in memory that no cgroup
// counts.
var refusedOptions = []uint32{
	unix.SO_ATTACH_FILTER, unix.SO_ATTACH_BPF, unix.SO_ATTACH_REUSEPORT_CBPF, unix.SO_ATTACH_REUSEPORT_EBPF, unix.SO_TIMESTAMPING, unix.SO_TIMESTAMPING_NEW,
}

// allowedPersonalities are plain Linux, with and without UNAME26 and ADDR_NO_RANDOMIZE, 32-bit Linux, and the question
// which it is.
var allowedPersonalities = []uint32{0, 0x8, 0x20000, 0x20008, 0x40000, 0xffffffff}

// namespaceFlags are the flags of clone that make namespaces.
const namespaceFlags = unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWCGROUP

// MarkResource is the limit whose soft value marks the processes of a command (package process); no kernel since Linux
// 2.4 enforces it.
const MarkResource = 10 // RLIMIT_LOCKS

// argumentRules decide calls by their arguments. Of each, the kernel looks at the low word alone, unless it is an
// address.
var argumentRules = map[uint32][]unix.SockFilter{
	unix.SYS_SOCKET: append([]unix.SockFilter{
		loadArgument(0, low),
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 0, Jf: 4, K: unix.AF_NETLINK},
		loadArgument(2, low), when(unix.BPF_JEQ, unix.NETLINK_ROUTE), answer(allow), answer(refuse),
	}, onlyIf(0, allowedFamilies)...),
	unix.SYS_SETSOCKOPT: append([]unix.SockFilter{
		loadArgument(1, low),
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 1, Jf: 0, K: unix.SOL_SOCKET},
		answer(allow),
	}, unless(2, refusedOptions)...),
	unix.SYS_PERSONALITY: onlyIf(0, allowedPersonalities),
	unix.SYS_CLONE: {
		loadArgument(0, low), {Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, Jt: 0, Jf: 1, K: namespaceFlags}, answer(refuse), answer(allow),
	},
	unix.SYS_SETRLIMIT: {loadArgument(0, low), when(unix.BPF_JEQ, MarkResource), answer(refuse), answer(allow)},
	// Of any process limits can be read; of itself a process may set them.
	unix.SYS_PRLIMIT64: {
		loadArgument(2, low),
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 0, Jf: 3},
		loadArgument(2, high), when(unix.BPF_JEQ, 0), answer(allow),
		loadArgument(1, low), when(unix.BPF_JEQ, MarkResource), answer(refuse),
		loadArgument(0, low), when(unix.BPF_JEQ, 0), answer(allow),
		answer(refuse),
	},
	unix.SYS_SCHED_SETAFFINITY:  onlyIf(0, itself),
	unix.SYS_SCHED_SETATTR:      onlyIf(0, itself),
	unix.SYS_SCHED_SETPARAM:     onlyIf(0, itself),
	unix.SYS_SCHED_SETSCHEDULER: onlyIf(0, itself),
	unix.SYS_SETPRIORITY:        ofItselfOrItsGroup(unix.PRIO_PROCESS, unix.PRIO_PGRP),
	unix.SYS_IOPRIO_SET:         ofItselfOrItsGroup(1, 2), // IOPRIO_WHO_PROCESS, IOPRIO_WHO_PGRP
}

// itself is how a process names itself. Its id, and those of its threads, would do too, but a filter cannot tell them
// from others'.
var itself = []uint32{0}

// onlyIf allows a call whose argument n is one of values.
func onlyIf(n uint32, values []uint32) []unix.SockFilter {
	rule := []unix.SockFilter{loadArgument(n, low)}
	for _, v := range values {
		rule = append(rule, when(unix.BPF_JEQ, v), answer(allow))
	}
	return append(rule, answer(refuse))
}

// unless refuses a call whose argument n is one of values.
func unless(n uint32, values []uint32) []unix.SockFilter {
	rule := []unix.SockFilter{loadArgument(n, low)}
	for _, v := range values {
		rule = append(rule, when(unix.BPF_JEQ, v), answer(refuse))
	}
	return append(rule, answer(allow))
}

// ofItselfOrItsGroup allows a call whose first argument is one of two kinds and whose second is 0.
func ofItselfOrItsGroup(process, group uint32) []unix.SockFilter {
	return []unix.SockFilter{
		loadArgument(1, low),
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 1, Jf: 0},
		answer(refuse),
		loadArgument(0, low), when(unix.BPF_JEQ, process), answer(allow), when(unix.BPF_JEQ, group), answer(allow),
		answer(refuse),
	}
}
