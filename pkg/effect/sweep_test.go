package effect_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/effect"
	"github.com/evalfleet/evalfleet/pkg/effect/memory"
)

func TestMarksAreForgottenWithinAMinuteOfTheirTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ledger := &memory.Ledger{}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go effect.Sweep(ctx, ledger, slog.New(slog.DiscardHandler))
		_, err := runner(t, ledger).Do(t.Context(), request, new(counted).work)
		require.NoError(t, err)
		require.NoError(t, ledger.Release(t.Context(), request.Key))
		time.Sleep(effect.KeepReleased - time.Second)
		_, err = ledger.Lookup(t.Context(), request.Key)
		require.NoError(t, err)
		time.Sleep(2 * time.Minute)
		_, err = ledger.Lookup(t.Context(), request.Key)
		assert.ErrorIs(t, err, effect.ErrUnknown)
	})
}
