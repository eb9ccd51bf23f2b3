package effectrpc_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/effect"
	"github.com/evalfleet/evalfleet/pkg/effect/effectrpc"
	"github.com/evalfleet/evalfleet/pkg/effect/memory"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

var key = effect.Key{Project: "p", ID: "run1/7"}

func owner(t *testing.T, ledger effect.Ledger) *effectrpc.Owner {
	t.Helper()
	o, err := effectrpc.New(effectrpc.Config{Service: "modelgw", Ledger: ledger, Owner: "modelgw/1", Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	return o
}

// TestEveryErrorOfEffectsHasOneReason holds each error that package effect declares to the reason, and so to the code,
// that every service reports.
func TestEveryErrorOfEffectsHasOneReason(t *testing.T) {
	t.Parallel()
	o := owner(t, &memory.Ledger{})
	for _, tt := range []struct {
		err    error
		code   codes.Code
		reason errorsv1.ErrorReason
		says   string
	}{
		{effect.ErrInvalidKey, codes.InvalidArgument, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, "request_id"},
		{effect.ErrContentMismatch, codes.AlreadyExists, errorsv1.ErrorReason_ERROR_REASON_REQUEST_ID_REUSED, "use a new one"},
		{effect.ErrUnknown, codes.NotFound, errorsv1.ErrorReason_ERROR_REASON_EFFECT_UNKNOWN, "no call is known"},
		{effect.ErrReleased, codes.NotFound, errorsv1.ErrorReason_ERROR_REASON_EFFECT_UNKNOWN, "was released"},
		{effect.ErrCancelled, codes.Canceled, errorsv1.ErrorReason_ERROR_REASON_EFFECT_CANCELLED, "was cancelled"},
		{effect.ErrIndeterminate, codes.Aborted, errorsv1.ErrorReason_ERROR_REASON_EFFECT_INDETERMINATE, "before there was a result"},
		{effect.ErrLost, codes.Aborted, errorsv1.ErrorReason_ERROR_REASON_EFFECT_INDETERMINATE, "repeat the request"},
		{effect.ErrDraining, codes.Unavailable, errorsv1.ErrorReason_ERROR_REASON_SERVICE_UNAVAILABLE, "modelgw is stopping"},
		{&effect.SupersededError{Epoch: 7}, codes.Aborted, errorsv1.ErrorReason_ERROR_REASON_NOT_OWNER, "another owner since"},
		{effect.ErrNotOwner, codes.Unavailable, errorsv1.ErrorReason_ERROR_REASON_SERVICE_UNAVAILABLE, "took over"},
		{&effect.ElsewhereError{Owner: "modelgw/2"}, codes.Unavailable, errorsv1.ErrorReason_ERROR_REASON_SERVICE_UNAVAILABLE, "modelgw/2"},
		{&effect.PanicError{Value: "secret"}, codes.Internal, errorsv1.ErrorReason_ERROR_REASON_INTERNAL, "run1/7"},
	} {
		err := o.Error(key, fmt.Errorf("wrapped: %w", tt.err))
		assert.Equal(t, tt.code, rpcerr.Code(err), "%v", tt.err)
		assert.Equal(t, tt.reason, rpcerr.Reason(err), "%v", tt.err)
		assert.ErrorContains(t, err, tt.says)
		assert.ErrorIs(t, err, tt.err)
		assert.NotContains(t, err.Error(), "secret")
	}
	own := errors.New("the effect's own")
	assert.Equal(t, own, o.Error(key, own))
	assert.NoError(t, o.Error(key, nil))
}

func TestCancelReportsWhatHadEnded(t *testing.T) {
	t.Parallel()
	o := owner(t, &memory.Ledger{})
	ended, err := o.Cancel(t.Context(), effect.Key{Project: "p", ID: "never seen"})
	require.NoError(t, err)
	assert.False(t, ended)
	_, err = o.Do(t.Context(), effect.Request{Key: effect.Key{Project: "p", ID: "never seen"}}, func(context.Context, effect.Attempt) ([]byte, error) {
		t.Error("a cancelled key is executed")
		return nil, nil
	})
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_EFFECT_CANCELLED), "%v", err)

	_, err = o.Do(t.Context(), effect.Request{Key: key}, func(context.Context, effect.Attempt) ([]byte, error) { return []byte("done"), nil })
	require.NoError(t, err)
	for range 2 {
		ended, err = o.Cancel(t.Context(), key)
		require.NoError(t, err)
		assert.True(t, ended)
		require.NoError(t, o.Release(t.Context(), key))
	}
	_, err = o.Attach(t.Context(), key)
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_EFFECT_UNKNOWN), "%v", err)
	assert.NoError(t, o.Drain(t.Context()))
}

// TestAKeptFailureKeepsItsReason: the caller that comes back with the key gets the reason and details of the first one.
func TestAKeptFailureKeepsItsReason(t *testing.T) {
	t.Parallel()
	o := owner(t, &memory.Ledger{})
	limited := rpcerr.ProviderRateLimited("openai", 429, 2*time.Second, "slow down")
	for range 2 {
		_, err := o.Do(t.Context(), effect.Request{Key: key}, func(context.Context, effect.Attempt) ([]byte, error) { return nil, limited })
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_RATE_LIMITED), "%v", err)
		assert.Equal(t, 2*time.Second, rpcerr.RetryAfter(err))
	}
}

func TestAHashIsOverTheContentAlone(t *testing.T) {
	t.Parallel()
	hash := func(model string) effect.Hash {
		h, err := effectrpc.Hash(&modelv1.GenerateRequest{Model: model, ModelArgsJson: `{"a":1}`})
		require.NoError(t, err)
		return h
	}
	first, other, again := hash("a/b"), hash("a/c"), hash("a/b")
	assert.Equal(t, first, again)
	assert.NotEqual(t, first, other)

	of := func(contents ...proto.Message) effect.Hash {
		h, err := effectrpc.Hash(contents...)
		require.NoError(t, err)
		return h
	}
	one, two := &modelv1.GenerateRequest{Model: "a/b"}, &modelv1.GenerateRequest{ModelArgsJson: `{"a":1}`}
	assert.NotEqual(t, of(one, two), of(two, one))
	assert.NotEqual(t, first, of(one, two), "the border between messages counts")
}
