package link_test

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/link"
)

func TestTheHostIsFoundAgainWithinMilliseconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		up := time.Now().Add(10 * time.Second)
		var idleSince time.Time
		l := link.NewListener(func() (net.Conn, error) {
			if time.Now().Before(up) {
				return nil, errors.New("nobody listens")
			}
			ours, _ := net.Pipe()
			return ours, nil
		}, func(since time.Time) { idleSince = since })
		begin := time.Now()
		c, err := l.Accept()
		require.NoError(t, err)
		assert.Less(t, time.Since(up), 26*time.Millisecond)
		assert.Equal(t, begin, idleSince)

		next := make(chan net.Conn)
		go func() {
			c, err := l.Accept()
			if assert.NoError(t, err) {
				next <- c
			}
		}()
		synctest.Wait()
		select {
		case <-next:
			t.Fatal("a second connection while the first is open")
		default:
		}
		at := time.Now()
		require.NoError(t, c.Close())
		require.Error(t, errors.Join(c.Close(), errors.New("closing twice frees one place only")))
		c = <-next
		assert.Equal(t, at, time.Now(), "it dials at once")
		assert.Equal(t, at, idleSince)

		done := make(chan error)
		go func() { _, err := l.Accept(); done <- err }()
		require.NoError(t, l.Close())
		assert.ErrorIs(t, <-done, net.ErrClosed)
		require.NoError(t, c.Close())
	})
}
