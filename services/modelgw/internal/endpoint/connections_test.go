package endpoint

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/limit"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/generate"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/prepare"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// constant is a provider that is not called.
type constant struct{ provider.Provider }

func (constant) Capabilities() provider.Capabilities { return provider.Capabilities{} }

// TestCallersOfOneModelAreAnsweredWithinAMinute: where the vendor refuses nothing, 2,000 callers who come
// at once and whose calls take 5 s are all answered well within a minute, by either rule; from the first limit of
// their number they wait for nothing.
func TestCallersOfOneModelAreAnsweredWithinAMinute(t *testing.T) {
	t.Parallel()
	const callers, call = 2000, 5 * time.Second
	for name, tt := range map[string]struct {
		connections Connections
		probing     bool
		within      time.Duration
	}{
		"by default":             {Connections{}, false, 40 * time.Second},
		"by default, probing":    {Connections{}, true, 40 * time.Second},
		"with a first limit set": {Connections{Start: callers, Max: callers}, false, call},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				cfg := Config{Connections: tt.connections}
				cfg.SetDefaults()
				require.NoError(t, cfg.Validate())
				endpoints := New(cfg, Deps{})
				limiter := &limit.Memory{}
				admitted := generate.Admit(limiter, generate.MeasurePools(limiter, nil), generate.Admission{Probing: tt.probing})(
					func(_ context.Context, _ *generate.Call, o *generate.Outcome) (*provider.Response, error) {
						o.Attempts++
						time.Sleep(call)
						return &provider.Response{}, nil
					})
				model := &provider.Model{Kind: provider.Kind{Name: "test"}, Name: "m", Account: "default", Provider: constant{}}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				var answered atomic.Int64
				var all sync.WaitGroup
				began := time.Now()
				for range callers {
					all.Go(func() {
						c := &generate.Call{Model: model, Conversation: prepare.Conversation{Config: &modelv1.GenerateConfig{}}}
						endpoints.bound(c.Config)
						if _, err := admitted(ctx, c, &generate.Outcome{}); err == nil {
							answered.Add(1)
						}
					})
				}
				all.Wait()
				assert.EqualValues(t, callers, answered.Load())
				assert.LessOrEqual(t, time.Since(began), tt.within)
			})
		})
	}
}

func TestConnectionsThatContradictEachOtherAreRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		connections Connections
		fault       string
	}{
		{Connections{Min: 5, Max: 4}, "max must not be below min"},
		{Connections{Start: 5, Max: 4}, "start must be from min to max"},
		{Connections{Min: 30, Start: 20}, "start must be from min to max"},
		{Connections{Min: -1}, "min must be at least 1"},
		{Connections{Max: -1}, "connections: "},
	} {
		cfg := Config{Connections: tt.connections}
		cfg.SetDefaults()
		assert.ErrorContains(t, cfg.Validate(), tt.fault)
	}
	for _, fits := range []Connections{{}, {Max: 1}, {Min: 30}, {Min: 30, Start: 40, Max: 50}} {
		cfg := Config{Connections: fits}
		cfg.SetDefaults()
		assert.NoError(t, cfg.Validate())
	}
}
