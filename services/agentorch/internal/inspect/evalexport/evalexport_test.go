package evalexport_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/sqlite"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/eval"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/inspect/evalexport"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	journalsqlite "github.com/evalfleet/evalfleet/services/agentorch/internal/journal/sqlite"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/builtin"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/metric"
)

const name = "projects/p/evals/e"

// document is a part of a log's content.
type document struct {
	Eval struct {
		ModelConfig map[string]any                             `json:"model_generate_config"`
		ModelRoles  map[string]struct{ Config map[string]any } `json:"model_roles"`
	}
	Plan    struct{ Config map[string]any }
	Samples []struct {
		ID, Input, UUID string
		Messages        []struct{ Content json.RawMessage }
		Error           struct{ Message, Traceback string }
		Scores          map[string]struct{ Answer string }
		Fallbacks       []struct {
			Model string
			By    string `json:"fallback_model"`
			Count int
		} `json:"model_fallbacks"`
		Events []struct {
			Event   string
			Message json.RawMessage
		}
	}
}

// written is the log of an evaluation with these journals, by name. Damage is done to the database before it is made.
func written(t *testing.T, samples []*agentv1.Sample, of map[string][]*agentv1.Event, damage ...string) document {
	t.Helper()
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "e.db"), sqlite.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	journals, err := journalsqlite.Open(t.Context(), db, nil)
	require.NoError(t, err)
	for name, events := range of {
		var entries []journal.Entry
		for i, e := range events {
			e.Seq, e.Journal = int64(i+1), name
			entries = append(entries, journal.Entry{Event: e})
		}
		_, _, err = journals.Create(t.Context(), journal.Creation{Name: name, Owner: "test", Entries: entries, Row: journal.Row{Kind: journal.KindEval}})
		require.NoError(t, err)
	}
	for _, text := range damage {
		require.NoError(t, db.Write(t.Context(), func(tx *sqlite.Tx) error { _, err := tx.Exec(text); return err }))
	}
	x := evalexport.New(evalexport.Deps{
		Journals: journals, Judges: eval.Judges{Scorers: score.NewRegistry(builtin.Definitions()...), Metrics: metric.NewRegistry()},
		Blobs:   noBodies{},
		Samples: func(context.Context, *eval.State) (*eval.Samples, error) { return eval.PackSamples(samples) },
	})
	log, err := x.Open(t.Context(), "p", name, evalexport.Document, 0)
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, log.Write(t.Context(), &out, func(int) {}))
	var d document
	require.NoError(t, json.Unmarshal(out.Bytes(), &d))
	return d
}

// noBodies has lost all bodies.
type noBodies struct{ eval.Blobs }

func (noBodies) Open(_ context.Context, _, hash string) (io.ReadCloser, error) {
	return nil, rpcerr.ResourceNotFound("blobs/" + hash)
}

func created(c *agentv1.EvalCreated) *agentv1.Event {
	c.Spec = &agentv1.EvalSpec{
		Task: "t", Dataset: &agentv1.Dataset{Name: "d"}, Models: []*agentv1.ModelRef{{Model: "mockllm/model"}},
		Steps: []*agentv1.AgentRef{{Name: "multiple_choice"}}, Scorers: []*agentv1.ScorerRef{{Name: "match"}},
	}
	return &agentv1.Event{Kind: &agentv1.Event_EvalCreated{EvalCreated: c}}
}

func question(id string) *agentv1.Sample {
	return &agentv1.Sample{Id: id, Input: []*modelv1.ChatMessage{chat.User("which?")}, InputText: true}
}

// refused is a sample that could have no run.
func refused(sample string, position int32) *agentv1.Event {
	return &agentv1.Event{Kind: &agentv1.Event_SampleFinished{SampleFinished: &agentv1.SampleFinished{
		Sample: sample, Epoch: 1, Position: position, State: agentv1.RunState_RUN_STATE_FAILED,
		Error: &agentv1.RunError{Reason: "INVALID_REQUEST", Message: "needs choices"},
	}}}
}

func TestASampleThatCouldHaveNoRunIsInTheLogWithItsError(t *testing.T) {
	t.Parallel()
	d := written(t, []*agentv1.Sample{question("a"), question("b")}, map[string][]*agentv1.Event{
		name: {created(&agentv1.EvalCreated{Samples: 2}), refused("b", 1)},
	})
	require.Len(t, d.Samples, 1)
	s := d.Samples[0]
	assert.Equal(t, "b", s.ID)
	assert.Equal(t, "which?", s.Input)
	assert.NotEmpty(t, s.UUID)
	require.Len(t, s.Messages, 1)
	assert.Equal(t, "needs choices", s.Error.Message)
	assert.Equal(t, "Traceback (most recent call last):\nINVALID_REQUEST: needs choices\n", s.Error.Traceback)
}

// An option that one step alone does not send stays among those of the evaluation.
func TestAWarningOfAStepIsNoneOfTheEvaluationsOptions(t *testing.T) {
	t.Parallel()
	first := created(&agentv1.EvalCreated{Samples: 1, Warnings: []*agentv1.EvalWarning{
		{Message: "effort is not sent", Model: "mockllm/model", UnsentOptions: []string{"effort"}, Field: "spec.steps[0]"},
		{Message: "temperature is not sent", Model: "mockllm/model", UnsentOptions: []string{"temperature"}},
	}})
	first.GetEvalCreated().Spec.Config = &modelv1.GenerateConfig{Temperature: new(0.5), Effort: new("low")}
	d := written(t, []*agentv1.Sample{question("a")}, map[string][]*agentv1.Event{name: {first, refused("a", 0)}})
	assert.Equal(t, map[string]any{"effort": "low"}, d.Plan.Config)
}

// An option that is sent with another value is in the log as it is sent.
func TestAnOptionThatIsSentByAnotherWordIsInTheLogAsSent(t *testing.T) {
	t.Parallel()
	first := created(&agentv1.EvalCreated{Samples: 1, Warnings: []*agentv1.EvalWarning{
		{Model: "mockllm/model", ChangedOptions: []*modelv1.ChangedOption{{Option: "reasoning_effort", Asked: "minimal", Sent: "low"}}},
	}})
	first.GetEvalCreated().Spec.Config = &modelv1.GenerateConfig{ReasoningEffort: new("minimal")}
	d := written(t, []*agentv1.Sample{question("a")}, map[string][]*agentv1.Event{name: {first, refused("a", 0)}})
	assert.Equal(t, map[string]any{"reasoning_effort": "low"}, d.Plan.Config)
}

// An option that no call is given was not sent, whichever models were called instead.
func TestAnOptionThatNoCallIsGivenIsNotInThePlan(t *testing.T) {
	t.Parallel()
	first := created(&agentv1.EvalCreated{Samples: 1, Warnings: []*agentv1.EvalWarning{
		{Message: "temperature is not given", Model: "mockllm/other", UnsentOptions: []string{"temperature"}, Field: "spec.config"},
		{Message: "top_k is not given to one step", Model: "mockllm/other", Field: "spec.steps[0]"},
	}})
	first.GetEvalCreated().Spec.Config = &modelv1.GenerateConfig{Temperature: new(0.5), TopK: new(int32(3)), Effort: new("low")}
	d := written(t, []*agentv1.Sample{question("a")}, map[string][]*agentv1.Event{name: {first, refused("a", 0)}})
	assert.Equal(t, map[string]any{"effort": "low", "top_k": 3.0}, d.Plan.Config)
}

// What a model has that is not used is not in the log as its own, and stays with a model of the same name that is
// called.
func TestOptionsOfAModelThatIsNeverCalledAreNotInTheLog(t *testing.T) {
	t.Parallel()
	const model, other = "mockllm/model", "mockllm/other"
	lost, sent := []string{"temperature"}, map[string]any{"temperature": 0.5}
	for what, c := range map[string]struct {
		warning             *agentv1.EvalWarning
		own, judge, unnamed map[string]any
	}{
		"the model":             {&agentv1.EvalWarning{Model: model, UnsentOptions: lost, Field: "spec.model"}, map[string]any{}, sent, sent},
		"a model of another":    {&agentv1.EvalWarning{Model: other, UnsentOptions: lost, Field: "spec.model"}, sent, sent, sent},
		"a role":                {&agentv1.EvalWarning{Model: model, UnsentOptions: lost, Field: `spec.model_roles["unnamed"]`}, sent, sent, map[string]any{}},
		"all calls of a model":  {&agentv1.EvalWarning{Model: model, UnsentOptions: lost}, map[string]any{}, map[string]any{}, map[string]any{}},
		"nothing that has them": {&agentv1.EvalWarning{Model: model, Field: "spec.model"}, sent, sent, sent},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			first := created(&agentv1.EvalCreated{Samples: 1, Warnings: []*agentv1.EvalWarning{c.warning}})
			ref := &agentv1.ModelRef{Model: model, Config: &modelv1.GenerateConfig{Temperature: new(0.5)}}
			spec := first.GetEvalCreated().GetSpec()
			spec.Models, spec.ModelRoles = []*agentv1.ModelRef{ref}, map[string]*agentv1.ModelRef{"judge": ref, "unnamed": ref}
			spec.Config = ref.GetConfig()
			d := written(t, []*agentv1.Sample{question("a")}, map[string][]*agentv1.Event{name: {first, refused("a", 0)}})
			assert.Equal(t, c.own, d.Eval.ModelConfig)
			assert.Equal(t, c.judge, d.Eval.ModelRoles["judge"].Config)
			assert.Equal(t, c.unnamed, d.Eval.ModelRoles["unnamed"].Config)
			if c.warning.GetField() != "" {
				assert.Equal(t, sent, d.Plan.Config)
			}
		})
	}
}

// Warnings of an evaluation are in its log once, also where its first sample has no transcript that could hold them.
func TestWarningsAreInTheLogOnce(t *testing.T) {
	t.Parallel()
	of := map[string][]*agentv1.Event{
		name: {
			created(&agentv1.EvalCreated{Samples: 3, Warnings: []*agentv1.EvalWarning{{Message: "temperature is not sent", Model: "mockllm/model"}}}),
			refused("a", 0),
		},
	}
	for i, sample := range []string{"b", "c"} {
		run := "projects/p/runs/" + sample
		of[name] = append(of[name],
			&agentv1.Event{Kind: &agentv1.Event_SampleAdmitted{SampleAdmitted: &agentv1.SampleAdmitted{
				Sample: sample, Epoch: 1, Run: run, Attempt: 1, Position: int32(i + 1),
			}}},
			&agentv1.Event{Kind: &agentv1.Event_SampleFinished{SampleFinished: &agentv1.SampleFinished{
				Sample: sample, Epoch: 1, Run: run, State: agentv1.RunState_RUN_STATE_SUCCEEDED,
			}}})
		of[run] = []*agentv1.Event{
			{Kind: &agentv1.Event_RunCreated{RunCreated: &agentv1.RunCreated{
				Spec: &agentv1.RunSpec{Model: &agentv1.ModelRef{Model: "mockllm/model"}}, FoldVersion: 1,
			}}},
			{Kind: &agentv1.Event_RunFinished{RunFinished: &agentv1.RunFinished{State: agentv1.RunState_RUN_STATE_SUCCEEDED}}},
		}
	}
	d := written(t, []*agentv1.Sample{question("a"), question("b"), question("c")}, of)
	require.Len(t, d.Samples, 3)
	var with []string
	for _, s := range d.Samples {
		for _, e := range s.Events {
			if e.Event == "logger" && strings.Contains(string(e.Message), "temperature is not sent") {
				with = append(with, s.ID)
			}
		}
	}
	assert.Equal(t, []string{"b"}, with)
}

// A sample names the models that answered in place of others, with the number of answers.
func TestModelsThatAnsweredInPlaceOfOthersAreInTheLog(t *testing.T) {
	t.Parallel()
	const run = "projects/p/runs/a"
	events := []*agentv1.Event{
		{Kind: &agentv1.Event_RunCreated{RunCreated: &agentv1.RunCreated{
			Spec: &agentv1.RunSpec{Model: &agentv1.ModelRef{Model: "mockllm/model"}, Steps: []*agentv1.AgentRef{{Name: "generate"}}}, FoldVersion: 1,
		}}},
		{Kind: &agentv1.Event_StepBegan{StepBegan: &agentv1.StepBegan{Name: "generate"}}},
	}
	for _, fallback := range []*modelv1.ModelFallback{
		{Model: "mockllm/model", FallbackModel: "mockllm/b", Count: 1}, nil, {Model: "mockllm/model", FallbackModel: "mockllm/b", Count: 2}, {Model: "mockllm/model", FallbackModel: "mockllm/a"},
	} {
		intent := int64(len(events) + 1)
		events = append(events,
			&agentv1.Event{Kind: &agentv1.Event_ModelIntent{ModelIntent: &agentv1.ModelIntent{Model: "mockllm/model"}}},
			&agentv1.Event{Kind: &agentv1.Event_ModelOutcome{ModelOutcome: &agentv1.ModelOutcome{
				Intent: intent, Content: &agentv1.ModelOutcomeContent{Output: &modelv1.ModelOutput{Fallback: fallback}},
			}}})
	}
	events = append(events, &agentv1.Event{Kind: &agentv1.Event_RunFinished{RunFinished: &agentv1.RunFinished{State: agentv1.RunState_RUN_STATE_SUCCEEDED}}})
	d := written(t, []*agentv1.Sample{question("a"), question("b")}, map[string][]*agentv1.Event{
		name: {
			created(&agentv1.EvalCreated{Samples: 2}),
			{Kind: &agentv1.Event_SampleAdmitted{SampleAdmitted: &agentv1.SampleAdmitted{Sample: "a", Epoch: 1, Run: run, Attempt: 1}}},
			{Kind: &agentv1.Event_SampleFinished{SampleFinished: &agentv1.SampleFinished{Sample: "a", Epoch: 1, Run: run, State: agentv1.RunState_RUN_STATE_SUCCEEDED}}},
			refused("b", 1),
		},
		run: events,
	})
	require.Len(t, d.Samples, 2)
	require.Len(t, d.Samples[0].Fallbacks, 2)
	assert.Equal(t, "mockllm/model", d.Samples[0].Fallbacks[0].Model)
	assert.Equal(t, "mockllm/b", d.Samples[0].Fallbacks[0].By)
	assert.Equal(t, 3, d.Samples[0].Fallbacks[0].Count)
	assert.Equal(t, "mockllm/a", d.Samples[0].Fallbacks[1].By)
	assert.Equal(t, 1, d.Samples[0].Fallbacks[1].Count)
	assert.Nil(t, d.Samples[1].Fallbacks)
}

// A run that cannot be read, and a picture that is lost, are the matter of their samples: the log has all others.
func TestOneDamagedRunStopsNoLog(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("the answer ", 1000)
	of := map[string][]*agentv1.Event{name: {created(&agentv1.EvalCreated{Samples: 3})}}
	for i, sample := range []string{"a", "b", "c"} {
		run := "projects/p/runs/" + sample
		kept := []*agentv1.NamedScore{{Name: "match", Score: &agentv1.Score{Answer: new("cut")}}}
		if sample == "c" {
			kept = nil // They are too large for the evaluation.
		}
		of[name] = append(of[name],
			&agentv1.Event{Kind: &agentv1.Event_SampleAdmitted{SampleAdmitted: &agentv1.SampleAdmitted{
				Sample: sample, Epoch: 1, Run: run, Attempt: 1, Position: int32(i),
			}}},
			&agentv1.Event{Kind: &agentv1.Event_SampleFinished{SampleFinished: &agentv1.SampleFinished{
				Sample: sample, Epoch: 1, Run: run, State: agentv1.RunState_RUN_STATE_SUCCEEDED,
				Content: &agentv1.SampleFinishedContent{Scores: kept},
			}}})
		picture := chat.User("")
		picture.Content = chat.ListContent(&contentv1.Content{Part: &contentv1.Content_Image{Image: &contentv1.Image{Media: &contentv1.Media{
			Source: &contentv1.Media_Blob{Blob: &contentv1.BlobRef{Hash: strings.Repeat("0", 64), MediaType: "image/png"}},
		}}}})
		score := &agentv1.ScoreContent{Score: &agentv1.Score{Answer: new(sample + long)}}
		of[run] = []*agentv1.Event{
			{Kind: &agentv1.Event_RunCreated{RunCreated: &agentv1.RunCreated{
				Spec: &agentv1.RunSpec{Model: &agentv1.ModelRef{Model: "mockllm/model"}, Scorers: []*agentv1.ScorerRef{{Name: "match"}}}, FoldVersion: 1,
			}}},
			{Kind: &agentv1.Event_MessageAdded{MessageAdded: &agentv1.MessageAdded{Content: picture}}},
			{Kind: &agentv1.Event_RunStateChanged{RunStateChanged: &agentv1.RunStateChanged{State: agentv1.RunState_RUN_STATE_SCORING}}},
			{Kind: &agentv1.Event_ScoreIntent{ScoreIntent: &agentv1.ScoreIntent{Name: "match", Scorer: &agentv1.ScorerRef{Name: "match"}}}},
			{Kind: &agentv1.Event_ScoreOutcome{ScoreOutcome: &agentv1.ScoreOutcome{Intent: 4, Name: "match", Content: score}}},
			{Kind: &agentv1.Event_RunFinished{RunFinished: &agentv1.RunFinished{State: agentv1.RunState_RUN_STATE_SUCCEEDED}}},
		}
	}
	d := written(t, []*agentv1.Sample{question("a"), question("b"), question("c")}, of, `UPDATE journal_blob SET body = 'damaged' WHERE hash =
		(SELECT e.hash FROM journal_event e JOIN journal j ON j.id = e.journal WHERE j.name = 'projects/p/runs/b' AND e.seq = 5)`)
	require.Len(t, d.Samples, 3)
	for i, id := range []string{"a", "b", "c"} {
		s := d.Samples[i]
		assert.Equal(t, id, s.ID)
		assert.Equal(t, id, s.UUID)
		if id == "b" {
			assert.Contains(t, s.Error.Message, "cannot be read")
			assert.Equal(t, "cut", s.Scores["match"].Answer)
			continue
		}
		assert.Empty(t, s.Error.Message)
		assert.Equal(t, id+long, s.Scores["match"].Answer, "the run has all of a score")
		require.Len(t, s.Messages, 1)
		assert.Contains(t, string(s.Messages[0].Content), strings.Repeat("0", 64), "what was lost")
	}
}
