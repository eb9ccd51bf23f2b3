// Package closeonexec keeps a program's open descriptors from the programs that it starts.
package closeonexec

import (
	"fmt"
	"math"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// MarkAll marks all descriptors that this program has open, except the three standard streams, as closed on exec.
// Children then do not inherit what the program's own parent left open by mistake; descriptors that are passed to a
// child on purpose are copied for it later.
func MarkAll() error {
	if unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return nil
	}
	entries, err := os.ReadDir("/proc/self/fd") // before Linux 5.11
	if err != nil {
		return fmt.Errorf("keep descriptors from programs that are started: %w", err)
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd >= 3 {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}
