package limit_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/limit"
	"github.com/evalfleet/evalfleet/pkg/limit/limittrial"
)

// A Prober serves nearly what an oracle would, and few of its calls are refused, however the capacity moves. Where it
// does not reach 95 % and 1 %, it says here how far it comes.
func TestAProberFindsACapacity(t *testing.T) {
	t.Parallel()
	weaker := map[string]struct{ goodput, refused float64 }{
		"fall":     {0.92, 0.0125}, // The way back from 25 to 60 begins when patience ends.
		"outage":   {0.97, 0.0125}, // Calls that began before end for seconds, and others are tried amid them.
		"sawtooth": {0.93, 0.0175}, // Two thirds of a slot more in a second, and half of them gone in a minute.
		"bucket":   {0.97, 0.03},   // A full bucket hides for seconds that too much is asked.
		"window":   {0.98, 0.07},   // The same each minute, when its calls are used up by 180 at once.

		"window without Retry-After": {0.98, 0.08},
	}
	for _, shape := range limittrial.Shapes() {
		t.Run(shape.Name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				trial := limittrial.Trial{Shape: shape, Callers: 180, For: 6 * time.Minute}
				oracle, err := trial.Oracle(t.Context())
				require.NoError(t, err)
				recorded, err := trial.Run(t.Context(), limittrial.Recorded(), &limit.Memory{})
				require.NoError(t, err)
				probing, err := trial.Run(t.Context(), limittrial.Probing(), &limit.Memory{})
				require.NoError(t, err)
				t.Logf("%s: the recorded rule %v; a prober %v", shape.Name, recorded.Of(oracle), probing.Of(oracle))
				goodput, refused := 0.95, 0.01
				if w, ok := weaker[shape.Name]; ok {
					goodput, refused = w.goodput, w.refused
				}
				assert.GreaterOrEqual(t, probing.Of(oracle).Goodput, goodput)
				assert.LessOrEqual(t, probing.Of(oracle).Refused, refused)
			})
		})
	}
}
