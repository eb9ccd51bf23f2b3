package generate_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
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
	admit := generate.Admit(g.limiter, generate.MeasurePools(g.limiter, registry), generate.Admission{})(func(context.Context, *generate.Call, *generate.Outcome) (*provider.Response, error) {
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

// A pool follows the recorded rule unless the operator chose the other one, and always if its first call sets what only
// the recorded one has.
func TestTheRuleOfAPool(t *testing.T) {
	t.Parallel()
	const recorded, probing = 15, 10 // A fifth less, rounded; the lowest, since one connection was in use.
	for name, c := range map[string]struct {
		chosen bool
		set    *modelv1.AdaptiveConnections
		want   int
	}{
		"by default":                         {want: recorded},
		"chosen":                             {chosen: true, want: probing},
		"chosen, with bounds":                {chosen: true, set: &modelv1.AdaptiveConnections{Max: new(int32(50))}, want: probing},
		"chosen, with a cooldown":            {chosen: true, set: &modelv1.AdaptiveConnections{CooldownSeconds: new(15.0)}, want: recorded},
		"chosen, with a decrease factor":     {chosen: true, set: &modelv1.AdaptiveConnections{DecreaseFactor: new(0.8)}, want: recorded},
		"chosen, with a scale-up percentage": {chosen: true, set: &modelv1.AdaptiveConnections{ScaleUpPercent: new(0.05)}, want: recorded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := newRig(fails(429, 0), says("ok"))
				g.probing = c.chosen
				g.stages = g.pipeline(g.limiter)
				_, err := g.generate(t.Context(), g.call(&modelv1.GenerateConfig{AdaptiveConnections: c.set}))
				require.NoError(t, err)
				assert.Equal(t, c.want, g.pool(t).Limit)
			})
		})
	}
}
