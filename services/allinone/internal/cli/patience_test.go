package cli

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// A server that starts again and again is there in between.
func TestAWatchIsResumedAsOftenAsTheServerAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		away := rpcerr.FromStatus(status.Error(codes.Unavailable, "the server is stopping"))
		watches := 0
		require.NoError(t, resume(t.Context(), func(heard func()) error {
			if watches++; watches > 10 {
				return nil
			}
			time.Sleep(againFor / 3)
			heard()
			return away
		}))
		assert.Equal(t, 11, watches)

		began := time.Now()
		require.ErrorIs(t, resume(t.Context(), func(func()) error { return away }), away)
		assert.InDelta(t, againFor.Seconds(), time.Since(began).Seconds(), 1, "one that is away")
	})
}
