package process

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A mark tells whose process a process is, whatever it did to its parents, its session and its environment: a setting that is
// inherited by all that it starts and kept over exec, that programs leave alone and that this program can read.
//
// With CAP_SYS_NICE that is the timer slack of a thread, in nanoseconds: marks lie just above the kernel's default of 50 µs, so that
// no timer is noticeably later. Without it, in containers of an engine, it is which memory would go into a core dump, of which a
// sandbox makes none; there are fewer of those.
const (
	firstSlack = 50_001
	lastSlack  = 110_000

	firstFilter   = 1
	lastFilter    = 0x1ff
	defaultFilter = 0x33 // of a process that nobody marked
)

// marks gives out marks in turn, so that one is not used again soon, and never one that a running process holds.
type marks struct {
	first, last uint64
	set         func(mark uint64)
	read        func(pid int) uint64

	latest uint64
	inUse  map[uint64]bool
}

// newMarks finds out which marks this program can read.
func newMarks() (*marks, error) {
	m := &marks{first: firstSlack, last: lastSlack, set: setSlack, read: readSlack, inUse: map[uint64]bool{}}
	if !mayReadSlack() {
		own, err := os.OpenFile("/proc/self/coredump_filter", os.O_WRONLY, 0)
		if err != nil {
			return nil, err
		}
		m.first, m.last, m.set, m.read = firstFilter, lastFilter, func(mark uint64) { setFilter(own, mark) }, readFilter
		m.inUse[defaultFilter] = true
	}
	m.latest = m.last
	return m, nil
}

// take gives a mark, or 0 when all are in use: such a process is known by its session and its descent alone.
func (m *marks) take() uint64 {
	for range m.last - m.first + 1 {
		m.latest++
		if m.latest > m.last {
			m.latest = m.first
		}
		if !m.inUse[m.latest] {
			m.inUse[m.latest] = true
			return m.latest
		}
	}
	return 0
}

func (m *marks) free(mark uint64) { delete(m.inUse, mark) }

// setSlack marks the calling thread, and so what it forks.
func setSlack(mark uint64) {
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, unix.PR_SET_TIMERSLACK, uintptr(mark), 0)
}

// readSlack gives the mark of a process, or 0 where it has none or cannot be read.
func readSlack(pid int) uint64 {
	n := readNumber(pid, "timerslack_ns", 10)
	if n < firstSlack || n > lastSlack {
		return 0
	}
	return n
}

// mayReadSlack tells whether this program can read the timer slack of others.
func mayReadSlack() bool {
	var have [2]unix.CapUserData
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	return unix.Capget(&header, &have[0]) == nil && have[0].Effective&(1<<unix.CAP_SYS_NICE) != 0
}

// setFilter marks this program, and so what it forks until the next mark. A mark of 0 takes the last one back.
func setFilter(own *os.File, mark uint64) {
	if mark == 0 {
		mark = defaultFilter
	}
	text := strconv.AppendUint(nil, mark, 10)
	_, _, _ = syscall.RawSyscall(syscall.SYS_WRITE, own.Fd(), uintptr(unsafe.Pointer(&text[0])), uintptr(len(text)))
}

// readFilter gives the mark of a process, or 0 where it has none.
func readFilter(pid int) uint64 {
	n := readNumber(pid, "coredump_filter", 16)
	if n > lastFilter || n == defaultFilter {
		return 0
	}
	return n
}

// readNumber reads a file of /proc that holds one number; 0 where that does not work.
func readNumber(pid int, name string, base int) uint64 {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/" + name)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseUint(string(bytes.TrimSpace(data)), base, 64)
	if err != nil {
		return 0
	}
	return n
}
