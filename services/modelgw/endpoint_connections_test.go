package modelgw_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw"
)

// poolOf is the only pool of a model.
func poolOf(t *testing.T, g *gateway) *modelv1.ConnectionPool {
	t.Helper()
	pools, err := g.limits.ListConnectionPools(t.Context(), &modelv1.ListConnectionPoolsRequest{Parent: "accounts/openai/default"})
	require.NoError(t, err)
	require.Len(t, pools.GetConnectionPools(), 1)
	return pools.GetConnectionPools()[0]
}

// Callers of an endpoint have the bounds that the operator set for them, in either lane; those of the recorded rule
// stay those of all other calls.
func TestConnectionsOfTheEndpoints(t *testing.T) {
	t.Parallel()
	v := vendorWith(t, says(http.StatusOK, "application/json", whole))
	relayed := func(g *web) {
		read(t, g.post(t, chatPath, `{"model":"openai/gpt-4o",`+user+`}`))
	}
	converted := func(g *web) {
		read(t, g.post(t, messagesPath, `{"model":"openai/gpt-4o","max_tokens":5,`+user+`}`))
	}
	evaluation := func(g *web) {
		_, err := g.models.Generate(t.Context(), &modelv1.GenerateRequest{Parent: project, Model: "openai/gpt-4o", Messages: []*modelv1.ChatMessage{chat.User("q")}})
		require.NoError(t, err)
	}
	for name, tt := range map[string]struct {
		ask        func(*web)
		start, max int32 // configured
		limit, top int32
	}{
		"relayed":                  {relayed, 0, 0, 20, 1000},
		"converted":                {converted, 0, 0, 20, 1000},
		"relayed, as configured":   {relayed, 300, 2000, 300, 2000},
		"converted, as configured": {converted, 300, 2000, 300, 2000},
		"a few":                    {relayed, 0, 4, 4, 4},
		"no endpoint":              {evaluation, 0, 0, 20, 100},
		"no endpoint, configured":  {evaluation, 300, 2000, 20, 100},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := serveWeb(t, v, func(c *modelgw.Config, _ *modelgw.Deps) {
				if tt.max > 0 {
					c.Endpoints.Connections.Start, c.Endpoints.Connections.Max = int(tt.start), int(tt.max)
				}
			})
			tt.ask(g)
			pool := poolOf(t, g.gateway)
			assert.Equal(t, []int32{tt.limit, tt.top}, []int32{pool.GetLimit(), pool.GetMax()})
		})
	}
}
