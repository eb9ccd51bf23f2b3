package guest

import (
	"bytes"
	"strconv"

	"golang.org/x/sys/unix"
)

// oomCounter reads how often the kernel has killed a process of the sandbox for memory, from the cgroup file behind fd
// (`memory.events` or `memory.oom_control`, both with a line `oom_kill N`). Nil when there is none.
func oomCounter(fd int) func() int64 {
	if fd <= 0 {
		return nil
	}
	return func() int64 {
		var buf [512]byte
		n, err := unix.Pread(fd, buf[:], 0)
		if err != nil {
			return 0
		}
		for line := range bytes.Lines(buf[:n]) {
			if value, ok := bytes.CutPrefix(line, []byte("oom_kill ")); ok {
				count, _ := strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64)
				return count
			}
		}
		return 0
	}
}
