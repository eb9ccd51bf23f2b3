package memory

import (
	"testing"

	"github.com/evalfleet/evalfleet/pkg/effect"
	"github.com/evalfleet/evalfleet/pkg/effect/effecttest"
)

func TestLedger(t *testing.T) {
	t.Parallel()
	effecttest.Run(t, effecttest.Harness{
		New: func(*testing.T) effect.Ledger { return &Ledger{} },
	})
}
