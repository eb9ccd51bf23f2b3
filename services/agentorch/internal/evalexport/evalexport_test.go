package evalexport_test

import (
	"bytes"
	"context"
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/sqlite"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/eval"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/evalexport"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	journalsqlite "github.com/evalfleet/evalfleet/services/agentorch/internal/journal/sqlite"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/builtin"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/metric"
)

func TestASampleThatCouldHaveNoRunIsInTheLogWithItsError(t *testing.T) {
	t.Parallel()
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "e.db"), sqlite.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	journals, err := journalsqlite.Open(t.Context(), db, nil)
	require.NoError(t, err)

	const name = "projects/p/evals/e"
	events := []*agentv1.Event{
		{Kind: &agentv1.Event_EvalCreated{EvalCreated: &agentv1.EvalCreated{Samples: 2, Spec: &agentv1.EvalSpec{
			Task: "t", Dataset: &agentv1.Dataset{Name: "d"}, Models: []*agentv1.ModelRef{{Model: "mockllm/model"}},
			Steps: []*agentv1.AgentRef{{Name: "multiple_choice"}}, Scorers: []*agentv1.ScorerRef{{Name: "match"}},
		}}}},
		{Kind: &agentv1.Event_SampleFinished{SampleFinished: &agentv1.SampleFinished{
			Sample: "b", Epoch: 1, Position: 1, State: agentv1.RunState_RUN_STATE_FAILED,
			Error: &agentv1.RunError{Reason: "INVALID_REQUEST", Message: "needs choices"},
		}}},
	}
	var entries []journal.Entry
	for i, e := range events {
		e.Seq, e.Journal = int64(i+1), name
		entries = append(entries, journal.Entry{Event: e})
	}
	_, _, err = journals.Create(t.Context(), journal.Creation{Name: name, Owner: "test", Entries: entries, Row: journal.Row{Kind: journal.KindEval}})
	require.NoError(t, err)

	x := evalexport.New(evalexport.Deps{
		Journals: journals, Judges: eval.Judges{Scorers: score.NewRegistry(builtin.Definitions()...), Metrics: metric.NewRegistry()},
		Samples: func(context.Context, *eval.State) (*eval.Samples, error) {
			return eval.PackSamples([]*agentv1.Sample{{Id: "a"}, {Id: "b", Input: []*modelv1.ChatMessage{chat.User("which?")}, InputText: true}})
		},
	})
	log, err := x.Open(t.Context(), "p", name, evalexport.Document, 0)
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, log.Write(t.Context(), &out, func(int) {}))
	var document struct {
		Samples []struct {
			ID, Input, UUID string
			Messages        []struct{ Content string }
			Error           struct{ Message, Traceback string }
		}
	}
	require.NoError(t, json.Unmarshal(out.Bytes(), &document))
	require.Len(t, document.Samples, 1)
	s := document.Samples[0]
	assert.Equal(t, "b", s.ID)
	assert.Equal(t, "which?", s.Input)
	assert.NotEmpty(t, s.UUID)
	require.Len(t, s.Messages, 1)
	assert.Equal(t, "needs choices", s.Error.Message)
	assert.Equal(t, "Traceback (most recent call last):\nINVALID_REQUEST: needs choices\n", s.Error.Traceback)
}
