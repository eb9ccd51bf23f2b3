package effect

import (
	"context"
	"log/slog"
	"time"
)

// sweepEvery is the interval between sweeps of a ledger, short enough that each sweep finds little.
const sweepEvery = time.Minute

// Sweep deletes, every minute until ctx ends, what [Ledger.Expire] may: results that no caller released within
// [KeepResults], and marks of released ones after [KeepReleased].
func Sweep(ctx context.Context, ledger Ledger, log *slog.Logger) {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		now := time.Now()
		if _, err := ledger.Expire(ctx, now.Add(-KeepResults), now.Add(-KeepReleased)); err != nil && ctx.Err() == nil {
			log.ErrorContext(ctx, "old results of effects are not forgotten", "error", err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}
