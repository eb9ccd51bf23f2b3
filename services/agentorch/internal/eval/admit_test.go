package eval_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
)

// TestAdmissionHeedsWhatHappensMeanwhile has far more samples than one turn of the driver begins. Something happens
// before sample 20 begins, and the driver must see it long before the last one does.
func TestAdmissionHeedsWhatHappensMeanwhile(t *testing.T) {
	t.Parallel()
	const samples, before, atOnce = 200, 20, 16
	post := func(body string) func(*testing.T, *bench, string) {
		return func(t *testing.T, b *bench, eval string) {
			assert.NoError(t, b.journals.Post(t.Context(), eval, journal.Command{ID: "c", Body: []byte(body)}))
		}
	}
	for name, tt := range map[string]struct {
		happens func(*testing.T, *bench, string)
		want    func(*agentv1.Eval) bool
	}{
		"a cancel": {
			post(`{"type": "cancel", "reason": "enough"}`),
			func(e *agentv1.Eval) bool { return e.GetState() == agentv1.EvalState_EVAL_STATE_CANCELLED },
		},
		"a lower bound": {
			post(`{"type": "update", "update": {"max_samples": 30}}`),
			func(e *agentv1.Eval) bool {
				return e.GetSpec().GetMaxSamples() == 30 && e.GetProgress().GetRunning() >= 30
			},
		},
		"an error": {
			func(t *testing.T, b *bench, _ string) {
				b.runs.mu.Lock()
				defer b.runs.mu.Unlock()
				run := b.runs.byName["projects/default/runs/r1"]
				head, err := b.journals.Open(t.Context(), run.GetName())
				assert.NoError(t, err)
				run.State, run.Error = agentv1.RunState_RUN_STATE_FAILED, failed().GetError()
				assert.NoError(t, b.runs.end(t.Context(), head, run))
			},
			func(e *agentv1.Eval) bool { return e.GetState() == agentv1.EvalState_EVAL_STATE_FAILED },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t, func(string, int, int) *agentv1.Run { return working() })
			made := 0
			b.runs.making = func(eval string) {
				if made++; made == before {
					tt.happens(t, b, eval)
				}
			}
			many := spec(samples)
			many.MaxSamples = new(int32(samples))
			state, err := b.engine.Create(t.Context(), "default", many, "", false)
			require.NoError(t, err)
			b.wait(t, state.Eval.GetName(), tt.want)
			b.engine.Close()
			assert.LessOrEqual(t, made, before+atOnce)
		})
	}
}
