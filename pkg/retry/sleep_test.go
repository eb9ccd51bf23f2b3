package retry_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/pkg/retry"
)

func TestSleepLastsAsLongAsItIsTold(t *testing.T) {
	t.Parallel()
	for _, d := range []time.Duration{-time.Second, 0, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			assert.NoError(t, retry.Sleep(t.Context(), d))
			assert.Equal(t, max(0, d), time.Since(start))
		})
	}
}

func TestSleepEndsWithItsContextAndSaysWhy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		start := time.Now()
		time.AfterFunc(time.Second, func() { cancel(why) })
		assert.ErrorIs(t, retry.Sleep(ctx, time.Hour), why)
		assert.Equal(t, time.Second, time.Since(start))
		assert.ErrorIs(t, retry.Sleep(ctx, 0), why)
	})
}
