package process_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/process"
)

// A lease of a program holds up whoever executes it until the lease is given back, at the latest for 45 s.
func TestAStartThatIsHeldUpEnds(t *testing.T) {
	have(t, 200*time.Millisecond)
	program, _ := leased(t)
	_, err := start(command(t, program, "true"))
	require.ErrorIs(t, err, process.ErrHeldUp)
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
	_ = syscall.Kill(o.p.PID(), unix.SIGCONT) // the program itself, if the signal came to that
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

// have has the table wait so long for a start that is held up.
func have(t *testing.T, patience time.Duration) {
	t.Helper()
	table.SetPatience(patience)
	t.Cleanup(func() { table.SetPatience(0) })
}

// leased makes a copy of `true` with a lease, until giveBack or the end of the test.
func leased(t *testing.T) (program string, giveBack func()) {
	t.Helper()
	from, err := os.Open("/bin/true")
	require.NoError(t, err)
	defer from.Close()
	program = filepath.Join(t.TempDir(), "true")
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

// signalUnborn signals the children of this program that wait for the lease of a program that they are to execute.
func signalUnborn(s syscall.Signal) (sent bool) {
	self, _ := os.ReadFile("/proc/self/comm")
	status, _ := filepath.Glob("/proc/[0-9]*/status")
	for _, file := range status {
		text, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(text), fmt.Sprintf("\nPPid:\t%d\n", os.Getpid())) {
			continue
		}
		var pid int
		_, err = fmt.Sscanf(file, "/proc/%d/status", &pid)
		if err == nil && strings.HasPrefix(string(text), "Name:\t"+string(self)) && syscall.Kill(pid, s) == nil {
			sent = true
		}
	}
	return sent
}
