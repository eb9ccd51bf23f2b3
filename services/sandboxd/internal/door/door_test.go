package door_test

import (
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/evalfleet/evalfleet/services/sandboxd/internal/door"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens a door in a folder with a short name, as paths of sockets must have.
func open(t *testing.T, admit func(int) bool) (*door.Door, func() net.Conn) {
	t.Helper()
	dir, err := os.MkdirTemp("", "door-") //nolint:usetesting // for the length of its name
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	d, err := door.Open(dir, admit, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(d.Close)
	return d, func() net.Conn {
		c, err := net.Dial("unix", filepath.Join(dir, guest.SocketName))
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		return c
	}
}

func TestAStrangerIsTurnedAway(t *testing.T) {
	t.Parallel()
	d, dial := open(t, func(pid int) bool { return pid != os.Getpid() })
	c := dial()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
	_, err := c.Read(make([]byte, 1))
	require.Error(t, err, "it is closed")
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	assert.Empty(t, d.Conns())
}

func TestTheNewestConnectionReplacesOneThatNobodyTook(t *testing.T) {
	t.Parallel()
	d, dial := open(t, func(pid int) bool { return pid == os.Getpid() })
	old := dial()
	<-d.Came()
	second := dial()
	require.NoError(t, old.SetReadDeadline(time.Now().Add(time.Minute)))
	_, err := old.Read(make([]byte, 1))
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the old one was closed")
	taken := <-d.Conns()
	defer taken.Close()
	_, err = second.Write([]byte("x"))
	require.NoError(t, err)
	_, err = taken.Read(make([]byte, 1))
	require.NoError(t, err)
	d.Close()
	<-d.Closed()
}
