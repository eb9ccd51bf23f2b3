package engine_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/servicetest"
)

// refuses takes no message that begins with `large`, as the journal takes none over its bound.
type refuses struct{ journal.Store }

func (s refuses) Append(ctx context.Context, a journal.Append) error {
	for _, e := range a.Entries {
		if strings.HasPrefix(chat.Text(e.Event.GetMessageAdded().GetContent()), "large") {
			return rpcerr.RequestTooLarge("", 5, "the event is too large")
		}
	}
	return s.Store.Append(ctx, a)
}

// explains is a scorer whose explanation is larger than an event may be.
func explains() score.Definition {
	return score.Definition{Name: "explains", New: func(json.RawMessage) (score.Scorer, error) { return explainer{}, nil }}
}

type explainer struct{}

func (explainer) Next(score.Input, []score.Result) (score.Step, error) {
	return score.Step{Score: &score.Score{Value: score.Number(1), Explanation: new(strings.Repeat("e", bound.JournalValuesBytes))}}, nil
}

// TestAnEventThatIsTooLargeEndsItsRun has a run fail with the reason, and not wait for ever.
func TestAnEventThatIsTooLargeEndsItsRun(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		answer string
		change func(*agentv1.RunSpec)
	}{
		"of an agent":                  {"large", nil},
		"of an agent, with a sandbox":  {"large", func(s *agentv1.RunSpec) { s.Sandboxes = map[string]*sandboxv1.SandboxSpec{"default": {}} }},
		"of a scorer":                  {"fine", func(s *agentv1.RunSpec) { s.Scorers = []*agentv1.ScorerRef{{Name: "explains"}} }},
		"of a scorer, after the error": {"large", func(s *agentv1.RunSpec) { s.Scorers, s.ScoreOnError = []*agentv1.ScorerRef{{Name: "explains"}}, true }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			f.Scorers = score.NewRegistry(explains())
			f.Wrap = func(s journal.Store) journal.Store { return refuses{s} }
			f.start()
			f.Models.Answer = func(context.Context, *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
				return servicetest.Say(tt.answer), nil
			}
			s := spec(step("generate", ""))
			if tt.change != nil {
				tt.change(s)
			}
			got := f.Finish(f.Create(s).Name)
			require.Equal(t, agentv1.RunState_RUN_STATE_FAILED, got.Phase)
			assert.Equal(t, "REQUEST_TOO_LARGE", got.Error.GetReason())
			assert.Equal(t, 1, f.Models.Total())
			assert.Empty(t, f.Sandboxes.Alive())
		})
	}
}

// The model's answer and the targets may each be within their bounds, and still take minutes to compare.
func TestAnAnswerIsNotComparedWithTooManyTargets(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.Models.Answer = func(context.Context, *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
		return servicetest.Say(strings.Repeat("x", 1<<20)), nil
	}
	f.start()
	for targets, reason := range map[int]string{bound.ComparedBytes >> 20: "", bound.ComparedBytes>>20 + 1: "REQUEST_TOO_LARGE"} {
		s := spec(step("generate", ""))
		s.Scorers, s.Target = []*agentv1.ScorerRef{{Name: "exact"}}, &agentv1.Target{Values: slices.Repeat([]string{"a"}, targets), List: true}
		got := f.Finish(f.Create(s).Name)
		assert.Equal(t, reason, got.Error.GetReason(), "%d targets: %v", targets, got.Error)
	}
}
