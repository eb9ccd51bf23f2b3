package limit_test

import (
	"testing"
	"testing/synctest"

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

func BenchmarkAcquire(b *testing.B) {
	var m limit.Memory
	r := limit.Request{Key: "openai/default", Tenant: "default", Fixed: 10}
	for b.Loop() {
		release, err := m.Acquire(b.Context(), r)
		if err != nil {
			b.Fatal(err)
		}
		release()
	}
}
