package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/replica/memory"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/servicetest"
)

// muteModels does not answer releases while it is mute, as a connection that waits for its server.
type muteModels struct {
	*servicetest.Models
	mute             atomic.Bool
	open, most, asks atomic.Int32
}

func (m *muteModels) ReleaseGenerate(ctx context.Context, r *modelv1.ReleaseGenerateRequest, o ...callOption) (*modelv1.ReleaseGenerateResponse, error) {
	if !m.mute.Load() {
		return m.Models.ReleaseGenerate(ctx, r, o...)
	}
	m.asks.Add(1)
	m.most.Store(max(m.most.Load(), m.open.Add(1)))
	defer m.open.Add(-1)
	<-ctx.Done()
	return nil, ctx.Err()
}

// An owner that does not answer gets one request at a time, at growing intervals. It delays no other owner, and
// receives everything when it is reachable again.
func TestAnOwnerThatIsAwayIsToldLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		away := &muteModels{Models: f.Models}
		away.mute.Store(true)
		f.WrapModels = away
		f.Config.KeepResults = 1
		f.Models.Answer = servicetest.ByTurn(servicetest.Says("ok"))
		f.start()
		for range 20 {
			assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, f.Finish(f.Create(spec(step("generate", ""))).Name).Phase)
			time.Sleep(30 * time.Second)
		}
		assert.Equal(t, int32(1), away.most.Load(), "one call at a time")
		assert.Less(t, away.asks.Load(), int32(40), "with pauses")
		away.mute.Store(false)
		time.Sleep(2 * time.Minute)
		assert.Zero(t, f.Models.Kept())
		f.End()
	})
}

// Of a short run no result is released by itself: from the append that ends it, all that owners keep of it is to be
// released together.
func TestWhatOwnersKeepIsReleasedWithTheEndOfARun(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.Config.Beat = 10 * time.Millisecond
	f.Models.Answer = servicetest.ByTurn(servicetest.Says("ok"))
	f.start()
	one := f.Create(spec(step("generate", "")))
	f.Finish(one.Name)
	f.End() // What would be sent was sent.
	assert.Equal(t, 1, f.Models.Kept())
	unreleased, err := f.Store.Unreleased(t.Context(), 0, 10)
	require.NoError(t, err)
	require.Len(t, unreleased, 1)
	assert.Equal(t, one.Name, unreleased[0].Name)
}

// A stop hands the runs over although an owner that stopped before does not answer.
func TestAStopHandsOverWhileAnOwnerIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		away := &muteModels{Models: f.Models}
		away.mute.Store(true)
		f.WrapModels = away
		table := &memory.Table{}
		f.Replica.Table = table
		f.Models.Answer = servicetest.ByTurn(servicetest.Says("ok"))
		f.start()
		f.Finish(f.Create(spec(step("generate", ""))).Name)
		began := time.Now()
		f.End()
		assert.Less(t, time.Since(began), 5*time.Second)
		rows, err := table.List(t.Context())
		require.NoError(t, err)
		require.Len(t, rows, 1)
		assert.Empty(t, rows[0].Process, "it has left")
	})
}
