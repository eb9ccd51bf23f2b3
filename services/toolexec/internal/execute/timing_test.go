package execute

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

func TestWorkOfCommandsBeforeACallIsMadeAgainCounts(t *testing.T) {
	t.Parallel()
	again := time.Unix(1000, 0)
	command := func(started, worked time.Duration) *toolv1.SandboxAction {
		return &toolv1.SandboxAction{Timing: &effectv1.Timing{StartTime: timestamppb.New(again.Add(started)), Working: durationpb.New(worked)}}
	}
	for name, c := range map[string]struct {
		here     time.Duration // the work of the call since it was retried
		actions  []*toolv1.SandboxAction
		started  time.Duration
		wantWork time.Duration
	}{
		"no command":                     {time.Second, nil, 0, time.Second},
		"a file":                         {time.Second, []*toolv1.SandboxAction{{Action: toolv1.SandboxActionType_SANDBOX_ACTION_TYPE_READ_FILE}}, 0, time.Second},
		"one that began only then":       {time.Second, []*toolv1.SandboxAction{command(0, time.Second)}, 0, time.Second},
		"one that ended meanwhile":       {0, []*toolv1.SandboxAction{command(-time.Minute, time.Second)}, -time.Minute, time.Second},
		"one that went on":               {time.Second, []*toolv1.SandboxAction{command(-time.Minute, 61*time.Second)}, -time.Minute, 61 * time.Second},
		"one that ended, one that began": {time.Second, []*toolv1.SandboxAction{command(-time.Minute, time.Second), command(0, time.Second)}, -time.Minute, 2 * time.Second},
	} {
		timing := &effectv1.Timing{StartTime: timestamppb.New(again), Working: durationpb.New(c.here)}
		countEarlier(timing, c.actions)
		assert.Equal(t, c.wantWork, timing.GetWorking().AsDuration(), name)
		assert.Equal(t, again.Add(c.started).UTC(), timing.GetStartTime().AsTime(), name)
	}
}
