package box

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data, and answers.
const (
	offsetCall = 0
	offsetArch = 4
	offsetArgs = 16

	allow   = unix.SECCOMP_RET_ALLOW
	succeed = unix.SECCOMP_RET_ERRNO
	noMore  = unix.SECCOMP_RET_ERRNO | uint32(unix.EMFILE)
	refuse  = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	absent  = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
)

// word is half of an argument, by its offset on the little-endian machines that are built for.
type word uint32

const (
	low  word = 0
	high word = 4
)

// filterSystemCalls puts the filter on the calling thread and what it forks. no_new_privs must be set.
func filterSystemCalls(c Command) error {
	program := filter(c)
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0)
	runtime.KeepAlive(program)
	if err != nil {
		return fmt.Errorf("seccomp: %w", err)
	}
	return nil
}

// filter builds the program: another machine's calls do not exist, listed calls are refused, allowed, or decided by
// their arguments, and all others do not exist. The kernel runs it once for each call that is decided by its number,
// and remembers (Linux 5.11).
func filter(c Command) []unix.SockFilter {
	rules := maps.Clone(argumentRules)
	if c.Processors > 0 {
		rules[unix.SYS_SCHED_SETAFFINITY] = []unix.SockFilter{answer(refuse)}
	}
	if c.NoWatches {
		for _, call := range watchCalls {
			rules[call] = []unix.SockFilter{answer(noMore)}
		}
	}
	program := []unix.SockFilter{
		load(offsetArch),
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 1, Jf: 0, K: auditArch},
		answer(absent),
		load(offsetCall),
		when(unix.BPF_JGE, firstForeignCall), answer(absent),
	}
	for _, call := range slices.Sorted(maps.Keys(rules)) {
		rule := rules[call]
		program = append(program, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 0, Jf: uint8(len(rule)), K: call})
		program = append(program, rule...)
	}
	for _, r := range ranges(slices.Concat(allowedCalls, machineCalls)) {
		program = append(program,
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, Jt: 0, Jf: 2, K: r.first},
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K, Jt: 1, Jf: 0, K: r.last}, answer(allow))
	}
	for _, call := range ineffectiveCalls {
		program = append(program, when(unix.BPF_JEQ, call), answer(succeed))
	}
	for _, call := range refusedCalls {
		program = append(program, when(unix.BPF_JEQ, call), answer(refuse))
	}
	return append(program, answer(absent))
}

// numbers are consecutive system calls.
type numbers struct{ first, last uint32 }

// ranges joins numbers that follow each other.
func ranges(calls []uint32) []numbers {
	var out []numbers
	for _, call := range slices.Compact(slices.Sorted(slices.Values(calls))) {
		if n := len(out); n > 0 && out[n-1].last+1 == call {
			out[n-1].last = call
		} else {
			out = append(out, numbers{call, call})
		}
	}
	return out
}

func load(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

func loadArgument(n uint32, half word) unix.SockFilter { return load(offsetArgs + 8*n + uint32(half)) }

func answer(a uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: a} }

// when skips the next instruction unless the loaded word compares as asked.
func when(op uint16, k uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | op | unix.BPF_K, Jt: 0, Jf: 1, K: k}
}
