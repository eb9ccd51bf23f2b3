package limit_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/evalfleet/evalfleet/pkg/limit"
	"github.com/evalfleet/evalfleet/pkg/limit/limittest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemory(t *testing.T) {
	t.Parallel()
	limittest.Run(t, limittest.Harness{
		Run: func(t *testing.T, name string, f func(*testing.T, func())) {
			t.Helper()
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { f(t, synctest.Wait) })
			})
		},
		New: func(*testing.T) limit.Limiter { return &limit.Memory{} },
	})
}

// Callers name pools freely: those without callers are forgotten, but not one that is in use or was set by hand.
func TestMemoryForgetsIdlePools(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var m limit.Memory
		acquire := func(key string) (release func()) {
			time.Sleep(time.Millisecond)
			slot, err := m.Acquire(t.Context(), limit.Request{Key: key, Fixed: 5})
			require.NoError(t, err)
			return slot.Release
		}
		acquire("set")()
		_, err := m.SetMax(t.Context(), "set", 2)
		require.NoError(t, err)
		release := acquire("used")
		defer release()
		for i := range 10_000 {
			acquire(fmt.Sprint(i))()
		}
		pools, err := m.Pools(t.Context())
		require.NoError(t, err)
		assert.LessOrEqual(t, len(pools), 2000)
		kept := map[string]int{}
		for _, p := range pools {
			kept[p.Key] = p.Limit
		}
		assert.Equal(t, 2, kept["set"])
		assert.Equal(t, 5, kept["used"])
		assert.Equal(t, 5, kept["9999"])
	})
}

func BenchmarkAcquire(b *testing.B) {
	var m limit.Memory
	r := limit.Request{Key: "openai/default", Tenant: "default", Fixed: 10}
	for b.Loop() {
		slot, err := m.Acquire(b.Context(), r)
		if err != nil {
			b.Fatal(err)
		}
		slot.Release()
	}
}
