package rpcerr_test

import (
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// TestWhatMayBeRepeatedIsSaidByTheReason holds every error that the platform makes to what its caller may do, on both
// sides of the wire.
func TestWhatMayBeRepeatedIsSaidByTheReason(t *testing.T) {
	t.Parallel()
	notStarted := map[errorsv1.ErrorReason]bool{
		errorsv1.ErrorReason_ERROR_REASON_CONNECTION_QUEUE_FULL: true,
		errorsv1.ErrorReason_ERROR_REASON_SANDBOX_QUOTA:         true,
		errorsv1.ErrorReason_ERROR_REASON_BUDGET_EXHAUSTED:      true,
		errorsv1.ErrorReason_ERROR_REASON_WORKER_UNAVAILABLE:    true,
		errorsv1.ErrorReason_ERROR_REASON_ENGINE_UNAVAILABLE:    true,
		errorsv1.ErrorReason_ERROR_REASON_BATCH_PENDING:         true,
	}
	transient := map[errorsv1.ErrorReason]bool{
		errorsv1.ErrorReason_ERROR_REASON_SERVICE_UNAVAILABLE: true,
		errorsv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE:   true,
	}
	for _, made := range made() {
		for _, err := range []error{made, fmt.Errorf("wrapped: %w", made), rpcerr.FromStatus(rpcerr.ToStatus(made).Err())} {
			assert.Equal(t, notStarted[made.Reason], rpcerr.NotStarted(err), "%v", made.Reason)
			assert.Equal(t, notStarted[made.Reason] || transient[made.Reason], rpcerr.Transient(err), "%v", made.Reason)
		}
	}
	foreign := func(code codes.Code) error { return rpcerr.FromStatus(status.Error(code, "connection refused")) }
	assert.True(t, rpcerr.Transient(foreign(codes.Unavailable)), "a connection that broke")
	for _, err := range []error{nil, io.EOF, context.Canceled, foreign(codes.Internal), foreign(codes.ResourceExhausted)} {
		assert.False(t, rpcerr.Transient(err), "%v", err)
		assert.False(t, rpcerr.NotStarted(err), "%v", err)
	}
}
