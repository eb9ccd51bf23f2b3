package process_test

import (
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/process"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/threadtest"
)

// A lease of a program blocks its execution until the lease is released, at the latest for 45 s.
func TestAStartThatIsHeldUpEnds(t *testing.T) {
	have(t, 200*time.Millisecond)
	program, _ := leased(t)
	_, err := start(command(t, program, "true"))
	require.ErrorIs(t, err, process.ErrBlocked)
	p, err := start(sh(t, "exit 3"))
	require.NoError(t, err, "others start")
	waittest.For(t, p.Done(), "the end of the next program")
	assert.Equal(t, 3, p.Status().ExitStatus())
}

func TestAStartThatIsStoppedGoesOn(t *testing.T) {
	have(t, waittest.Bound)
	program, giveBack := leased(t)
	type outcome struct {
		p   *process.Process
		err error
	}
	c, started := command(t, program, "true"), make(chan outcome, 1)
	go func() {
		p, err := start(c)
		started <- outcome{p, err}
	}()
	require.Eventually(t, func() bool { return signalUnborn(unix.SIGSTOP) }, waittest.Bound, time.Millisecond)
	giveBack()
	o := waittest.For(t, started, "the start of what was stopped")
	require.NoError(t, o.err)
	_ = syscall.Kill(o.p.PID(), unix.SIGCONT) // the program itself, if the signal reached it
	waittest.For(t, o.p.Done(), "the end of the program")
	assert.Zero(t, o.p.Status().ExitStatus())
}

func TestAStartThatIsKilledIsAnEnd(t *testing.T) {
	have(t, waittest.Bound)
	program, _ := leased(t)
	c, started := command(t, program, "true"), make(chan *process.Process, 1)
	go func() {
		p, err := start(c)
		assert.NoError(t, err)
		started <- p
	}()
	require.Eventually(t, func() bool { return signalUnborn(unix.SIGKILL) }, waittest.Bound, time.Millisecond)
	p := waittest.For(t, started, "the start of what was killed")
	require.NotNil(t, p)
	waittest.For(t, p.Done(), "its end")
	assert.Equal(t, unix.SIGKILL, p.Status().Signal())
}

// kcmpVM asks whether two processes share their memory (linux/kcmp.h).
const kcmpVM = 1

// When memory ends, the kernel ends a process with all that share its memory.
func TestAStartingProcessHasNothingOfThisProgramsMemory(t *testing.T) {
	secret := []byte(rand.Text())
	pid := held(t, nil)
	different, _, errno := syscall.Syscall6(unix.SYS_KCMP, uintptr(os.Getpid()), uintptr(pid), kcmpVM, 0, 0, 0)
	require.Zero(t, errno)
	assert.NotZero(t, different, "it has the memory itself")
	assert.Equal(t, secret, memoryAt(t, os.Getpid(), secret))
	if !table.CopiesAll() { // as in a build with cgo, which no guest is
		assert.Empty(t, memoryAt(t, pid, secret), "it has a copy of the heap")
	}
}

// A process that has become another user, and has not executed its program yet, is read and traced by no process of
// that user.
func TestAStartingProcessIsReadByNobody(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIP: only root starts processes of other users")
	}
	const nobody = 65534
	pid := held(t, &process.Credential{UID: nobody, GID: nobody})
	answered := make(chan struct{})
	threadtest.Go(func() {
		defer close(answered)
		_, _, errno := syscall.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody)
		if !assert.Zero(t, errno) {
			return
		}
		for _, file := range []string{"mem", "maps", "environ", "auxv", "cwd/", "root/", "fd/0", "fd"} {
			fd, err := unix.Open(fmt.Sprintf("/proc/%d/%s", pid, file), unix.O_RDONLY|unix.O_CLOEXEC, 0)
			assert.Error(t, err, file)
			unix.Close(fd)
		}
		assert.ErrorIs(t, unix.PtraceAttach(pid), unix.EPERM)
		word := make([]byte, 8)
		_, err := unix.ProcessVMReadv(pid, []unix.Iovec{{Base: &word[0], Len: 8}}, []unix.RemoteIovec{{Base: uintptr(unsafe.Pointer(&word[0])), Len: 8}}, 0)
		assert.ErrorIs(t, err, unix.EPERM)
		fd, err := unix.PidfdOpen(pid, 0)
		if assert.NoError(t, err) {
			_, err = unix.PidfdGetfd(fd, 0, 0)
			assert.ErrorIs(t, err, unix.EPERM)
			unix.Close(fd)
		}
	})
	waittest.For(t, answered, "the answers of the kernel")
}

// A machine under load takes long to start a process. Only a process that others block is killed for that.
func TestAStartThatIsSlowIsNotKilled(t *testing.T) {
	busy, err := start(sh(t, "while :; do :; done"))
	require.NoError(t, err)
	defer busy.KillTree(0)
	waits, err := start(command(t, "/bin/sleep", "sleep", "1000"))
	require.NoError(t, err)
	defer waits.KillTree(0)
	const patience, beyond = 20 * time.Millisecond, 10
	waittest.Return(t, func() {
		assert.False(t, process.Watch(pidfd(t, busy), patience, beyond), "it computes")
		assert.True(t, process.Watch(pidfd(t, waits), patience, 1000), "it waits for somebody")
	}, "the ends of the watching")
	assert.True(t, alive(busy.PID()))
}

// pidfd opens a descriptor of a process until the end of the test.
func pidfd(t *testing.T, p *process.Process) int {
	fd, err := unix.PidfdOpen(p.PID(), 0)
	assert.NoError(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// held starts a process that waits to execute its program until the end of the test, and returns its id.
func held(t *testing.T, user *process.Credential) (pid int) {
	t.Helper()
	have(t, waittest.Bound)
	program, giveBack := leased(t)
	c, ended := command(t, program, "true"), make(chan struct{})
	c.User = user
	go func() {
		defer close(ended)
		if p, err := start(c); assert.NoError(t, err) {
			<-p.Done()
		}
	}()
	t.Cleanup(func() {
		giveBack()
		waittest.For(t, ended, "the end of what was held")
	})
	require.Eventually(t, func() bool {
		pids := unborn()
		if len(pids) != 1 || executes(pids[0]) != unix.SYS_EXECVE {
			return false
		}
		pid = pids[0]
		return true
	}, waittest.Bound, time.Millisecond, "no process waits to execute its program")
	return pid
}

// executes returns the current system call of a process.
func executes(pid int) (number int) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", pid))
	if _, scan := fmt.Sscan(string(text), &number); err != nil || scan != nil {
		return -1
	}
	return number
}

// memoryAt reads the memory of a process at the address where this program has the bytes.
func memoryAt(t *testing.T, pid int, bytes []byte) []byte {
	t.Helper()
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	require.NoError(t, err)
	defer memory.Close()
	read := make([]byte, len(bytes))
	n, _ := memory.ReadAt(read, int64(uintptr(unsafe.Pointer(&bytes[0]))))
	return read[:n]
}

// have makes the table wait that long for a blocked start.
func have(t *testing.T, patience time.Duration) {
	t.Helper()
	table.SetPatience(patience)
	t.Cleanup(func() { table.SetPatience(0) })
}

// leased copies `true` and takes a lease on the copy, until giveBack or the end of the test.
func leased(t *testing.T) (program string, giveBack func()) {
	t.Helper()
	from, err := os.Open("/bin/true")
	require.NoError(t, err)
	defer from.Close()
	dir := t.TempDir()
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755)) // other users execute it too
	program = filepath.Join(dir, "true")
	file, err := os.OpenFile(program, os.O_CREATE|os.O_RDWR, 0o755)
	require.NoError(t, err)
	_, err = io.Copy(file, from)
	require.NoError(t, err)
	require.NoError(t, file.Close())
	file, err = os.Open(program)
	require.NoError(t, err)
	t.Cleanup(func() { file.Close() })
	_, err = unix.FcntlInt(file.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
	require.NoError(t, err)
	return program, func() {
		_, err := unix.FcntlInt(file.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
		require.NoError(t, err)
	}
}

// signalUnborn signals the children of this program that have not executed their program yet.
func signalUnborn(s syscall.Signal) (sent bool) {
	for _, pid := range unborn() {
		sent = syscall.Kill(pid, s) == nil || sent
	}
	return sent
}

// unborn are the children of this program that have not executed their program yet.
func unborn() (pids []int) {
	self, _ := os.ReadFile("/proc/self/comm")
	status, _ := filepath.Glob("/proc/[0-9]*/status")
	for _, file := range status {
		text, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(text), fmt.Sprintf("\nPPid:\t%d\n", os.Getpid())) {
			continue
		}
		var pid int
		_, err = fmt.Sscanf(file, "/proc/%d/status", &pid)
		if err == nil && strings.HasPrefix(string(text), "Name:\t"+string(self)) {
			pids = append(pids, pid)
		}
	}
	return pids
}
