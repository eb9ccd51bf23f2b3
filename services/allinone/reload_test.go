package allinone_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/config"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/grpcclient"
	"github.com/evalfleet/evalfleet/services/allinone"
	"github.com/evalfleet/evalfleet/services/modelgw"
)

func TestAReloadReachesTheServicesOfTheProcess(t *testing.T) {
	t.Parallel()
	cfg := configured(t, "127.0.0.1:0")
	dir, lock := folder(t, t.TempDir())
	s, stop := start(t, cfg, allinone.Deps{Dir: dir, Lock: lock})
	defer stop()
	conn, err := grpcclient.New(s.Address(), grpcclient.Options{Token: s.Token()})
	require.NoError(t, err)
	defer func() { assert.NoError(t, conn.Close()) }()
	models := modelv1.NewModelServiceClient(conn)
	priced := func() bool {
		m, err := models.GetModel(t.Context(), &modelv1.GetModelRequest{Name: "providers/openai/models/ours"})
		require.NoError(t, err)
		return m.GetPrices() != nil
	}
	assert.False(t, priced())
	next := cfg
	next.Modelgw.Prices = map[string]modelgw.Price{"openai/ours": {Rates: modelgw.Rates{Input: new(1.0), Output: new(2.0)}}}
	next.Modelgw.OpenAI.APIKey = config.NewSecret("k")
	require.NoError(t, s.Reload(t.Context(), next))
	assert.True(t, priced())

	own := next
	own.Modelgw.Prices, own.Modelgw.OpenAI.BaseURL = nil, "http://"+s.Address()+"/v1"
	require.ErrorContains(t, s.Reload(t.Context(), own), "evalfleet's own endpoint")
	assert.True(t, priced(), "what is refused changes nothing")
	assert.Contains(t, cfg.Reloads(), "modelgw.openai")
	assert.NotContains(t, cfg.Reloads(), "modelgw.cache_bytes")
}
