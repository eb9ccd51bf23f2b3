package rpcerr_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// overTheWire is what a client sees of a server's error.
func overTheWire(err error) error { return rpcerr.FromStatus(rpcerr.ToStatus(err).Err()) }

func TestAnErrorKeepsItsKindOverTheWire(t *testing.T) {
	t.Parallel()
	sent := rpcerr.ResourceExhausted(errorsv1.ErrorReason_ERROR_REASON_SANDBOX_QUOTA, "no more than %d sandboxes", 8).
		With("limit", "8").RetryIn(3*time.Second).WithField("spec.limits", "too much")

	got := overTheWire(fmt.Errorf("create: %w", sent))

	assert.Equal(t, codes.ResourceExhausted, rpcerr.Code(got))
	assert.True(t, rpcerr.Is(got, errorsv1.ErrorReason_ERROR_REASON_SANDBOX_QUOTA))
	assert.Equal(t, 3*time.Second, rpcerr.RetryAfter(got))
	assert.EqualError(t, got, "create: no more than 8 sandboxes")
	e, ok := rpcerr.As(got)
	require.True(t, ok)
	assert.Equal(t, map[string]string{"limit": "8"}, e.Metadata)
	assert.Equal(t, []rpcerr.Field{{Path: "spec.limits", Description: "too much"}}, e.Fields)
}

func TestAStatusSaysWhichStateOrQuotaStandsInTheWay(t *testing.T) {
	t.Parallel()
	ended := rpcerr.FailedPrecondition(errorsv1.ErrorReason_ERROR_REASON_RUN_FINISHED, "r1 has ended").With("resource", "projects/p/runs/r1")
	assert.Equal(t, []*errdetails.PreconditionFailure_Violation{{Type: "RUN_FINISHED", Subject: "projects/p/runs/r1", Description: "r1 has ended"}},
		detail[*errdetails.PreconditionFailure](t, ended).GetViolations())
	gone := rpcerr.FailedPrecondition(errorsv1.ErrorReason_ERROR_REASON_SANDBOX_TERMINATED, "s1 is deleted").With("sandbox", "projects/p/sandboxes/s1")
	assert.Equal(t, []*errdetails.PreconditionFailure_Violation{{Type: "SANDBOX_TERMINATED", Subject: "projects/p/sandboxes/s1", Description: "s1 is deleted"}},
		detail[*errdetails.PreconditionFailure](t, gone).GetViolations())
	for key, reason := range map[string]errorsv1.ErrorReason{
		"account": errorsv1.ErrorReason_ERROR_REASON_CONNECTION_QUEUE_FULL,
		"scope":   errorsv1.ErrorReason_ERROR_REASON_BUDGET_EXHAUSTED,
	} {
		full := rpcerr.ResourceExhausted(reason, "no room").With(key, "x")
		assert.Equal(t, []*errdetails.QuotaFailure_Violation{{Subject: "x", Description: "no room"}}, detail[*errdetails.QuotaFailure](t, full).GetViolations())
	}
	later := rpcerr.ResourceExhausted(errorsv1.ErrorReason_ERROR_REASON_PROVIDER_RATE_LIMITED, "the provider's limit is none of ours")
	for _, d := range rpcerr.ToStatus(later).Details() {
		assert.NotContains(t, fmt.Sprintf("%T", d), "QuotaFailure")
	}
}

// detail returns the detail of a type that goes with an error over the wire.
func detail[D any](t *testing.T, err error) D {
	t.Helper()
	for _, d := range rpcerr.ToStatus(err).Details() {
		if d, ok := d.(D); ok {
			return d
		}
	}
	require.FailNow(t, "no such detail", "%v", err)
	panic("unreachable")
}

func TestAnErrorOfNoKindTellsAClientNothing(t *testing.T) {
	t.Parallel()
	s := rpcerr.ToStatus(errors.New("password is hunter2"))
	assert.Equal(t, codes.Internal, s.Code())
	assert.NotContains(t, s.Message(), "hunter2")
}

func TestAnInternalErrorHidesWhatIsWrappedAroundIt(t *testing.T) {
	t.Parallel()
	s := rpcerr.ToStatus(fmt.Errorf("key sk-1: %w", rpcerr.Internal("cannot write the journal: %w", io.ErrClosedPipe)))
	assert.NotContains(t, s.Message(), "sk-1")
}

func TestTheContextsErrorsKeepTheirCodes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		want codes.Code
	}{
		{nil, codes.OK},
		{context.Canceled, codes.Canceled},
		{fmt.Errorf("waiting: %w", context.DeadlineExceeded), codes.DeadlineExceeded},
	} {
		assert.Equal(t, tt.want, rpcerr.Code(tt.err))
		got := overTheWire(tt.err)
		assert.Equal(t, tt.want, rpcerr.Code(got))
		if tt.err != nil {
			assert.ErrorIs(t, got, errors.Unwrap(got))
		}
	}
}

func TestAForeignStatusStaysWhatItIs(t *testing.T) {
	t.Parallel()
	got := overTheWire(status.Error(codes.Unimplemented, "no such method"))
	assert.Equal(t, codes.Unimplemented, rpcerr.Code(got))
	assert.Equal(t, errorsv1.ErrorReason_ERROR_REASON_UNSPECIFIED, rpcerr.Reason(got))
}

func TestWrapKeepsTheKind(t *testing.T) {
	t.Parallel()
	got := rpcerr.Wrap(rpcerr.ResourceNotFound("projects/p/runs/r"), "step %d", 2)
	assert.EqualError(t, got, "step 2: no projects/p/runs/r")
	assert.True(t, rpcerr.Is(got, errorsv1.ErrorReason_ERROR_REASON_RESOURCE_NOT_FOUND))
	assert.NoError(t, rpcerr.Wrap(nil, "nothing"))
	assert.ErrorIs(t, rpcerr.Wrap(io.EOF, "reading"), io.EOF)
}
