package reduce_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/goldentest"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
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

func reducer(c goldentest.Case) (reduce.Reducer, error) {
	name, _ := c.At("input", "reducer").(string)
	return reduce.New(name)
}

func reduceValues(t *goldentest.T, c goldentest.Case) (any, error) {
	values, _ := c.At("input", "values").([]any)
	var scores []score.Score
	for _, v := range values {
		scores = append(scores, score.Score{Value: scoretest.Value(t, v)})
	}
	r, err := reducer(c)
	if err != nil {
		return nil, err
	}
	reduced, err := r.Reduce(scores)
	return scoretest.Recorded(reduced.Value), err
}

// decoded reads a value with its numbers as they are written, and the members of maps in order.
func decoded(t *goldentest.T, document json.RawMessage) any {
	if document == nil {
		return nil
	}
	value, err := orderedjson.Decode(document)
	require.NoError(t, err)
	return value
}

func reduceFields(t *goldentest.T, c goldentest.Case) (any, error) {
	var in struct {
		Input struct {
			Scores []struct {
				Value       json.RawMessage            `json:"value"`
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
			Value: scoretest.Value(t, decoded(t, s.Value)), Answer: s.Answer, Explanation: s.Explanation, Metadata: s.Metadata,
		})
	}
	r, err := reducer(c)
	if err != nil {
		return nil, err
	}
	s, err := r.Reduce(scores)
	return map[string]any{
		"value": scoretest.Recorded(s.Value), "answer": s.Answer, "explanation": s.Explanation, "metadata": s.Metadata,
	}, err
}
