package agent_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
)

func definition(name string) agent.Definition {
	return agent.Definition{
		Name: name, Parameters: `{"type": "object", "properties": {"depth": {"type": "integer", "description": "How deep."}, "breadth": {"type": "integer"}}, "additionalProperties": false}`,
		Resolve: func(*agentv1.AgentRef) error { return nil },
	}
}

func TestUnknownNamesAreAnsweredWithTheKnownOnes(t *testing.T) {
	t.Parallel()
	r := agent.NewRegistry(definition("walk"), definition("climb"))
	_, err := r.Resolve(&agentv1.AgentRef{Name: "clmb"})
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_AGENT_NOT_FOUND))
	require.ErrorContains(t, err, "climb, walk")
	_, err = r.Resolve(&agentv1.AgentRef{Name: "climb", ParamsJson: `{"dept": 1, "breadth": "wide"}`})
	require.ErrorContains(t, err, "did you mean depth? its parameters are breadth, depth")
	_, err = r.Resolve(&agentv1.AgentRef{Name: "climb", ParamsJson: `{"depth": {}}`})
	require.ErrorContains(t, err, "/depth: got object, want integer (How deep); its parameters")
	_, err = r.Resolve(&agentv1.AgentRef{Name: "climb", ParamsJson: `{"dept": 1, "breadth": "wide"}`})
	require.ErrorContains(t, err, "dept")
	fault, ok := rpcerr.As(err)
	require.True(t, ok)
	assert.Len(t, fault.Fields, 2, "every fault is named: %v", fault.Fields)
	_, err = r.New(&agentv1.AgentRef{Name: "fly"})
	require.ErrorContains(t, err, "fly", "a run of a later version")
}

func TestAStepIsNotChanged(t *testing.T) {
	t.Parallel()
	d := definition("climb")
	d.Resolve = func(step *agentv1.AgentRef) error { return agent.SetParams(step, map[string]int{"depth": 3}) }
	given := &agentv1.AgentRef{Name: "climb"}
	resolved, err := agent.NewRegistry(d).Resolve(given)
	require.NoError(t, err)
	assert.Empty(t, given.GetParamsJson())
	assert.JSONEq(t, `{"depth": 3}`, resolved.GetParamsJson())
}

func TestAgentsOfAgentsAreNotBuilt(t *testing.T) {
	t.Parallel()
	_, err := agent.NewRegistry(definition("climb")).Resolve(&agentv1.AgentRef{Name: "climb", Agents: []*agentv1.AgentRef{{Name: "climb"}}})
	assert.Equal(t, codes.Unimplemented, rpcerr.Code(err))
}

func TestARegistryOfFaultsPanics(t *testing.T) {
	t.Parallel()
	assert.Panics(t, func() { agent.NewRegistry(definition("a"), definition("a")) })
	broken := definition("b")
	broken.Parameters = "{"
	assert.Panics(t, func() { agent.NewRegistry(broken) })
}
