package enginetest_test

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/evalfleet/evalfleet/pkg/enginetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAnEngineOfTheTestsOwnLeavesNothing(t *testing.T) {
	t.Parallel()
	e, err := enginetest.Start(t.Context())
	require.NoError(t, err)
	socket := strings.TrimPrefix(e.Host, "unix://")
	assert.True(t, e.Own)
	_, err = os.Stat(socket)
	require.NoError(t, err)
	mounts, err := os.ReadFile("/proc/self/mounts")
	require.NoError(t, err)
	assert.NotContains(t, string(mounts), filepath.Dir(socket), "its mounts are its own")
	pid, err := os.ReadFile(filepath.Join(filepath.Dir(socket), "pid"))
	require.NoError(t, err)
	network, err := os.Readlink(filepath.Join("/proc", strings.TrimSpace(string(pid)), "ns/net"))
	require.NoError(t, err)
	machine, err := os.Readlink("/proc/self/ns/net")
	require.NoError(t, err)
	assert.NotEqual(t, machine, network, "an engine without a bridge removes docker0, which is that of the machine's engine")
	require.NoError(t, e.Stop())
	assert.NoDirExists(t, filepath.Dir(socket))
}

// TestAnEngineOutlivesTheThreadThatStartedIt: tests change threads, which then end, and one of them may have started
// the engine.
func TestAnEngineOutlivesTheThreadThatStartedIt(t *testing.T) {
	t.Parallel()
	type started struct {
		engine *enginetest.Engine
		thread int
		err    error
	}
	engines, done := make(chan started), make(chan struct{})
	defer close(done)
	var start func()
	start = func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() { // The first thread of a process does not end: another one starts the engine.
			go start()
			<-done
			runtime.UnlockOSThread()
			return
		}
		e, err := enginetest.Start(t.Context())
		engines <- started{e, unix.Gettid(), err} // The thread stays locked, and so ends with this function.
	}
	go start()
	s := <-engines
	require.NoError(t, s.err)
	require.Eventually(t, func() bool {
		_, err := os.Stat("/proc/self/task/" + strconv.Itoa(s.thread))
		return os.IsNotExist(err)
	}, time.Minute, time.Millisecond, "the thread ends")
	assert.Never(t, func() bool {
		conn, err := net.Dial("unix", strings.TrimPrefix(s.engine.Host, "unix://"))
		if err == nil {
			conn.Close()
		}
		return err != nil
	}, 2*time.Second, 10*time.Millisecond, "it listens")
	require.NoError(t, s.engine.Stop())
}
