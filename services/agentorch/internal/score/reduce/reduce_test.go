package reduce_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/reduce"
)

func scores(values ...score.Value) []score.Score {
	all := make([]score.Score, len(values))
	for i, v := range values {
		all[i].Value = v
	}
	return all
}

func TestNames(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{"mean": "mean", "pass_at_3": "pass_at_3", "at_least_01": "at_least_1", "pass_k_2": "pass_k_2"} {
		r, err := reduce.New(given)
		require.NoError(t, err)
		assert.Equal(t, want, r.Name())
	}
	for _, name := range []string{"means", "mean_2", "pass_at_x", "pass_at_k", "", "_2"} {
		_, err := reduce.New(name)
		require.ErrorContains(t, err, "known: at_least_k, collect, majority, max, mean, median, mode, pass_at_k, pass_k_k", name)
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_SCORER_NOT_FOUND))
	}
	_, err := reduce.New("pass_at")
	require.ErrorContains(t, err, "such as pass_at_2")
	_, err = reduce.New("at_least_0")
	require.ErrorContains(t, err, "from 1")
	_, err = reduce.New("at_least_99999999999999999999")
	require.Error(t, err)
	for _, d := range reduce.Definitions() {
		assert.NotEmpty(t, d.Description)
	}
}

func TestCheckEpochs(t *testing.T) {
	t.Parallel()
	r, err := reduce.New("pass_at_3")
	require.NoError(t, err)
	require.NoError(t, r.CheckEpochs(3))
	require.ErrorContains(t, r.CheckEpochs(2), "needs 3 epochs, but the evaluation has 2")
	require.NoError(t, reduce.Mean().CheckEpochs(1))
}

func TestReduceWithoutScores(t *testing.T) {
	t.Parallel()
	s, err := reduce.Mean().Reduce(nil)
	require.NoError(t, err)
	assert.True(t, s.Value.IsUnscored())
}

func TestShapesMustAgree(t *testing.T) {
	t.Parallel()
	one := score.Number(1)
	entry := score.Entry{Key: "a", Value: one}
	for _, values := range [][]score.Value{
		{one, score.List(one)},
		{score.List(one), one},
		{score.List(), score.List(one)},
		{score.Map(), score.Map(entry)},
		{score.Map(entry), score.Map()},
		{score.Map(entry), score.Map(score.Entry{Key: "b", Value: one})},
		{score.List(one), score.Map(entry)},
	} {
		_, err := reduce.Mean().Reduce(scores(values...))
		require.ErrorContains(t, err, "different shapes")
	}
	s, err := reduce.Mean().Reduce(scores(score.List(one), score.Unscored(), score.List(score.Number(2))))
	require.NoError(t, err)
	assert.True(t, s.Value.Equal(score.List(score.Number(1.5))), "an unscored epoch has no shape")
}

func TestMajorityKeepsTheVotes(t *testing.T) {
	t.Parallel()
	majority, err := reduce.New("majority")
	require.NoError(t, err)
	votes := scores(score.Text("C"), score.Unscored(), score.Text("C"))
	votes[1].Reason, votes[1].Explanation = score.ReasonGraderFailed, new("no grade")
	s, err := majority.Reduce(votes)
	require.NoError(t, err)
	assert.Equal(t, "C", s.Value.Text())
	assert.JSONEq(t, `{"votes":["C",null,"C"],"size":3,"failures":[{"index":1,"reason":"grader_failed","explanation":"no grade"}]}`, string(s.Metadata["panel"]))
	assert.Nil(t, votes[0].Metadata, "the votes themselves stay as they are")
}

func TestFieldsOnWhichEpochsAgree(t *testing.T) {
	t.Parallel()
	all := []score.Score{
		{Value: score.Number(1), Answer: new("a"), Explanation: new("x"), Reason: "r"},
		{Value: score.Number(0), Answer: new("a"), Explanation: nil, Reason: "s"},
	}
	s, err := reduce.Mean().Reduce(all)
	require.NoError(t, err)
	assert.Equal(t, new("a"), s.Answer)
	assert.Nil(t, s.Explanation)
	assert.Empty(t, s.Reason)
	assert.Equal(t, new("x"), all[0].Explanation, "the epochs stay as they are")
}

func TestTheModeOfManyEpochsTakesLittleTime(t *testing.T) {
	t.Parallel()
	all := scores(score.Text("late"), score.Integer(1), score.Bool(true), score.Number(1))
	for i := range 200_000 {
		all = append(all, score.Score{Value: score.Text(strconv.Itoa(i))})
	}
	mode, err := reduce.New("mode")
	require.NoError(t, err)
	reduced := make(chan score.Score, 1)
	go func() {
		s, err := mode.Reduce(all)
		assert.NoError(t, err)
		reduced <- s
	}()
	assert.True(t, waittest.For(t, reduced, "the mode").Value.Equal(score.Integer(1)), "numbers and bools of one value are one")
}
