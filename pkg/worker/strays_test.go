package worker_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/worker"
)

// A service and the gateway refuse a worker after the same number of strays.
func TestStraysAreTooManyInARow(t *testing.T) {
	t.Parallel()
	var s worker.Strays
	s.Expect(2)
	for range 1_002 {
		require.NoError(t, s.Stray("w"))
	}
	assert.True(t, rpcerr.Is(s.Stray("w"), errorsv1.ErrorReason_ERROR_REASON_WORKER_REFUSED))
	s.Known()
	assert.NoError(t, s.Stray("w"), "the row ended")
}
