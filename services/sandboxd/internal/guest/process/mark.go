package process

import (
	"bytes"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// A mark tells whose process a process is, whatever it did to its parents, its session and its environment: the timer slack of a
// thread, in nanoseconds, is inherited by all it starts and kept over exec, and programs leave it alone. Marks lie just above the
// kernel's default of 50 µs, so that no timer is noticeably later.
const (
	firstMark = 50_001
	lastMark  = 110_000
)

// marks gives out marks in turn, so that one is not used again soon, and never one that a running process holds.
type marks struct {
	last  uint64
	inUse map[uint64]bool
}

func (m *marks) take() uint64 {
	if m.inUse == nil {
		m.inUse = map[uint64]bool{}
		m.last = firstMark - 1
	}
	for range lastMark - firstMark + 1 {
		m.last++
		if m.last > lastMark {
			m.last = firstMark
		}
		if !m.inUse[m.last] {
			m.inUse[m.last] = true
			return m.last
		}
	}
	return 0
}

func (m *marks) free(mark uint64) { delete(m.inUse, mark) }

// setMark marks the calling thread, and so what it forks.
func setMark(mark uint64) {
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, unix.PR_SET_TIMERSLACK, uintptr(mark), 0)
}

// readMark gives the mark of a process, or 0 where it cannot be read (it takes CAP_SYS_NICE over the process).
func readMark(pid int) uint64 {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/timerslack_ns")
	if err != nil {
		return 0
	}
	n, err := strconv.ParseUint(string(bytes.TrimSpace(data)), 10, 64)
	if err != nil || n < firstMark || n > lastMark {
		return 0
	}
	return n
}
