package limit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/goldentest"
)

func TestGoldenNiceNumbers(t *testing.T) {
	t.Parallel()
	goldentest.Run(t, "nice-numbers", goldentest.Load(t, "core/nice-numbers.jsonl"), func(t *goldentest.T, c goldentest.Case) {
		var form struct{ Input int }
		require.NoError(t, c.Decode(&form))
		t.Equal(c.At("expect"), map[string]any{"up": niceUp(form.Input), "down": niceDown(form.Input)})
	})
}

type adaptiveCase struct {
	Input struct {
		Config struct {
			Min, Start, Max *int
			Cooldown        *float64 `json:"cooldown_seconds"`
			DecreaseFactor  *float64 `json:"decrease_factor"`
			ScaleUp         *float64 `json:"scale_up_percent"`
		}
		Events []struct {
			Do            string
			N, Max, Width int
			Seconds       float64
		}
	}
}

func TestGoldenAdaptive(t *testing.T) {
	t.Parallel()
	goldentest.Run(t, "adaptive-limiter", goldentest.Load(t, "core/adaptive-limiter.jsonl"), func(t *goldentest.T, c goldentest.Case) {
		var form adaptiveCase
		require.NoError(t, c.Decode(&form))
		start := time.Unix(0, 0)
		played := &game{controller: NewController(form.bounds()), now: start}
		states := []any{}
		for _, e := range form.Input.Events {
			var err error
			switch e.Do {
			case "acquire":
				played.acquire(e.N)
			case "release":
				played.release(e.N)
			case "success":
				played.success(e.N)
			case "rate_limit":
				for range e.N {
					played.controller.RateLimited(played.now, "")
				}
				played.admit()
			case "advance":
				played.now = played.now.Add(time.Duration(e.Seconds * float64(time.Second)))
			case "set_max":
				err = played.controller.SetMax(e.Max, played.now)
				played.admit()
			case "cycle":
				played.cycle(e.N, e.Width)
			default:
				t.Skipf("no driver for the event %q", e.Do)
			}
			c := played.controller
			state := map[string]any{
				"limit": c.Limit(), "in_use": played.inUse, "free": max(0, c.Limit()-played.inUse), "max": c.max, "min": c.min,
			}
			if err != nil {
				state["error"] = "invalid"
			}
			states = append(states, state)
		}
		history := []any{}
		for _, change := range played.controller.history.list() {
			history = append(history, map[string]any{
				"at": change.Time.Sub(start).Seconds(), "old": change.Old, "new": change.New, "reason": string(change.Reason),
			})
		}
		t.Equal(c.At("expect"), map[string]any{"after_each": states, "history": history})
	})
}

func (c adaptiveCase) bounds() Bounds {
	g := c.Input.Config
	b := Bounds{Max: orElse(g.Max, 100), DecreaseFactor: orElse(g.DecreaseFactor, 0.8), ScaleUp: orElse(g.ScaleUp, 0.05)}
	b.Min = orElse(g.Min, min(10, b.Max))
	b.Start = orElse(g.Start, max(b.Min, min(20, b.Max)))
	b.Cooldown = time.Duration(orElse(g.Cooldown, 15) * float64(time.Second))
	return b
}

func orElse[T any](value *T, fallback T) T {
	if value == nil {
		return fallback
	}
	return *value
}

// game plays events on a pool whose clock stops between them.
type game struct {
	controller *Controller
	now        time.Time
	inUse      int
	waiting    int
}

func (g *game) acquire(n int) {
	g.waiting += n
	g.admit()
}

func (g *game) admit() {
	for g.waiting > 0 && g.inUse < g.controller.Limit() {
		g.waiting--
		g.inUse++
		g.controller.Acquired(g.inUse, g.now)
	}
}

func (g *game) release(n int) {
	g.inUse -= min(n, g.inUse)
	g.admit()
}

func (g *game) success(n int) {
	for range n {
		g.controller.Clean(g.now, "")
	}
	g.admit()
}

// cycle makes n requests, width at a time, each a clean success.
func (g *game) cycle(n, width int) {
	for n > 0 {
		together := min(n, width)
		n -= together
		g.acquire(together)
		for range together {
			g.success(1)
			g.release(1)
		}
	}
}
