package progress_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/progress"
)

func TestLatest(t *testing.T) {
	t.Parallel()
	var b progress.Board
	for i, key := range []progress.Key{{Run: "r1", Eval: "e", Intent: 3}, {Run: "r2", Eval: "e", Intent: 4}, {Run: "r3", Intent: 5}, {Run: "r1", Eval: "e", Intent: 6}} {
		b.Post(key, &agentv1.RunNote{Run: key.Run, Intent: key.Intent, Note: &effectv1.Note{Time: timestamppb.New(time.Unix(int64(i), 0))}})
	}
	latest := progress.Latest(&b, progress.OfEval("e"), 2)
	require.Len(t, latest, 2)
	assert.EqualValues(t, 6, latest[0].GetIntent())
	assert.EqualValues(t, 4, latest[1].GetIntent())
	assert.Len(t, progress.Latest(&b, progress.OfRun("r3"), 2), 1)
	assert.Empty(t, progress.Latest(&b, progress.OfRun("r9"), 2))
}
