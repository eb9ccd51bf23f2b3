package generate_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent/agenttest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent/generate"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/fleettest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/servicetest"
)

func TestWhatBecomesOfCalls(t *testing.T) {
	t.Parallel()
	add := chat.Call("c", "add", `{}`)
	for name, c := range map[string]struct {
		params   string
		answers  []*modelv1.ModelOutput
		effects  []string
		messages []string
	}{
		"an answer without calls": {``, []*modelv1.ModelOutput{servicetest.Say("a")}, []string{"ask", "done"}, []string{"U:go", "A:a"}},
		"they run until there are none": {
			``,
			[]*modelv1.ModelOutput{servicetest.Say("a", add), nil, servicetest.Say("b", add), servicetest.Say("c")},
			[]string{"ask", "call c add", "ask", "ask", "call c add", "ask", "done"},
			[]string{"U:go", "A:a", "T:ok", "A:b", "T:ok", "A:c"},
		},
		"they run once":   {`{"tool_calls": "single"}`, []*modelv1.ModelOutput{servicetest.Say("a", add)}, []string{"ask", "call c add", "done"}, []string{"U:go", "A:a", "T:ok"}},
		"they are left":   {`{"tool_calls": "none"}`, []*modelv1.ModelOutput{servicetest.Say("a", add)}, []string{"ask", "done"}, []string{"U:go", "A:a"}},
		"the first fails": {``, []*modelv1.ModelOutput{nil, servicetest.Say("a")}, []string{"ask", "ask", "done"}, []string{"U:go", "A:a"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := &agentv1.RunSpec{Input: []*modelv1.ChatMessage{fleettest.User("go")}}
			got := agenttest.Play(t, generate.Definition(), fleettest.Step("generate", c.params, "add"), agenttest.Script{Spec: spec, Answers: c.answers})
			require.NoError(t, got.Err)
			assert.Equal(t, c.effects, got.Effects)
			assert.Equal(t, c.messages, fleettest.Texts(got.Messages()))
		})
	}
}

func TestConfigLiesOverTheRuns(t *testing.T) {
	t.Parallel()
	got := agenttest.Play(t, generate.Definition(), fleettest.Step("generate", `{"config": {"temperature": 0.5, "max_tokens": 7}}`), agenttest.Script{
		Answers: []*modelv1.ModelOutput{servicetest.Say("a")},
	})
	require.Len(t, got.Asked, 1)
	assert.InDelta(t, 0.5, got.Asked[0].Config.GetTemperature(), 1e-9)
	assert.Equal(t, int64(7), got.Asked[0].Config.GetMaxTokens())
	_, err := agent.NewRegistry(generate.Definition()).Resolve(fleettest.Step("generate", `{"config": {"temprature": 1}}`))
	require.ErrorContains(t, err, "temprature")
}
