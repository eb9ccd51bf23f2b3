package offload_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/offload"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

func TestARoomIsSharedByCallsUntilTheyEnd(t *testing.T) {
	t.Parallel()
	s, request := store(t), asks(large("a"))
	small, err := offload.Put(t.Context(), s, here, request, offload.Limits{Value: offload.LargeBytes, Message: room})
	require.NoError(t, err)
	shared := offload.NewRoom(3 * offload.LargeBytes / 2)
	take := func(share *offload.Share) error {
		return offload.TakeRequest(offload.WithShare(t.Context(), share), s, here, proto.Clone(small), most)
	}
	first, second := shared.Share("modelgw"), shared.Share("modelgw")
	require.NoError(t, take(first))
	err = take(second)
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_SERVICE_UNAVAILABLE), "%v", err)
	assert.True(t, rpcerr.Transient(err))
	assert.Error(t, take(first), "a call has no room of its own")

	first.Release()
	require.NoError(t, take(second))
	require.Error(t, take(first))
	second.Close()
	require.NoError(t, take(first))
	require.NoError(t, take(second), "what it takes after its end does not count")
	first.Close()
	kept := shared.Share("modelgw")
	require.NoError(t, take(kept))
	one, two := offload.Keep(offload.WithShare(t.Context(), kept)), offload.Keep(offload.WithShare(t.Context(), kept))
	kept.Close()
	require.Error(t, take(shared.Share("modelgw")), "work that outlives its call holds what it has")
	one()
	one()
	require.Error(t, take(shared.Share("modelgw")))
	two()

	third := shared.Share("modelgw")
	require.NoError(t, take(third))
	third.Close()
	require.NoError(t, offload.TakeRequest(t.Context(), s, here, proto.Clone(small), most), "without a share nothing counts")
}
