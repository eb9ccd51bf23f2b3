package modelgw_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	effectsqlite "github.com/evalfleet/evalfleet/pkg/effect/sqlite"
	"github.com/evalfleet/evalfleet/pkg/sqlite"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/mockllm"
)

// BenchmarkGenerate is a call of the scripted model with an answer of 2 KB over an in-memory connection: without a key,
// and with one whose claim and answer are on disk before it is answered.
func BenchmarkGenerate(b *testing.B) {
	script := fmt.Sprintf(`{"outputs": [{"output": %q}]}`, strings.Repeat("x", 2048))
	bench := func(b *testing.B, g *gateway, key bool) {
		var n atomic.Int64
		b.SetParallelism(64)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				r := ask(script, "q")
				if key {
					r.RequestId = fmt.Sprint(n.Add(1))
				}
				if _, err := g.models.Generate(b.Context(), r); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	unlogged := func(c *modelConfig, _ *modelDeps) { c.Mockllm = mockllm.Config{} }
	b.Run("without a key", func(b *testing.B) { bench(b, start(b, unlogged), false) })
	b.Run("with a key", func(b *testing.B) {
		db, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "effects.db"), sqlite.Options{})
		require.NoError(b, err)
		b.Cleanup(func() { _ = db.Close() })
		ledger, err := effectsqlite.New(b.Context(), db, "modelgw")
		require.NoError(b, err)
		bench(b, start(b, unlogged, withLedger(ledger, "bench")), true)
	})
}
