package generate_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/services/modelgw/internal/generate"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// Callers may name what models they like, and a model may have a pool of its own: pools that answer keep their metrics,
// and metrics do not grow with names.
func TestPoolsThatNobodyKnowsShareTheirMetrics(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	g := newRig()
	var err error
	admit := generate.Admit(g.limiter, generate.MeasurePools(g.limiter, registry), 0)(func(context.Context, *generate.Call, *generate.Outcome) (*provider.Response, error) {
		return &provider.Response{}, err
	})
	call := func(account string, models ...string) {
		c := g.call(nil)
		c.Model = &provider.Model{Kind: provider.Kind{Name: "test", Models: models}, Name: "m", Account: account, Provider: g.provider}
		_, _ = admit(t.Context(), c, &generate.Outcome{})
	}
	call("real")
	err = errors.New("no such model")
	for i := range 300 {
		call(fmt.Sprint("made-up-", i))
	}
	call("zz-listed", "m")
	err = nil
	call("zz-answers")
	limits := measured(t, registry, "evalfleet_connections_limit")
	assert.Len(t, limits, 4)
	for _, pool := range []string{"test/real", "test/zz-listed", "test/zz-answers", "other"} {
		assert.Contains(t, limits, pool)
	}
	for i := range 300 {
		call(fmt.Sprint("answers-", i))
	}
	assert.Len(t, measured(t, registry, "evalfleet_connections_limit"), 201)
}
