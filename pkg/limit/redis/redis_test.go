package redis_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/evalfleet/evalfleet/pkg/limit"
	"github.com/evalfleet/evalfleet/pkg/limit/limittest"
	limitredis "github.com/evalfleet/evalfleet/pkg/limit/redis"
	"github.com/evalfleet/evalfleet/pkg/redisclient"
	"github.com/evalfleet/evalfleet/pkg/redistest"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens a client whose keys are the test's own, and which waits for an answer for a while; zero is the default.
func open(t *testing.T, server *redistest.Server, timeout time.Duration) *redisclient.Client {
	t.Helper()
	options := server.Options()
	options.Prefix, options.Timeout = t.Name()+":", timeout
	client := redisclient.Open(options)
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	return client
}

// The time of the test is simulated, the exchange with Redis is not: time stands still while it lasts.
func TestRedis(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	limittest.Run(t, limittest.Harness{
		Run: func(t *testing.T, name string, f func(*testing.T, func())) {
			t.Helper()
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { f(t, synctest.Wait) })
			})
		},
		New: func(t *testing.T) limit.Limiter {
			l := limitredis.New(limitredis.Config{Client: open(t, server, waittest.Bound), Replica: "a"})
			t.Cleanup(func() { assert.NoError(t, l.Close()) })
			return l
		},
	})
}

// A server that takes connections and does not answer is away, too.
func TestAServerThatHangsHoldsUpNoCall(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	l := limitredis.New(limitredis.Config{Client: open(t, server, 0), Replica: "a", TTL: 300 * time.Millisecond})
	t.Cleanup(func() { assert.NoError(t, l.Close()) })
	r := limit.Request{Key: "k", Fixed: 4}
	acquire := func() {
		for range r.Fixed {
			slot, err := l.Acquire(waittest.Context(t), r)
			require.NoError(t, err)
			t.Cleanup(slot.Release)
		}
	}
	acquire()
	require.NoError(t, server.Hang())
	r.Key = "new"
	acquire()
	_, err := l.SetMax(t.Context(), "k", 3)
	require.ErrorContains(t, err, "redis does not answer")
	require.ErrorContains(t, err, "may have been changed", "Redis has it, and may do it yet")
	require.NoError(t, server.Resume())
	require.Eventually(t, func() bool {
		p, err := l.SetMax(t.Context(), "k", 3)
		return err == nil && p.Limit == 3
	}, waittest.Bound, 10*time.Millisecond)
}
