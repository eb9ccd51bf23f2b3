package redis_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"

	"github.com/evalfleet/evalfleet/pkg/limit"
	"github.com/evalfleet/evalfleet/pkg/limit/limittest"
	limitredis "github.com/evalfleet/evalfleet/pkg/limit/redis"
	"github.com/evalfleet/evalfleet/pkg/redisclient"
	"github.com/evalfleet/evalfleet/pkg/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens a client whose keys are the test's own.
func open(t *testing.T, server *redistest.Server) *redisclient.Client {
	t.Helper()
	options := server.Options()
	options.Prefix = t.Name() + ":"
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
			l := limitredis.New(limitredis.Config{Client: open(t, server), Replica: "a"})
			t.Cleanup(func() { assert.NoError(t, l.Close()) })
			return l
		},
	})
}
