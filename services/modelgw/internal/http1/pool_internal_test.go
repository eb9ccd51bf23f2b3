package http1

import (
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// Connections are kept for a while, so many of each host, and the one that was used last is used next.
func TestConnectionsAreKeptForAWhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var p pool
		open := map[*conn]*atomic.Bool{}
		put := func(address string) *conn {
			client, server := net.Pipe()
			c := newConn(client, address)
			is := &atomic.Bool{}
			is.Store(true)
			go func() {
				_, _ = server.Read(make([]byte, 1))
				is.Store(false)
			}()
			open[c] = is
			p.put(c, 2, time.Minute)
			synctest.Wait()
			return c
		}
		first, second, other := put("a"), put("a"), put("b")
		assert.False(t, open[put("a")].Load(), "there are two")
		assert.Same(t, second, p.take("a"))
		assert.Same(t, first, p.take("a"))
		assert.Nil(t, p.take("a"))
		time.Sleep(30 * time.Second)
		p.put(first, 2, time.Minute)
		time.Sleep(31 * time.Second)
		synctest.Wait()
		assert.Equal(t, []bool{true, false}, []bool{open[first].Load(), open[other].Load()}, "the second has been idle for a minute")
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		assert.False(t, open[first].Load())
		assert.Nil(t, p.take("a"))
		p.put(second, 2, time.Minute)
		p.closeAll()
		synctest.Wait()
		assert.False(t, open[second].Load())
	})
}
