package redis

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/limit"
	"github.com/evalfleet/evalfleet/pkg/limit/limittrial"
	"github.com/evalfleet/evalfleet/pkg/redistest"
)

// shares are parts: of what an oracle serves, of the attempts that are refused and of those that wait for Redis.
type shares struct{ goodput, refused, waited float64 }

// Three replicas that know nothing of a provider's capacity serve nearly what an oracle would, few of their calls are
// refused, and few wait for Redis.
func TestReplicasFindAMovingCapacity(t *testing.T) {
	// The goal is 0.95; goodput varies by a hundredth, with a small capacity by three, since the order of exchanges
	// does.
	goal := shares{goodput: 0.94, refused: 0.01, waited: 0.05}
	weaker := map[string]shares{
		"few":      {0.92, 0.01, 0.05},
		"fall":     {0.91, 0.0125, 0.05},
		"outage":   {0.95, 0.015, 0.05},
		"sawtooth": {0.90, 0.02, 0.05},
		"bucket":   {0.90, 0.03, 0.08},
		"window":   {0.92, 0.065, 0.15}, // 1, and once in a hundred trials a fifteenth less

		"window without Retry-After": {0.92, 0.08, 0.15},
		"window that says":           {0.95, 0.01, 0.10},
		"minute's 50 that it says":   {0.94, 0.05, 0.15}, // 320 calls in all, of which each refused one is 0.3 %
	}
	for _, shape := range limittrial.Shapes() {
		t.Run(shape.Name, func(t *testing.T) {
			simulate(t, func(t *testing.T, server *redistest.Server) {
				trial := limittrial.Trial{Shape: shape, Callers: 180, For: 6 * time.Minute}
				oracle, err := trial.Oracle(t.Context())
				require.NoError(t, err)
				f := newFleet(t, server, limittrial.Probing(), 1, "a", "b", "c")
				var replicas []limit.Limiter
				for _, r := range f.replicas {
					replicas = append(replicas, r)
				}
				got, err := trial.Run(t.Context(), f.request, replicas...)
				require.NoError(t, err)
				waited := 0
				for _, r := range f.replicas {
					waited += r.waited
				}
				share, waits := got.Of(oracle), float64(waited)/float64(got.Attempts)
				t.Logf("%s: %v, %.1f %% waited for Redis", shape.Name, share, 100*waits)
				want := goal
				if w, ok := weaker[shape.Name]; ok {
					want = w
				}
				assert.GreaterOrEqual(t, share.Goodput, want.goodput)
				assert.LessOrEqual(t, share.Refused, want.refused)
				assert.LessOrEqual(t, waits, want.waited)
			})
		})
	}
}
