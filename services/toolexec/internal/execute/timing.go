package execute

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// timing returns the timing of a call: the waits of its commands do not count as work.
func timing(begun time.Time, queued time.Duration, result *toolv1.ToolResult) *effectv1.Timing {
	ended := time.Now()
	var slept time.Duration
	for _, action := range result.GetSandboxActions() {
		queued += action.GetTiming().GetQueued().AsDuration()
		slept += action.GetTiming().GetRetryWait().AsDuration()
	}
	return &effectv1.Timing{
		StartTime: timestamppb.New(begun),
		EndTime:   timestamppb.New(ended),
		Queued:    durationpb.New(queued),
		RetryWait: durationpb.New(slept),
		Working:   durationpb.New(max(0, ended.Sub(begun)-queued-slept)),
		Attempts:  1,
	}
}

// countEarlier adds the earlier work of a retried call's commands to the call's timing: the commands continued in their
// sandboxes while no service watched them. The interval between a command's end and the retry counts as no work.
func countEarlier(t *effectv1.Timing, actions []*toolv1.SandboxAction) {
	begun := t.GetStartTime().AsTime()
	for _, action := range actions {
		started := action.GetTiming().GetStartTime()
		if started == nil || !started.AsTime().Before(begun) {
			continue
		}
		earlier := min(begun.Sub(started.AsTime()), action.GetTiming().GetWorking().AsDuration())
		t.Working = durationpb.New(t.GetWorking().AsDuration() + earlier)
		if started.AsTime().Before(t.GetStartTime().AsTime()) {
			t.StartTime = started
		}
	}
}
