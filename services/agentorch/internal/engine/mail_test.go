package engine_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/inbox"
)

// TestACommandThatAnotherReplicaPostedIsTaken: nothing in the owner's process announces the command.
func TestACommandThatAnotherReplicaPostedIsTaken(t *testing.T) {
	t.Parallel()
	f := newFleet(t).start()
	begun := make(chan struct{}, 1)
	f.Models.Answer = hanging(begun)
	name := f.Create(spec(step("generate", ""))).Name
	waittest.For(t, begun, "the model call of the run")
	command, err := inbox.Command{ID: "k", Principal: "user:ada", Request: &agentv1.CancelRunRequest{Reason: "enough"}}.Pack()
	require.NoError(t, err)
	require.NoError(t, f.Store.Post(t.Context(), name, command))
	assert.Equal(t, agentv1.RunState_RUN_STATE_CANCELLED, f.Finish(name).Phase)
}
