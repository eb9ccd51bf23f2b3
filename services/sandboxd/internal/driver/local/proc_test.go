package local

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/box"
)

// TestAProcOfAnotherProcessNamespace compares both implementations. A machine uses the one that its kernel supports.
func TestAProcOfAnotherProcessNamespace(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("without root the guest mounts its own")
	}
	d := newTestDriver(t)
	first := exec.Command("sleep", "98764")
	first.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: firstRange, Size: rangeSize}},
	}
	require.NoError(t, first.Start())
	t.Cleanup(func() { _ = first.Process.Kill(); _ = first.Wait() })
	require.Eventually(t, func() bool { // The kernel says that a program has begun before it has set its words.
		words, err := os.ReadFile("/proc/" + strconv.Itoa(first.Process.Pid) + "/cmdline")
		return err == nil && len(words) > 0
	}, waittest.Bound, time.Millisecond)
	rec := &record{}
	require.NoError(t, rec.identify(first.Process.Pid))
	ns, err := os.Open("/proc/" + strconv.Itoa(first.Process.Pid) + "/ns/pid")
	require.NoError(t, err)
	defer ns.Close()
	for name, hand := range map[string]func(socket *os.File) error{
		"as the kernel can": func(s *os.File) error { return d.handProc(t.Context(), rec, s) },
		"from within":       func(s *os.File) error { return d.handProcFromWithin(t.Context(), ns, s) },
	} {
		var st starting
		theirs, err := st.procSocket()
		require.NoError(t, err)
		require.NoError(t, hand(st.proc), name)
		fd, err := box.TakeProc(int(theirs.Fd()))
		require.NoError(t, err, name)
		proc := os.NewFile(uintptr(fd), "proc")
		processes, err := readNames(proc)
		require.NoError(t, err, name)
		assert.Equal(t, []string{"1"}, processes, name)
		words, err := os.ReadFile("/proc/self/fd/" + strconv.Itoa(fd) + "/1/cmdline")
		require.NoError(t, err, name)
		assert.Equal(t, "sleep\x0098764\x00", string(words), name)
		closeAll([]*os.File{proc, theirs, st.proc})
	}
	require.NoError(t, first.Process.Kill())
	_ = first.Wait()
	var st starting
	theirs, err := st.procSocket()
	require.NoError(t, err)
	defer closeAll([]*os.File{theirs, st.proc})
	require.Error(t, d.handProc(t.Context(), rec, st.proc), "not of whoever has its number now")
	require.Error(t, d.handProcFromWithin(t.Context(), ns, st.proc), "nobody can be born there any more")
	require.NoError(t, unix.Shutdown(int(st.proc.Fd()), unix.SHUT_RDWR))
	_, err = box.TakeProc(int(theirs.Fd()))
	require.ErrorContains(t, err, "gave no proc")
}

// readNames lists the processes of a /proc.
func readNames(proc *os.File) (pids []string, err error) {
	f, err := os.Open("/proc/self/fd/" + strconv.Itoa(int(proc.Fd())))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	for _, name := range names {
		if _, err := strconv.Atoi(name); err == nil {
			pids = append(pids, name)
		}
	}
	return pids, err
}
