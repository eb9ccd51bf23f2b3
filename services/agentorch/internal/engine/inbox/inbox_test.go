package inbox_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/inbox"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
)

// A command comes out of the inbox as it went in; what is no command of this version does not.
func TestACommandComesOutAsItWentIn(t *testing.T) {
	t.Parallel()
	for _, request := range []proto.Message{
		&agentv1.CancelRunRequest{Name: "n", Reason: "why"}, &agentv1.RetuneLimitsRequest{}, &agentv1.PostMessageRequest{},
		&agentv1.HoldRunRequest{}, &agentv1.ResumeRunRequest{},
	} {
		packed, err := inbox.Command{ID: "c", Principal: "user:ada", Request: request}.Pack()
		require.NoError(t, err)
		c, err := inbox.Unpack(packed)
		require.NoError(t, err)
		assert.Equal(t, "c", c.ID)
		assert.Equal(t, "user:ada", c.Principal)
		assert.True(t, proto.Equal(request, c.Request))
	}
	packed, err := inbox.Command{ID: "c", Request: &agentv1.GetRunRequest{Name: "named"}}.Pack()
	require.NoError(t, err)
	_, err = inbox.Unpack(packed)
	require.ErrorContains(t, err, "GetRunRequest")
	assert.Contains(t, string(inbox.Text(packed)), "named", "names in it are found all the same")
	_, err = inbox.Unpack(journal.Command{ID: "c", Body: []byte("none")})
	require.Error(t, err)
}
