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
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// overTheWire is what a client sees of a server's error.
func overTheWire(err error) error { return rpcerr.FromStatus(rpcerr.ToStatus(err).Err()) }

func TestAnErrorKeepsItsKindOverTheWire(t *testing.T) {
	t.Parallel()
	further := durationpb.New(time.Minute)
	sent := rpcerr.SandboxQuota("sandboxes", 8, 3*time.Second, "no more than %d sandboxes", 8).WithField("spec.limits", "too much").WithDetail(further)

	got := overTheWire(fmt.Errorf("create: %w", sent))

	assert.Equal(t, codes.ResourceExhausted, rpcerr.Code(got))
	assert.True(t, rpcerr.Is(got, errorsv1.ErrorReason_ERROR_REASON_SANDBOX_QUOTA))
	assert.Equal(t, 3*time.Second, rpcerr.RetryAfter(got))
	assert.EqualError(t, got, "create: no more than 8 sandboxes")
	e, ok := rpcerr.As(got)
	require.True(t, ok)
	assert.Equal(t, map[string]string{"limit": "8", "quota": "sandboxes"}, e.Metadata)
	assert.Equal(t, []rpcerr.Field{{Path: "spec.limits", Description: "too much"}}, e.Fields)
	require.Len(t, e.Details, 1)
	assert.True(t, proto.Equal(further, e.Details[0]))
	ended := rpcerr.RunFinished("projects/p/runs/r1", "SUCCEEDED", "r1 has ended")
	e, ok = rpcerr.As(overTheWire(ended))
	require.True(t, ok)
	assert.Empty(t, e.Details, "what metadata says stands there alone")
}

func TestAStatusSaysWhichStateOrQuotaStandsInTheWay(t *testing.T) {
	t.Parallel()
	ended := rpcerr.RunFinished("projects/p/runs/r1", "SUCCEEDED", "r1 has ended")
	assert.Equal(t, []*errdetails.PreconditionFailure_Violation{{Type: "RUN_FINISHED", Subject: "projects/p/runs/r1", Description: "r1 has ended"}},
		detail[*errdetails.PreconditionFailure](t, ended).GetViolations())
	gone := rpcerr.SandboxTerminated("projects/p/sandboxes/s1", "s1 is deleted")
	assert.Equal(t, []*errdetails.PreconditionFailure_Violation{{Type: "SANDBOX_TERMINATED", Subject: "projects/p/sandboxes/s1", Description: "s1 is deleted"}},
		detail[*errdetails.PreconditionFailure](t, gone).GetViolations())
	for subject, full := range map[string]error{
		"openai/default":   rpcerr.ConnectionQueueFull("openai/default", time.Second, "no room"),
		"sandboxes":        rpcerr.SandboxQuota("sandboxes", 8, time.Second, "no room"),
		"projects/default": rpcerr.BudgetExhausted("projects/default", time.Second, "no room"),
	} {
		assert.Equal(t, []*errdetails.QuotaFailure_Violation{{Subject: subject, Description: "no room"}}, detail[*errdetails.QuotaFailure](t, full).GetViolations())
	}
	later := rpcerr.ProviderRateLimited("openai", 429, time.Second, "the provider's limit is none of ours")
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

// ours are faults of ours, with what no client may see.
func ours() map[string]error {
	return map[string]error{
		"no kind":      errors.New("password is hunter2"),
		"internal":     rpcerr.Internal("cannot write hunter2: %w", io.ErrClosedPipe),
		"wrapped":      fmt.Errorf("key hunter2: %w", rpcerr.Internal("cannot write the journal")),
		"put together": rpcerr.Wrap(rpcerr.Internal("cannot write the journal"), "key hunter2"),
	}
}

func TestAFaultOfOursTellsAClientWhereToLookAndNothingElse(t *testing.T) {
	t.Parallel()
	for name, err := range ours() {
		s := rpcerr.ToStatusUnder(err, "5f")
		assert.Equal(t, codes.Internal, s.Code(), name)
		assert.Equal(t, "internal error; the server's log has the cause under request id 5f", s.Message(), name)
		got, _ := rpcerr.As(rpcerr.FromStatus(s.Err()))
		assert.Equal(t, errorsv1.ErrorReason_ERROR_REASON_INTERNAL, got.Reason, name)
		assert.Equal(t, map[string]string{"requestId": "5f"}, got.Metadata, name)

		relayed := rpcerr.ToStatusUnder(fmt.Errorf("ask: %w", rpcerr.FromStatus(s.Err())), "another")
		assert.Equal(t, s.Message(), relayed.Message(), "%s: the log that has the cause is the first one's", name)

		assert.NotContains(t, rpcerr.ToStatus(err).Message(), "hunter2", name)
	}
	assert.NotContains(t, status.Convert(rpcerr.Internal("hunter2")).Message(), "hunter2", "by a server without interceptors")
}

func TestAPeerSeesTheCauseAndHidesItFromClients(t *testing.T) {
	t.Parallel()
	for name, err := range ours() {
		kept := rpcerr.FromStatus(rpcerr.ToPeer(err).Err())
		assert.EqualError(t, kept, err.Error(), name)
		assert.Equal(t, "internal error; the server's log has the cause under request id 5f", rpcerr.ToStatusUnder(kept, "5f").Message(), name)
	}
	refused := rpcerr.ToPeer(fmt.Errorf("start: %w", rpcerr.FileNotFound("/f", "no /f")))
	assert.Equal(t, "start: no /f", refused.Message(), "all else is as clients see it")
	assert.Equal(t, codes.Canceled, rpcerr.ToPeer(context.Canceled).Code())
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
