package scorewire_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/scorewire"
)

func TestAScoreComesBackAsItWas(t *testing.T) {
	t.Parallel()
	answer := "B"
	for _, value := range []string{`"C"`, `1`, `1.0`, `0.5`, `true`, `["C", 2, false]`, `{"b": 1, "a": "x"}`} {
		var v score.Value
		require.NoError(t, json.Unmarshal([]byte(value), &v), value)
		want := score.Score{Value: v, Answer: &answer, Reason: "refusal", Metadata: map[string]json.RawMessage{"k": json.RawMessage(`{"x":1}`)}}
		got := scorewire.ToScore(scorewire.FromScore(want))
		assert.Equal(t, string(want.Value.AppendLog(nil)), string(got.Value.AppendLog(nil)), value)
		got.Value, want.Value = score.Value{}, score.Value{}
		assert.Equal(t, want, got, value)
	}
	assert.True(t, scorewire.ToValue(scorewire.FromValue(score.Unscored())).IsUnscored())
	assert.Nil(t, scorewire.FromValue(score.Value{}))
}
