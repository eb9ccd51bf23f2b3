package score_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
)

// asking is a scorer that needs one effect: it asks for a number and scores with it.
type asking struct{}

type numberWanted struct{ upTo int }

func (asking) Next(in score.Input, results []score.Result) (score.Step, error) {
	if len(results) == 0 {
		return score.Step{Effect: numberWanted{upTo: len(in.Targets)}}, nil
	}
	n, ok := results[0].(int)
	if !ok {
		return score.Step{}, errors.New("no number came")
	}
	return score.Step{Score: &score.Score{Value: score.Number(float64(n))}}, nil
}

func definition(name string) score.Definition {
	return score.Definition{Name: name, New: func(json.RawMessage) (score.Scorer, error) { return asking{}, nil }}
}

func TestRegistryNamesWhatItKnows(t *testing.T) {
	t.Parallel()
	r := score.NewRegistry(definition("zebra"), definition("ask"))
	names := []string{}
	for _, d := range r.Definitions() {
		names = append(names, d.Name)
	}
	assert.Equal(t, []string{"ask", "zebra"}, names)
	_, err := r.New("aks", nil)
	require.ErrorContains(t, err, `unknown scorer "aks"; known: ask, zebra`)
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_SCORER_NOT_FOUND))
	assert.Panics(t, func() { score.NewRegistry(definition("a"), definition("a")) })
}

func TestScorerWithEffect(t *testing.T) {
	t.Parallel()
	s, err := score.NewRegistry(definition("ask")).New("ask", nil)
	require.NoError(t, err)
	step, err := s.Next(score.Input{Targets: []string{"a", "b"}}, nil)
	require.NoError(t, err)
	assert.Nil(t, step.Score)
	assert.Equal(t, numberWanted{upTo: 2}, step.Effect)
	step, err = s.Next(score.Input{}, []score.Result{2})
	require.NoError(t, err)
	require.NotNil(t, step.Score)
	assert.True(t, step.Score.Value.Equal(score.Number(2)))
}

func TestFuncFailsWithoutAStep(t *testing.T) {
	t.Parallel()
	fails := score.Func(func(score.Input) (score.Score, error) { return score.Score{}, errors.New("no choices") })
	step, err := fails.Next(score.Input{}, nil)
	require.Error(t, err)
	assert.Equal(t, score.Step{}, step)
}
