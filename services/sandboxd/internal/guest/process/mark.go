package process

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/box"
)

// A mark says which command a process belongs to, whatever that did to its parents, its session and its environment.
// It is the soft value of a limit that no kernel enforces, so it is inherited by all that a process starts, kept over
// exec, and readable of every process. The filter of system calls refuses to set that limit to whatever the thread that
// forks has started, so no command can change its mark.
type marks struct {
	latest uint64
	hard   uint64 // the greatest value that this program may set
}

// newMarks finds out which marks this program can give.
func newMarks() (*marks, error) {
	var now unix.Rlimit
	if err := unix.Getrlimit(box.MarkResource, &now); err != nil {
		return nil, fmt.Errorf("read limit %d: %w", box.MarkResource, err)
	}
	return &marks{hard: now.Max}, nil
}

// next gives a mark that was not given before. It is 0 when there are no more: such a process is known by its session
// and its descent alone.
func (m *marks) next() uint64 {
	if m.latest+1 >= m.hard {
		return 0
	}
	m.latest++
	return m.latest
}

// set marks this program, and so what it forks until the next mark. The thread that forks cannot do it.
func (m *marks) set(mark uint64) error {
	if mark == 0 {
		return nil
	}
	return unix.Setrlimit(box.MarkResource, &unix.Rlimit{Cur: mark, Max: m.hard})
}

// markName begins the line of the mark in a list of limits (/proc/PID/limits).
var markName = []byte("Max file locks ")

// readMark gives the mark of a process, 0 where it has none; ok is false if it has ended.
func readMark(pid int) (mark uint64, ok bool) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/limits")
	if err != nil || len(data) == 0 {
		return 0, false
	}
	_, line, found := bytes.Cut(data, markName)
	fields := bytes.Fields(line)
	if !found || len(fields) == 0 {
		return 0, true
	}
	n, err := strconv.ParseUint(string(fields[0]), 10, 64)
	if err != nil || n == math.MaxUint64 { // it says unlimited
		return 0, true
	}
	return n, true
}
