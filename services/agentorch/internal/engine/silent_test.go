package engine_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/sqlite/sqlitefault"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/servicetest"
)

// TestARunWhoseEffectIsOpenSaysThatTheStoreIsAway: the owner of the effect may be unable to write its result, and the
// run has nothing to append before.
func TestARunWhoseEffectIsOpenSaysThatTheStoreIsAway(t *testing.T) {
	t.Parallel()
	disk := sqlitefault.New()
	synctest.Test(t, func(t *testing.T) {
		f := newFleetOn(t, disk.Name(), "").start()
		f.Models.Answer = func(context.Context, *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
			time.Sleep(time.Minute)
			return servicetest.Say("ok"), nil
		}
		s := spec(step("generate", ""))
		name := f.Create(s).Name
		time.Sleep(5 * time.Second)
		assert.Nil(t, f.Engine.Waiting(name))
		disk.Fail(sqlitefault.Full)
		time.Sleep(5 * time.Second)
		assert.Equal(t, agentv1.WaitReason_WAIT_REASON_STORE, f.Engine.Waiting(name).GetReason())
		waits := f.Engine.Waits("")
		if assert.Len(t, waits, 1) {
			assert.EqualValues(t, 1, waits[0].GetSamples())
			assert.Contains(t, waits[0].GetMessage(), "full")
		}
		disk.Fail(sqlitefault.None)
		time.Sleep(5 * time.Second)
		assert.Nil(t, f.Engine.Waiting(name))
		time.Sleep(time.Minute)
		assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, f.Finish(name).Phase)
		f.End()
	})
}
