package mockllm_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/mockllm"
)

// next makes one call on somebody's behalf and returns its text.
func next(t testing.TB, p provider.Provider, at *effectv1.Attribution) string {
	t.Helper()
	response, err := p.Generate(t.Context(), &provider.Request{
		Messages: []*modelv1.ChatMessage{chat.User("go on")}, Config: &modelv1.GenerateConfig{}, Attempt: 1,
		Origin: provider.Origin{Project: "p", Attribution: at},
	})
	require.NoError(t, err)
	return chat.Completion(response.Output)
}

const threeInOrder = `{"outputs": ["one", "two", "three"]}`

func TestEachEvalAndEachRunHasTheListToItself(t *testing.T) {
	t.Parallel()
	p := open(t, mockllm.Config{}, nil, threeInOrder)
	for _, eval := range []string{"projects/p/evals/a", "projects/p/evals/b"} {
		for i, want := range []string{"one", "two", "three"} {
			at := &effectv1.Attribution{Eval: eval, Run: eval + "/" + want, Sample: want, Epoch: 1, Turn: 1}
			assert.Equal(t, want, next(t, p, at), "%s: call %d: samples of an evaluation share the list", eval, i+1)
		}
	}
	for _, run := range []string{"projects/p/runs/a", "projects/p/runs/b"} {
		for turn, want := range []string{"one", "two", "three"} {
			assert.Equal(t, want, next(t, p, &effectv1.Attribution{Run: run, Turn: int32(turn + 1)}), run)
		}
	}
	assert.Equal(t, "one", next(t, p, nil), "calls on nobody's behalf")
	assert.Equal(t, "two", next(t, p, nil))
}

func TestARunGoesOnInTheListWhereAnEarlierProcessLeftIt(t *testing.T) {
	t.Parallel()
	run := func(turn int32) *effectv1.Attribution {
		return &effectv1.Attribution{Run: "projects/p/runs/r", Turn: turn}
	}
	before := open(t, mockllm.Config{}, nil, threeInOrder)
	assert.Equal(t, "one", next(t, before, run(1)))
	assert.Equal(t, "two", next(t, before, run(2)))
	after := open(t, mockllm.Config{}, nil, threeInOrder)
	assert.Equal(t, "two", next(t, after, run(2)), "the call that was cut off is made again")
	assert.Equal(t, "three", next(t, after, run(3)))
}

func TestAModelThatARunCallsLateBeginsItsList(t *testing.T) {
	t.Parallel()
	p := open(t, mockllm.Config{}, nil, threeInOrder)
	assert.Equal(t, "one", next(t, p, &effectv1.Attribution{Run: "projects/p/runs/r", Turn: 3, Role: "grader"}))
	assert.Equal(t, "two", next(t, p, &effectv1.Attribution{Run: "projects/p/runs/r", Turn: 4, Role: "grader"}))
}

func TestAListThatIsUsedUpSaysSo(t *testing.T) {
	t.Parallel()
	p := open(t, mockllm.Config{}, nil, `{"outputs": ["one"]}`)
	_, err := ask(t, p, "a", 1, 1, "x")
	require.NoError(t, err)
	_, err = ask(t, p, "b", 1, 1, "x")
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_SCRIPT_EXHAUSTED), err)
	assert.ErrorContains(t, err, "its list of 1 is used up")
	assert.ErrorContains(t, err, "default")
}
