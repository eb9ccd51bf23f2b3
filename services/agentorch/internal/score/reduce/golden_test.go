package reduce_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/goldentest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/reduce"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/scoretest"
)

func TestGoldenReducers(t *testing.T) {
	t.Parallel()
	goldentest.Run(t, "reducers", goldentest.Load(t, "eval/reducers.jsonl"), func(t *goldentest.T, c goldentest.Case) {
		var got any
		var err error
		switch c.Op() {
		case "reduce":
			got, err = reduceValues(t, c)
		case "reduce_fields":
			got, err = reduceFields(t, c)
		case "reducer_name":
			name, _ := c.At("input").(string)
			_, err = reduce.New(name)
			got = 1 // a name makes one reducer
		default:
			t.Skipf("no driver for %q", c.Op())
		}
		if c.At("expect", "error") != nil {
			require.Error(t, err)
			return
		}
		require.NoError(t, err)
		t.Equal(c.At("expect"), got)
	})
}

func reducer(t *goldentest.T, c goldentest.Case) reduce.Reducer {
	name, _ := c.At("input", "reducer").(string)
	r, err := reduce.New(name)
	require.NoError(t, err)
	return r
}

func reduceValues(t *goldentest.T, c goldentest.Case) (any, error) {
	values, _ := c.At("input", "values").([]any)
	var scores []score.Score
	for _, v := range values {
		scores = append(scores, score.Score{Value: scoretest.Value(t, v)})
	}
	reduced, err := reducer(t, c).Reduce(scores)
	return scoretest.Recorded(reduced.Value), err
}

func reduceFields(t *goldentest.T, c goldentest.Case) (any, error) {
	var in struct {
		Input struct {
			Scores []struct {
				Value       any                        `json:"value"`
				Answer      *string                    `json:"answer"`
				Explanation *string                    `json:"explanation"`
				Metadata    map[string]json.RawMessage `json:"metadata"`
			} `json:"scores"`
		} `json:"input"`
	}
	require.NoError(t, c.Decode(&in))
	var scores []score.Score
	for _, s := range in.Input.Scores {
		scores = append(scores, score.Score{
			Value: scoretest.Value(t, s.Value), Answer: s.Answer, Explanation: s.Explanation, Metadata: s.Metadata,
		})
	}
	s, err := reducer(t, c).Reduce(scores)
	return map[string]any{
		"value": scoretest.Recorded(s.Value), "answer": s.Answer, "explanation": s.Explanation, "metadata": s.Metadata,
	}, err
}
