package call

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/generate"
)

// says streams an answer of n pieces, and counts in sent how many were taken from it.
func says(n int, sent *int) func(context.Context, generate.Sink) (*modelv1.GenerateResponse, error) {
	return func(ctx context.Context, sink generate.Sink) (*modelv1.GenerateResponse, error) {
		sink.Started(ctx, 1, "v/m")
		for ; *sent < n && ctx.Err() == nil; *sent++ {
			sink.Delta(ctx, &modelv1.GenerateDelta{Piece: &modelv1.GenerateDelta_Text{Text: strconv.Itoa(*sent) + " "}})
		}
		return &modelv1.GenerateResponse{Model: "v/m"}, ctx.Err()
	}
}

// What a client does not take is not read from the provider, and nothing is lost once it reads on.
func TestAStreamIsReadAsFastAsItsClientTakesIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sent, said, want, read := 0, "", "", make(chan struct{})
		var last *modelv1.StreamGenerateResponse
		done := make(chan error, 1)
		go func() {
			done <- pass(t.Context(), func(event *modelv1.StreamGenerateResponse) error {
				<-read
				said, last = said+event.GetDelta().GetText(), event
				return nil
			}, says(1000, &sent))
		}()
		synctest.Wait()
		assert.LessOrEqual(t, sent, ahead, "the client has taken nothing")
		close(read)
		require.NoError(t, <-done)
		for i := range 1000 {
			want += strconv.Itoa(i) + " "
		}
		assert.Equal(t, want, said)
		assert.Equal(t, "v/m", last.GetCompleted().GetModel())
	})
}

// A client that is gone ends the call that waits for it.
func TestACallEndsWithItsOneWatcher(t *testing.T) {
	t.Parallel()
	gone := errors.New("the client is gone")
	sent := 0
	require.ErrorIs(t, pass(t.Context(), func(*modelv1.StreamGenerateResponse) error { return gone }, says(1000, &sent)), gone)
	assert.Less(t, sent, 1000)
}

// An attempt whose pieces its client does not take in time is the last one: another would be paid for, and the event of
// its beginning would be lost, so that its pieces would follow those of the one before.
func TestACallWhoseAttemptIsNotReadEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		attempts, read, done := 0, make(chan struct{}), make(chan error, 1)
		go func() {
			done <- pass(t.Context(), func(*modelv1.StreamGenerateResponse) error {
				<-read
				return nil
			}, func(ctx context.Context, sink generate.Sink) (*modelv1.GenerateResponse, error) {
				for attempts < 3 && ctx.Err() == nil {
					attempts++
					attempt, end := context.WithTimeout(ctx, 5*time.Second)
					sink.Restart(attempt, attempts, "v/m")
					for attempt.Err() == nil {
						sink.Delta(attempt, &modelv1.GenerateDelta{})
					}
					end()
				}
				return nil, context.Cause(ctx)
			})
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, 1, attempts)
		close(read)
		require.ErrorContains(t, <-done, "was not read")
	})
}
