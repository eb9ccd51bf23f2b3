package effect_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/effect"
	effectsqlite "github.com/evalfleet/evalfleet/pkg/effect/sqlite"
	"github.com/evalfleet/evalfleet/pkg/sqlite"
)

// BenchmarkDo measures effects with a 2 KiB result from claim to kept result, each caller strictly one after another:
// two durable writes and one goroutine each. Released also releases each result, as a caller does.
func BenchmarkDo(b *testing.B) {
	for _, callers := range []int{1, 64, 256} {
		for _, release := range []bool{false, true} {
			b.Run(fmt.Sprintf("callers=%d/released=%t", callers, release), func(b *testing.B) {
				db, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "bench.db"), sqlite.Options{})
				require.NoError(b, err)
				defer func() { require.NoError(b, db.Close()) }()
				ledger, err := effectsqlite.New(b.Context(), db, "modelgw")
				require.NoError(b, err)
				r, err := effect.New(effect.Config{Ledger: ledger, Owner: "bench/1"})
				require.NoError(b, err)
				body := make([]byte, 2048)
				work := func(context.Context, effect.Attempt) ([]byte, error) { return body, nil }

				var left atomic.Int64
				left.Store(int64(b.N))
				b.ReportAllocs()
				b.ResetTimer()
				var wg sync.WaitGroup
				for caller := range callers {
					wg.Go(func() {
						for n := 0; left.Add(-1) >= 0; n++ {
							key := effect.Key{Project: "default", ID: "run-" + strconv.Itoa(caller) + "/" + strconv.Itoa(n)}
							_, err := r.Do(b.Context(), effect.Request{Key: key}, work)
							if err == nil && release {
								err = ledger.Release(b.Context(), key)
							}
							if err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				b.StopTimer()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "effects/s")
			})
		}
	}
}
