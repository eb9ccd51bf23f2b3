package box

import (
	"fmt"
	"math"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"golang.org/x/sys/unix"
)

// A call in two lists would be decided by the first one.
func TestEachCallIsDecidedOnce(t *testing.T) {
	t.Parallel()
	seen := map[uint32]bool{}
	for call := range argumentRules {
		seen[call] = true
	}
	for _, call := range slices.Concat(allowedCalls, machineCalls, ineffectiveCalls, refusedCalls) {
		assert.False(t, seen[call], "%d", call)
		seen[call] = true
	}
}

// The kernel accepts 4,096 instructions, and a jump reaches 255.
func TestTheFilterFits(t *testing.T) {
	t.Parallel()
	assert.Less(t, len(filter(Command{Processors: 1, NoWatches: true})), 4096)
	for call, rule := range argumentRules {
		assert.LessOrEqual(t, len(rule), math.MaxUint8, "%d", call)
		assert.Equal(t, uint16(unix.BPF_RET|unix.BPF_K), rule[len(rule)-1].Code, "the rule of %d ends with an answer", call)
	}
}

// TestAKernelWithoutRoomForAFilterIsNoneWithoutFilters: commands that may lack the filter lack it only on a kernel
// without filters.
func TestAKernelWithoutRoomForAFilterIsNoneWithoutFilters(t *testing.T) {
	t.Parallel()
	for _, errno := range []syscall.Errno{unix.EINVAL, unix.ENOSYS, unix.EPERM} {
		err := fmt.Errorf("seccomp: %w", errno)
		assert.True(t, noFilters(err), errno)
		assert.False(t, Transient(err), errno)
	}
	for _, errno := range []syscall.Errno{unix.ENOMEM, unix.EAGAIN, 524} { // 524: ENOTSUPP of the kernel, when net.core.bpf_jit_limit is reached
		err := fmt.Errorf("seccomp: %w", errno)
		assert.False(t, noFilters(err), errno)
		assert.True(t, Transient(err), errno)
	}
}

func TestRangesJoinNumbersThatFollowEachOther(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []numbers{{1, 3}, {5, 5}, {8, 9}}, ranges([]uint32{9, 2, 1, 3, 5, 8, 2}))
	assert.Empty(t, ranges(nil))
}
