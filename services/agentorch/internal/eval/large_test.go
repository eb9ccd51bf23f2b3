package eval_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/bound"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
)

// said is a run whose scorers repeat the model's answer.
func said(answer, value, metadata string, scorers int) *agentv1.Run {
	run := scored("C")
	run.Scores = nil
	for i := range scorers {
		run.Scores = append(run.Scores, &agentv1.NamedScore{Name: fmt.Sprint("match", i), Score: &agentv1.Score{
			Value:  &agentv1.ScoreValue{Kind: &agentv1.ScoreValue_Text{Text: value}},
			Answer: new(answer), Explanation: new(answer + "!"), MetadataJson: metadata,
		}})
	}
	return run
}

// TestAnEvaluationKeepsLittleOfLongScores: an answer and its explanation are in the journal of the runs with five
// scorers. The evaluation's own journal has them truncated, and small ones complete.
func TestAnEvaluationKeepsLittleOfLongScores(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ä", 1<<20)
	b := start(t, func(sample string, _, _ int) *agentv1.Run {
		if sample == "1" {
			return said(long, "C", `{"why": "`+long+`"}`, 5)
		}
		return said("short", "C", `{"why": "so"}`, 5)
	})
	made, err := b.engine.Create(t.Context(), "default", spec(2), "", false)
	require.NoError(t, err)
	end := b.ended(t, made.Eval.GetName())
	assert.Equal(t, agentv1.EvalState_EVAL_STATE_SUCCEEDED, end.Eval.GetState(), "%v", end.Eval.GetError())
	scores := end.Find("1.1").Finished.GetContent().GetScores()
	require.Len(t, scores, 5)
	for _, s := range scores {
		for _, text := range []string{s.GetScore().GetAnswer(), s.GetScore().GetExplanation()} {
			assert.LessOrEqual(t, len(text), bound.EvalScoreTextBytes)
			assert.True(t, utf8.ValidString(text))
			assert.True(t, strings.HasPrefix(text, "ääää"))
			assert.Contains(t, text, "… (cut; the run has all ")
		}
		assert.Contains(t, s.GetScore().GetMetadataJson(), "left out")
		assert.NotContains(t, s.GetScore().GetMetadataJson(), "ä")
	}
	short := end.Find("2.1").Finished.GetContent().GetScores()[0].GetScore()
	assert.Equal(t, []string{"short", "short!", `{"why": "so"}`}, []string{short.GetAnswer(), short.GetExplanation(), short.GetMetadataJson()})
}

// TestScoresThatAreTooLargeFailTheirSample has values that cannot be truncated. The other samples continue.
func TestScoresThatAreTooLargeFailTheirSample(t *testing.T) {
	t.Parallel()
	b := start(t, func(sample string, _, _ int) *agentv1.Run {
		if sample == "2" {
			return said("", strings.Repeat("v", bound.EvalScoresBytes/2), "", 3)
		}
		return scored("C")
	})
	s := spec(3)
	s.FailOnError, s.RetryOnError = &agentv1.FailOnError{Rule: &agentv1.FailOnError_Enabled{}}, 4
	made, err := b.engine.Create(t.Context(), "default", s, "", false)
	require.NoError(t, err)
	end := b.ended(t, made.Eval.GetName())
	assert.Equal(t, agentv1.EvalState_EVAL_STATE_SUCCEEDED, end.Eval.GetState(), "%v", end.Eval.GetError())
	assert.EqualValues(t, 2, end.Eval.GetProgress().GetSucceeded())
	failed := end.Find("2.1").Finished
	assert.Equal(t, agentv1.RunState_RUN_STATE_FAILED, failed.GetState())
	assert.Equal(t, "REQUEST_TOO_LARGE", failed.GetError().GetReason())
	assert.Contains(t, failed.GetError().GetMessage(), failed.GetRun())
	assert.Len(t, b.runs.byName, 3, "a run that was paid for is not made again for it")
}

// TestARunThatCannotBeReadFailsItsSample has the journal of one run damaged.
func TestARunThatCannotBeReadFailsItsSample(t *testing.T) {
	t.Parallel()
	b := start(t, func(string, int, int) *agentv1.Run { return scored("C") })
	b.runs.reading = func(run string) error {
		if strings.HasSuffix(run, "/r1") {
			return fmt.Errorf("read: %w", journal.ErrUnreadable)
		}
		return nil
	}
	s := spec(2)
	s.FailOnError = &agentv1.FailOnError{Rule: &agentv1.FailOnError_Enabled{}}
	made, err := b.engine.Create(t.Context(), "default", s, "", false)
	require.NoError(t, err)
	end := b.ended(t, made.Eval.GetName())
	assert.Equal(t, agentv1.EvalState_EVAL_STATE_SUCCEEDED, end.Eval.GetState(), "%v", end.Eval.GetError())
	assert.EqualValues(t, 1, end.Eval.GetProgress().GetSucceeded())
	assert.Equal(t, "INTERNAL", end.Find("1.1").Finished.GetError().GetReason())
}

// narrow takes no results, as a journal takes none over its bound.
type narrow struct{ journal.Store }

func (s narrow) Append(ctx context.Context, a journal.Append) error {
	for _, e := range a.Entries {
		if e.Event.GetResultsComputed() != nil {
			return rpcerr.RequestTooLarge("", 5, "event %d is too large", e.Event.GetSeq())
		}
	}
	return s.Store.Append(ctx, a)
}

// TestResultsThatAreTooLargeEndTheEvaluation has it fail with the reason, and not try for ever.
func TestResultsThatAreTooLargeEndTheEvaluation(t *testing.T) {
	t.Parallel()
	b := start(t, func(string, int, int) *agentv1.Run { return scored("C") })
	b.again(t, func(s journal.Store) journal.Store { return narrow{s} })
	made, err := b.engine.Create(t.Context(), "default", spec(1), "", false)
	require.NoError(t, err)
	end := b.ended(t, made.Eval.GetName())
	assert.Equal(t, agentv1.EvalState_EVAL_STATE_FAILED, end.Eval.GetState())
	assert.Equal(t, "REQUEST_TOO_LARGE", end.Eval.GetError().GetReason())
}

// weighing notes the most bytes that one append has.
type weighing struct {
	journal.Store
	most *atomic.Int64
}

func (w weighing) Append(ctx context.Context, a journal.Append) error {
	size := 0
	for _, e := range a.Entries {
		size += proto.Size(e.Event)
	}
	w.most.Store(max(w.most.Load(), int64(size)))
	return w.Store.Append(ctx, a)
}

// TestWhatRunsSaidIsCollectedInShares has many runs end at once, each with a mebibyte of scores.
func TestWhatRunsSaidIsCollectedInShares(t *testing.T) {
	t.Parallel()
	const samples, share = 16, 4 << 20
	b := start(t, func(string, int, int) *agentv1.Run { return said(strings.Repeat("a", 60<<10), "C", "", 9) })
	var most atomic.Int64
	b.again(t, func(s journal.Store) journal.Store { return weighing{s, &most} })
	s := spec(samples)
	s.MaxSamples, s.Scorers = new(int32(samples)), nil
	made, err := b.engine.Create(t.Context(), "default", s, "", false)
	require.NoError(t, err)
	end := b.ended(t, made.Eval.GetName())
	assert.EqualValues(t, samples, end.Eval.GetProgress().GetSucceeded())
	assert.LessOrEqual(t, most.Load(), int64(share+2<<20), "the last of a share may exceed it")
}

// TestRowsOfEvaluationsHaveNoContent has a specification with large content. The row is written with each append, and
// lists show no content.
func TestRowsOfEvaluationsHaveNoContent(t *testing.T) {
	t.Parallel()
	b := start(t, func(string, int, int) *agentv1.Run { return scored("C") })
	wanted := spec(1)
	wanted.MetadataJson = `"` + strings.Repeat("m", 1<<20) + `"`
	made, err := b.engine.Create(t.Context(), "default", wanted, "", false)
	require.NoError(t, err)
	end := b.ended(t, made.Eval.GetName())
	assert.Equal(t, wanted.GetMetadataJson(), end.Eval.GetSpec().GetMetadataJson())
	rows, err := b.journals.List(t.Context(), journal.Query{Kind: journal.KindEval})
	require.NoError(t, err)
	require.Len(t, rows, 1)
	assert.Less(t, len(rows[0].View), 64<<10)
	listed := &agentv1.Eval{}
	require.NoError(t, proto.Unmarshal(rows[0].View, listed))
	assert.Equal(t, "t", listed.GetSpec().GetTask())
	assert.EqualValues(t, 1, listed.GetProgress().GetSucceeded())
}
