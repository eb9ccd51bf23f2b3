package multichoice_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent/agenttest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent/multichoice"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/fleettest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/servicetest"
)

func TestItPutsTheQuestionAndNotesTheChoice(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ params, answer, selected string }{
		"one":      {``, "ANSWER: B", `{"selected":[1]}`},
		"several":  {`{"multiple_correct": true}`, "ANSWER: A,C", `{"selected":[0,2]}`},
		"none":     {``, "I do not know.", `{"selected":[]}`},
		"thinking": {`{"cot": true, "max_tokens": 9}`, "First … then …\nANSWER: C", `{"selected":[2]}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := agenttest.Play(t, multichoice.Definition(), fleettest.Step("multiple_choice", c.params), agenttest.Script{
				Spec: &agentv1.RunSpec{
					Input: []*modelv1.ChatMessage{fleettest.User("Which is red?")}, Choices: []string{"grass", "blood", "sky"},
				},
				Answers: []*modelv1.ModelOutput{nil, servicetest.Say(c.answer)},
			})
			require.NoError(t, got.Err)
			assert.Equal(t, []string{"ask", "ask", "done"}, got.Effects)
			question := chat.Text(got.Messages()[0])
			assert.Contains(t, question, "Which is red?")
			assert.Contains(t, question, "B) blood")
			selected, ok := got.Stored(agent.SelectionKey)
			assert.True(t, ok)
			if c.selected == `{"selected":[]}` {
				assert.Contains(t, []string{c.selected, `{"selected":null}`}, selected)
				return
			}
			assert.JSONEq(t, c.selected, selected)
		})
	}
}

func TestWhatItNeedsIsNamed(t *testing.T) {
	t.Parallel()
	user := []*modelv1.ChatMessage{fleettest.User("q")}
	for says, spec := range map[string]*agentv1.RunSpec{"choices": {Input: user}, "user message": {Choices: []string{"a", "b"}}} {
		got := agenttest.Play(t, multichoice.Definition(), fleettest.Step("multiple_choice", ""), agenttest.Script{Spec: spec})
		assert.ErrorContains(t, got.Err, says)
	}
	_, err := agent.NewRegistry(multichoice.Definition()).Resolve(fleettest.Step("multiple_choice", `{"template": "no placeholders"}`))
	require.ErrorContains(t, err, "template")
}
