package driver_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
)

// TestALateDriverWaitsForShortagesAlone has a driver fail for a shortage, then for a fault that stays.
func TestALateDriverWaitsForShortagesAlone(t *testing.T) {
	t.Parallel()
	var fault error
	d := &driver.Late{As: "some", Build: func() (driver.Driver, error) {
		if fault != nil {
			return nil, fault
		}
		return driver.Absent{As: "built"}, nil
	}}
	fault = unix.EMFILE
	_, err := d.Create(t.Context(), driver.Spec{})
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_SANDBOX_QUOTA), "%v", err)

	fault = errors.New("python: it holds the home")
	_, err = d.Create(t.Context(), driver.Spec{})
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_ISOLATION_UNAVAILABLE), "%v", err)
	require.ErrorContains(t, err, "the driver some cannot be used: python")
	caps, err := d.Probe(t.Context())
	require.NoError(t, err)
	assert.False(t, caps.Available())

	fault = nil
	require.ErrorContains(t, d.Destroy(t.Context(), "x"), "the driver built")
}
