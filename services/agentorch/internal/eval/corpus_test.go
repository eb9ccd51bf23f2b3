package eval_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/corpustest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/eval"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
)

// shapes are evaluations that are recorded once, by the name of their journal. A recorded journal stays as it is;
// another shape gets a name of its own.
var shapes = map[string]func(t *testing.T) (b *bench, name string){
	"finished": func(t *testing.T) (*bench, string) {
		b := start(t, func(sample string, epoch, _ int) *agentv1.Run {
			run := scored("C")
			run.RoleUsage = map[string]*modelv1.ModelUsage{"grader": {TotalTokens: 3, TotalCost: new(0.1)}}
			if sample == "2" {
				run.Limit, run.SandboxFault = &agentv1.LimitReached{Type: agentv1.LimitType_LIMIT_TYPE_MESSAGE, Limit: 2}, "the sandbox is lost"
			}
			if epoch == 2 {
				run.Scores, run.LostModelCalls = scored("I").GetScores(), 1
			}
			return run
		})
		s := spec(2)
		s.Epochs, s.Models = &agentv1.Epochs{Count: new(int32(2))}, append(s.Models, &agentv1.ModelRef{Model: "mockllm/other"})
		return b, b.create(t, s)
	},
	"failed": func(t *testing.T) (*bench, string) {
		b := start(t, func(sample string, _, attempt int) *agentv1.Run {
			if sample == "1" && attempt == 2 {
				return scored("C")
			}
			return failed()
		})
		s := spec(2)
		s.RetryOnError = 1
		return b, b.create(t, s)
	},
	"failures-tolerated": func(t *testing.T) (*bench, string) {
		b := start(t, func(sample string, _, _ int) *agentv1.Run {
			if sample == "1" {
				return failed()
			}
			return scored("C")
		})
		b.runs.refuse = func(sample string) error {
			if sample == "2" {
				return rpcerr.InvalidField("spec.sandboxes", "the sample %s has none", sample)
			}
			return nil
		}
		s := spec(4)
		s.FailOnError = &agentv1.FailOnError{Rule: &agentv1.FailOnError_Threshold{Threshold: 0.9}}
		return b, b.create(t, s)
	},
	"cancelled-and-resumed": func(t *testing.T) (*bench, string) {
		var mended atomic.Bool
		b := start(t, func(sample string, _, _ int) *agentv1.Run {
			if sample == "1" || mended.Load() {
				return scored("C")
			}
			return working()
		})
		name := b.create(t, spec(3))
		at := b.wait(t, name, func(e *agentv1.Eval) bool {
			return e.GetProgress().GetSucceeded() == 1 && e.GetProgress().GetRunning() == 2
		})
		_, err := b.engine.Update(t.Context(), name, eval.Update{Tags: &[]string{"night"}, MaxSamples: new(int32(2))}, "less", at.Eval.GetEtag())
		require.NoError(t, err)
		_, err = b.engine.Update(t.Context(), name, eval.Update{Tags: &[]string{"late"}}, "", at.Eval.GetEtag())
		require.Error(t, err, "its etag has changed")
		_, err = b.engine.Cancel(t.Context(), name, "", "enough")
		require.NoError(t, err)
		mended.Store(true)
		_, err = b.engine.Resume(t.Context(), name)
		require.NoError(t, err)
		return b, name
	},
	"failed-and-resumed": func(t *testing.T) (*bench, string) {
		var mended atomic.Bool
		b := start(t, func(sample string, _, _ int) *agentv1.Run {
			if sample == "1" || mended.Load() {
				return scored("C")
			}
			return failed()
		})
		s := spec(2)
		s.ContinueOnFail, s.Epochs = true, &agentv1.Epochs{Count: new(int32(2))}
		name := b.create(t, s)
		assert.Equal(t, agentv1.EvalState_EVAL_STATE_FAILED, b.ended(t, name).Eval.GetState())
		mended.Store(true)
		_, err := b.engine.Resume(t.Context(), name)
		require.NoError(t, err)
		return b, name
	},
	"adopted": func(t *testing.T) (*bench, string) {
		var mended atomic.Bool
		b := start(t, func(string, int, int) *agentv1.Run {
			if mended.Load() {
				return scored("C")
			}
			return working()
		})
		name := b.create(t, spec(4))
		b.wait(t, name, func(e *agentv1.Eval) bool { return e.GetProgress().GetRunning() == 3 })
		b.engine.Close()
		mended.Store(true)
		adopted, err := b.journals.Claim(t.Context(), journal.Claim{Replica: "other", Limit: 10})
		require.NoError(t, err)
		b.replica = "other"
		b.engine = b.newEngine()
		for _, l := range adopted {
			if l.Name == name {
				b.engine.Adopt(l.Head)
			}
		}
		for _, l := range adopted {
			if run := b.runs.byName[l.Name]; run != nil {
				run.State, run.Scores = agentv1.RunState_RUN_STATE_SUCCEEDED, scored("C").GetScores()
				require.NoError(t, b.runs.end(t.Context(), l.Head, run))
				b.engine.Wake(name)
			}
		}
		return b, name
	},
}

func (b *bench) create(t *testing.T, s *agentv1.EvalSpec) string {
	t.Helper()
	made, err := b.engine.Create(t.Context(), "default", s, "", false)
	require.NoError(t, err)
	return made.Eval.GetName()
}

// The engine still writes the evaluations of the corpus.
func TestRecordedJournalsAreTheEngines(t *testing.T) {
	for name, play := range shapes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, evaluation := play(t)
				assert.True(t, b.ended(t, evaluation).Ended())
				head, err := b.journals.Open(t.Context(), evaluation)
				require.NoError(t, err)
				corpustest.Record(t, "testdata/journals", name, journal.All(t.Context(), b.journals, head.Ref, 0))
			})
		})
	}
}
