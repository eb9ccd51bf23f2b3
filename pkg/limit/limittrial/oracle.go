package limittrial

import (
	"context"
	"time"

	"github.com/evalfleet/evalfleet/pkg/limit"
)

// Oracle runs the trial with a limiter that knows the capacity at each moment. Of a provider that counts calls in time
// its result is what that may serve.
func (t Trial) Oracle(ctx context.Context) (Result, error) {
	if t.Shape.InFlight == nil {
		counted := t.For - Warm
		if w := t.Shape.Window; w > 0 { // Those that begin after Warm; the one before may be used up.
			counted = t.For/w*w - (Warm+w-1)/w*w
		}
		return Result{Served: int(t.Shape.PerSecond * counted.Seconds())}, nil
	}
	l, r := &limit.Memory{}, limit.Request{Key: "oracle", Fixed: t.Shape.InFlight(0)}
	start := time.Now()
	ctx, stop := context.WithCancel(ctx)
	moved := make(chan struct{})
	go func() {
		defer close(moved)
		tick := time.NewTicker(t.real(100 * time.Millisecond))
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-tick.C:
				// An unknown pool is one that has no caller yet.
				_, _ = l.SetMax(ctx, r.Key, t.Shape.InFlight(now.Sub(start)*time.Duration(max(t.Speed, 1))))
			}
		}
	}()
	result, err := t.Run(context.WithoutCancel(ctx), r, l)
	stop()
	<-moved
	return result, err
}
