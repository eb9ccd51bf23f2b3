package memory_test

import (
	"testing"

	"github.com/evalfleet/evalfleet/services/modelgw/internal/batch"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/batch/batchtest"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/batch/memory"
)

func TestSuite(t *testing.T) {
	t.Parallel()
	batchtest.Run(t, func(*testing.T) batch.Store { return &memory.Store{} })
}
