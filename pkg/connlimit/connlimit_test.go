package connlimit_test

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

	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/connlimit"
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

// The next connection is accepted after every error of an accept, after a pause that grows to a second, less up to half
// at random; only a closed listener ends it.
func TestAFailedAcceptIsAPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		l := listen()
		patient := connlimit.RetryAccept(l, slog.New(slog.NewTextHandler(&log, nil)))
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
		assert.Greater(t, time.Since(start), 13*bound.LongestAcceptPause/2, "eight pauses grow, thirteen are the longest")
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

// visits are the connections of a bounded listener.
type visits struct {
	t       *testing.T
	l       *listener
	bounded net.Listener
	clients []net.Conn
}

func visit(t *testing.T, limits connlimit.Limits) *visits {
	t.Helper()
	l := listen()
	v := &visits{t: t, l: l, bounded: connlimit.Limit(l, limits, slog.New(slog.DiscardHandler))}
	t.Cleanup(func() { _ = v.bounded.Close() })
	return v
}

// come is a connection that is accepted.
func (v *visits) come() net.Conn {
	v.t.Helper()
	v.clients = append(v.clients, v.l.connect())
	conn, err := v.bounded.Accept()
	require.NoError(v.t, err)
	return conn
}

// gone are the connections that were closed, by their place.
func (v *visits) gone() (all []int) {
	v.t.Helper()
	for i, c := range v.clients {
		if closed(v.t, c) {
			all = append(all, i)
		}
	}
	return all
}

// refused reports whether another connection is refused.
func (v *visits) refused() bool {
	v.t.Helper()
	another := v.l.connect()
	v.l.results <- net.ErrClosed // for an Accept that continues
	if _, err := v.bounded.Accept(); err == nil {
		return false
	}
	assert.True(v.t, closed(v.t, another))
	return true
}

func TestStrangersMakeRoomForOneAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := visit(t, connlimit.Limits{Connections: 4, Unauthenticated: 2})
		for range 2 { // They have a call in flight.
			known := wrapper{v.come()}
			connlimit.MarkAuthenticated(known)
			connlimit.CallBegan(known)
		}
		first, second := v.come(), v.come()
		evicted := connlimit.Closed(wrapper{first})
		connlimit.MarkUnauthenticated(wrapper{first})
		assert.Empty(t, v.gone())
		third := v.come()
		assert.Equal(t, []int{2}, v.gone())
		waittest.For(t, evicted, "the end of that connection, for who does not read it")
		connlimit.MarkAuthenticated(first) // It is closed, and counts no more.
		require.NoError(t, second.Close())
		fourth := v.come()
		assert.Equal(t, []int{2, 3}, v.gone(), "who leaves makes room")
		for _, known := range []net.Conn{third, fourth} {
			connlimit.MarkAuthenticated(known)
			connlimit.CallBegan(known)
		}
		assert.True(t, v.refused(), "no stranger is left to go, nor a connection without a call")
		require.NoError(t, third.Close())
		assert.False(t, v.refused())
	})
}

// Strangers that connect quickly leave a caller the time to show its credential: those that spoke without one go first.
func TestWhoSpokeWithoutACredentialMakesRoomFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := visit(t, connlimit.Limits{Connections: 100, Unauthenticated: 10})
		for range 5 {
			v.come()
		}
		var want []int
		for i := range 100 {
			connlimit.MarkUnauthenticated(v.come())
			if i < 100-5 {
				want = append(want, 5+i)
			}
		}
		assert.Equal(t, want, v.gone(), "the oldest of them, and none that has not spoken")
	})
}

// Of strangers that have made no request, any may be closed, except those that have just arrived: a caller that is slow
// to send its credential has a chance, and a quick one needs none.
func TestAnyStrangerButTheLatestMakesRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const strangers, tries = 10, 200
		quick, slow := 0, 0
		for range tries {
			v := visit(t, connlimit.Limits{Connections: 100, Unauthenticated: strangers})
			for range strangers {
				v.come()
			}
			v.come()
			for range strangers/2 - 1 {
				v.come()
			}
			if !closed(t, v.clients[strangers]) {
				quick++
			}
			for range strangers / 2 {
				v.come()
			}
			if !closed(t, v.clients[strangers]) {
				slow++
			}
		}
		assert.Equal(t, tries, quick)
		assert.Greater(t, slow, tries/20)
		assert.Less(t, slow, tries)
	})
}

// Many callers may connect before any of them sends, and all of them then are served: those that wait lose nothing.
func TestCallersThatConnectTogetherTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const served, callers = 3, 50
		v := visit(t, connlimit.Limits{Connections: 2 * callers, Unauthenticated: callers, Served: served})
		turns := make(chan net.Conn, callers)
		for range callers {
			c := v.come()
			go func() {
				if connlimit.Turn(wrapper{c}) {
					turns <- c
				}
			}()
		}
		for left := callers; left > 0; left-- {
			synctest.Wait()
			require.Len(t, turns, min(served, left))
			time.Sleep(bound.StrangerTurn * 9 / 10 / served)
			connlimit.MarkAuthenticated(<-turns)
		}
		assert.Empty(t, v.gone())
	})
}

// Strangers that hold all turns delay a caller by one turn at most, however many of them wait before it.
func TestATurnEndsWhenAnotherWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const served, strangers = 4, 40
		v := visit(t, connlimit.Limits{Connections: 100, Unauthenticated: 50, Served: served})
		for range strangers {
			c := v.come()
			go connlimit.Turn(c)
			synctest.Wait()
		}
		time.Sleep(bound.StrangerTurn / 2)
		came := time.Now()
		caller := v.come()
		require.True(t, connlimit.Turn(caller))
		assert.LessOrEqual(t, time.Since(came), bound.StrangerTurn/2)
		connlimit.MarkAuthenticated(caller)
		assert.Subset(t, v.gone(), []int{0, 1, 2, 3}, "those whose turn was over")

		connlimit.MarkUnauthenticated(v.come())
		suspect := v.come()
		go connlimit.Turn(suspect)
		time.Sleep(bound.Greeting)
		synctest.Wait()
		assert.NotContains(t, v.gone(), strangers, "a caller's turn does not end")
	})
}

// Who has made a request without a credential makes room at once for one that waits; and a wait ends, with the
// connection at the latest.
func TestAWaitForATurnEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := visit(t, connlimit.Limits{Connections: 100, Unauthenticated: 50, Served: 1})
		asked := v.come()
		require.True(t, connlimit.Turn(asked))
		waits := v.come()
		got := make(chan bool, 1)
		begin := time.Now()
		go func() { got <- connlimit.Turn(waits) }()
		synctest.Wait()
		connlimit.MarkUnauthenticated(asked)
		require.True(t, <-got)
		assert.Zero(t, time.Since(begin))
		assert.Equal(t, []int{0}, v.gone())

		leaves := v.come()
		go func() { got <- connlimit.Turn(leaves) }()
		synctest.Wait()
		require.NoError(t, leaves.Close())
		require.False(t, <-got)
	})
}

func TestTheCallerThatWasIdleLongestMakesRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := visit(t, connlimit.Limits{Connections: 3, Unauthenticated: 1})
		var known []net.Conn
		for range 3 {
			c := v.come()
			connlimit.CallBegan(c)
			connlimit.MarkAuthenticated(c)
			known = append(known, c)
		}
		assert.True(t, v.refused(), "all have calls")
		connlimit.CallEnded(known[1])
		time.Sleep(bound.SpareIdle / 2)
		connlimit.CallEnded(known[0])
		assert.True(t, v.refused(), "two have just had a call")
		time.Sleep(bound.SpareIdle)
		v.come()
		assert.Equal(t, []int{1}, v.gone())
		require.NoError(t, known[2].Close())
	})
}

// wrapper is a connection around another.
type wrapper struct{ net.Conn }

func (w wrapper) NetConn() net.Conn { return w.Conn }

func TestConnectionsLeaveFilesToTheProcess(t *testing.T) {
	t.Parallel()
	var files syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files))
	got := connlimit.LimitsFor(1 << 40)
	assert.EqualValues(t, files.Cur/2, got.Connections)
	assert.Equal(t, connlimit.Limits{Connections: 10, Unauthenticated: 5, Served: bound.Strangers}, connlimit.LimitsFor(10))
	assert.LessOrEqual(t, connlimit.LimitsFor(0).Connections, bound.Connections)
}
