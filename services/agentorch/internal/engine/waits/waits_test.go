package waits

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"google.golang.org/protobuf/types/known/timestamppb"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// Each wait ends with what it waits for, and with nothing else.
func TestAWaitEndsWithWhatItIsFor(t *testing.T) {
	t.Parallel()
	start := time.Unix(1_700_000_000, 0)
	nothing := Now{Time: start, Held: true, Unread: true}
	ends := map[agentv1.WaitReason]Now{
		Hold:    {Time: start, Unread: true},
		Input:   {Time: start, Held: true, Unread: true, Posted: true},
		Version: {Time: start, Held: true},
		Disk:    {Time: start, Held: true, Unread: true, Room: true},
		Budget:  {Time: start.Add(time.Minute), Held: true, Unread: true},
		Worker:  {Time: start, Held: true, Unread: true, Arrived: []string{"", "tool x"}},
	}
	retry := timestamppb.New(start.Add(time.Minute))
	all := map[agentv1.WaitReason]*agentv1.RunWait{
		Hold: ForHold(), Input: ForInput(), Version: ForLaterCommand(), Disk: ForRoom("the disk is full"), Decision: ForDecision("a model call"),
		Budget: {Reason: Budget, RetryTime: retry}, Worker: {Reason: Worker, Subject: "tool x", RetryTime: retry},
	}
	for reason, wait := range all {
		assert.Equal(t, reason, wait.GetReason())
		assert.False(t, Over(wait, nothing), reason)
		for other, now := range ends {
			assert.Equal(t, other == reason || other == Budget && reason == Worker, Over(wait, now), "%s, and what ends %s", reason, other)
		}
	}
	assert.Nil(t, ForRoom(""))
}

// A run waits as long as the answer asks, and for a worker under its name.
func TestTheWaitOfAnAnswer(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	wait := ForError(rpcerr.WorkerUnavailable("tool", "x", 3*time.Second, "no worker is connected"), now)
	assert.Equal(t, Worker, wait.GetReason())
	assert.Equal(t, "tool x", wait.GetSubject())
	assert.Equal(t, now.Add(3*time.Second), wait.GetRetryTime().AsTime().Local())
	wait = ForError(rpcerr.BatchPending("openai/gpt-4o", "r1/7", time.Minute, "ask again later"), now)
	assert.Equal(t, Batch, wait.GetReason())
	assert.Equal(t, CallSubject("r1/7"), wait.GetSubject())
	assert.Equal(t, now.Add(time.Minute), wait.GetRetryTime().AsTime().Local())
	assert.Nil(t, ForError(rpcerr.Internal("a fault"), now))
}
