package score_test

import (
	"testing"

	"github.com/evalfleet/evalfleet/pkg/goldentest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/scoretest"
)

func TestGoldenValueToFloat(t *testing.T) {
	t.Parallel()
	goldentest.Run(t, "value-to-float", goldentest.Load(t, "eval/value-to-float.jsonl"), func(t *goldentest.T, c goldentest.Case) {
		f, _ := scoretest.Value(t, c.At("input")).Float()
		t.Equal(c.At("expect"), scoretest.Recorded(score.Number(f)))
	})
}
