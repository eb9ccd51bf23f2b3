package guestlistener_test

import (
	"bytes"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guestlistener"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens a door in a folder with a short name, as paths of sockets must have.
func open(t *testing.T, admit func(int) bool) (*guestlistener.Listener, func() net.Conn) {
	t.Helper()
	dir, err := os.MkdirTemp("", "door-") //nolint:usetesting // for the length of its name
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	d, err := guestlistener.Listen(dir, admit, slog.New(slog.DiscardHandler))
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

func TestManyStrangersAreFewLines(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "door-") //nolint:usetesting // for the length of its name
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	var said bytes.Buffer
	d, err := guestlistener.Listen(dir, func(int) bool { return false }, slog.New(slog.NewTextHandler(&said, nil)))
	require.NoError(t, err)
	for range 100 {
		c, err := net.Dial("unix", filepath.Join(dir, guest.SocketName))
		require.NoError(t, err)
		require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
		_, err = c.Read(make([]byte, 1)) // it is closed after it was logged
		require.Error(t, err)
		c.Close()
	}
	d.Close()
	assert.Equal(t, 7, strings.Count(said.String(), "stranger"), "the 1st, 2nd, 4th, … 64th")
	assert.Contains(t, said.String(), "times=64")
}

func TestTheNewestConnectionReplacesOneThatNobodyTook(t *testing.T) {
	t.Parallel()
	d, dial := open(t, func(pid int) bool { return pid == os.Getpid() })
	old := dial()
	waittest.For(t, d.Connected(), "the first connection")
	second := dial()
	require.NoError(t, old.SetReadDeadline(time.Now().Add(time.Minute)))
	_, err := old.Read(make([]byte, 1))
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the old one was closed")
	taken := waittest.For(t, d.Conns(), "the connection to be taken")
	defer taken.Close()
	_, err = second.Write([]byte("x"))
	require.NoError(t, err)
	_, err = taken.Read(make([]byte, 1))
	require.NoError(t, err)
	d.Close()
	waittest.For(t, d.Closed(), "the door to be closed")
}
