package accept_test

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/evalfleet/evalfleet/pkg/accept"
	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// listener gives out what a test puts in.
type listener struct {
	results chan any // net.Conn or error
	once    sync.Once
	closed  chan struct{}
}

func listen() *listener {
	return &listener{results: make(chan any, 100), closed: make(chan struct{})}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case r := <-l.results:
		if err, failed := r.(error); failed {
			return nil, err
		}
		return r.(net.Conn), nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error { l.once.Do(func() { close(l.closed) }); return nil }

func (l *listener) Addr() net.Addr { return &net.UnixAddr{Name: "test", Net: "unix"} }

// connect puts a connection in and returns the client's end.
func (l *listener) connect() net.Conn {
	client, server := net.Pipe()
	l.results <- server
	return client
}

// The next connection is accepted after every error of an accept, after a pause that grows to a second; only a closed
// listener ends it.
func TestAFailedAcceptIsAPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		l := listen()
		patient := accept.Patient(l, slog.New(slog.NewTextHandler(&log, nil)))
		const failures = 20
		for range failures {
			l.results <- &net.OpError{Op: "accept", Err: syscall.EMFILE}
		}
		l.results <- errors.New("a failure that nobody has heard of")
		client := l.connect()
		defer client.Close()
		start := time.Now()
		conn, err := patient.Accept()
		require.NoError(t, err)
		require.NoError(t, conn.Close())
		assert.Greater(t, time.Since(start), 10*time.Second)
		assert.Less(t, time.Since(start), (failures+1)*bound.LongestAcceptPause)
		assert.Contains(t, log.String(), "level=ERROR")
		assert.Contains(t, log.String(), "too many open files")
		assert.LessOrEqual(t, strings.Count(log.String(), "\n"), 3, "the log has a line in a while: %s", log.String())

		l.results <- syscall.ENFILE
		go func() {
			time.Sleep(time.Millisecond)
			_ = patient.Close()
		}()
		_, err = patient.Accept()
		require.ErrorIs(t, err, net.ErrClosed)
	})
}

// closed reports whether the server's end of a connection was closed.
func closed(t *testing.T, client net.Conn) bool {
	t.Helper()
	if err := client.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		return true
	}
	_, err := client.Read(make([]byte, 1))
	return errors.Is(err, io.EOF)
}

func TestStrangersMakeRoomForOneAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := listen()
		bounded := accept.Bounded(l, accept.Limits{Connections: 4, Strangers: 2}, slog.New(slog.DiscardHandler))
		var clients []net.Conn
		come := func() net.Conn {
			clients = append(clients, l.connect())
			conn, err := bounded.Accept()
			require.NoError(t, err)
			return conn
		}
		gone := func() (all []int) {
			for i, c := range clients {
				if closed(t, c) {
					all = append(all, i)
				}
			}
			return all
		}
		accept.Know(come())
		accept.Know(wrapper{come()})
		first, second := come(), come()
		evicted := accept.Closed(wrapper{first})
		assert.Empty(t, gone())
		third := come()
		assert.Equal(t, []int{2}, gone(), "the stranger that came first")
		waittest.For(t, evicted, "the end of that connection, for who does not read it")
		accept.Know(first) // It is closed, and counts no more.
		require.NoError(t, second.Close())
		fourth := come()
		assert.Equal(t, []int{2, 3}, gone(), "who leaves makes room")
		accept.Know(third)
		accept.Know(fourth)

		refused := l.connect()
		go func() { _, _ = bounded.Accept() }()
		synctest.Wait()
		assert.True(t, closed(t, refused), "no stranger is left to go")
		require.NoError(t, third.Close())
		come5 := l.connect()
		synctest.Wait()
		assert.False(t, closed(t, come5))
		require.NoError(t, bounded.Close())
	})
}

// wrapper is a connection around another.
type wrapper struct{ net.Conn }

func (w wrapper) NetConn() net.Conn { return w.Conn }

func TestConnectionsLeaveFilesToTheProcess(t *testing.T) {
	t.Parallel()
	var files syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files))
	got := accept.Room(1 << 40)
	assert.EqualValues(t, files.Cur/2, got.Connections)
	assert.Equal(t, accept.Limits{Connections: 10, Strangers: 5}, accept.Room(10))
	assert.LessOrEqual(t, accept.Room(0).Connections, bound.Connections)
}
