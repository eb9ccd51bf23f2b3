package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/sqlite/sqlitefault"
)

// TestAnEngineThatStartsWhileTheStoreIsAwayDrivesWhenItIsBack: a process may be restarted in the middle of an outage.
func TestAnEngineThatStartsWhileTheStoreIsAwayDrivesWhenItIsBack(t *testing.T) {
	t.Parallel()
	for what, fault := range map[string]sqlitefault.Fault{"full": sqlitefault.Full, "gone": sqlitefault.Gone} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			disk := sqlitefault.New()
			synctest.Test(t, func(t *testing.T) {
				f := newFleetOn(t, disk.Name(), "").start()
				name := f.Create(f.talkative()).Name
				time.Sleep(500 * time.Millisecond)
				f.End()
				disk.Fail(fault)
				f.start()
				time.Sleep(time.Minute)
				assert.Equal(t, agentv1.WaitReason_WAIT_REASON_STORE, f.Engine.Hold().GetReason(), "no new work begins, and says why")
				disk.Fail(sqlitefault.None)
				assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, f.Finish(name).Phase)
				time.Sleep(2 * time.Second)
				assert.Nil(t, f.Engine.Hold())
				f.End()
			})
		})
	}
}
