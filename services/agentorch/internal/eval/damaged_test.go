package eval_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/testing/protocmp"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
)

// smudged gives rows of runs whose views cannot be read.
type smudged struct {
	journal.Store
	run string
}

func (s smudged) List(ctx context.Context, q journal.Query) ([]journal.Listed, error) {
	rows, err := s.Store.List(ctx, q)
	for i := range rows {
		if strings.HasSuffix(rows[i].Name, s.run) {
			rows[i].View = []byte("damaged")
		}
	}
	return rows, err
}

// TestADamagedRowStopsNoEvaluation has the row of one run damaged, of another also the journal. The journal has all
// that the row said; without it the sample fails, and the others go on.
func TestADamagedRowStopsNoEvaluation(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		verdict *agentv1.Run
		reading func(string) error
		state   agentv1.RunState
		reason  string
	}{
		"a run with scores":             {scored("C"), nil, agentv1.RunState_RUN_STATE_SUCCEEDED, ""},
		"a run that failed":             {failed(), nil, agentv1.RunState_RUN_STATE_FAILED, "INTERNAL"},
		"a run whose journal is too":    {scored("C"), unreadable("/r1"), agentv1.RunState_RUN_STATE_FAILED, "INTERNAL"},
		"a failed run whose journal is": {failed(), unreadable("/r1"), agentv1.RunState_RUN_STATE_FAILED, "INTERNAL"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t, func(sample string, _, _ int) *agentv1.Run {
				if sample == "1" {
					return tt.verdict
				}
				return scored("C")
			})
			b.runs.reading = tt.reading
			b.again(t, func(s journal.Store) journal.Store { return smudged{s, "/r1"} })
			s := spec(2)
			s.FailOnError = &agentv1.FailOnError{Rule: &agentv1.FailOnError_Enabled{}}
			made, err := b.engine.Create(t.Context(), "default", s, "", false)
			require.NoError(t, err)
			end := b.ended(t, made.Eval.GetName())
			assert.Equal(t, agentv1.EvalState_EVAL_STATE_SUCCEEDED, end.Eval.GetState(), "%v", end.Eval.GetError())
			first := end.Find("1.1").Finished
			assert.Equal(t, tt.state, first.GetState())
			assert.Equal(t, tt.reason, first.GetError().GetReason())
			if tt.reading == nil {
				assert.Empty(t, cmp.Diff(tt.verdict.GetUsage(), first.GetUsage(), protocmp.Transform()))
				assert.Empty(t, cmp.Diff(tt.verdict.GetScores(), first.GetContent().GetScores(), protocmp.Transform()))
			}
			assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, end.Find("2.1").Finished.GetState())
		})
	}
}

// unreadable damages the journals of runs whose names end so.
func unreadable(suffix string) func(string) error {
	return func(run string) error {
		if strings.HasSuffix(run, suffix) {
			return fmt.Errorf("read: %w", journal.ErrUnreadable)
		}
		return nil
	}
}
