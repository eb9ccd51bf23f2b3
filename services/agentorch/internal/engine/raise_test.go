package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/waits"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/servicetest"
)

// newerModels has a newer epoch of each run than its journal.
type newerModels struct {
	*servicetest.Models
	epoch int64
}

func (m *newerModels) Generate(ctx context.Context, r *modelv1.GenerateRequest, o ...callOption) (*modelv1.GenerateResponse, error) {
	if own := r.GetAttribution().GetOwnerEpoch(); !r.GetValidateOnly() && own < m.epoch {
		return nil, rpcerr.NotOwner(r.GetRequestId(), m.epoch, "the run has another owner")
	}
	return m.Models.Generate(ctx, r, o...)
}

// A run whose journal is older than a service's record of it, because the database was restored from a copy, continues
// under an epoch above that.
func TestARunGoesOnAboveTheEpochThatAServiceHas(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.Models.Answer = servicetest.ByTurn(servicetest.Says("ok"))
	f.WrapModels = &newerModels{Models: f.Models, epoch: 41}
	f.start()
	got := f.Finish(f.Create(spec(step("generate", ""))).Name)
	assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, got.Phase)
	assert.EqualValues(t, 42, got.Epoch)
	assert.Equal(t, 1, f.Models.Total())
}

// The highest epoch that owners of effects take, with none above it, is shown as a fault and not retried.
func TestAnEpochWithoutOneAboveItIsAFault(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.WrapModels = &newerModels{Models: f.Models, epoch: 1<<62 - 1}
	f.start()
	name := f.Create(spec(step("generate", ""))).Name
	require.Eventually(t, func() bool { return f.Engine.Waiting(name).GetReason() == waits.Fault }, waittest.Bound, 5*time.Millisecond)
}
