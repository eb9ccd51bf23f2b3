// Package waits says what a run can wait for, and when such a wait is over.
//
// A wait of the run itself is in its journal: [ForError] and [ForDecision] for an effect that could not be done now,
// [ForHold], [ForInput], [ForRoom] and [ForLaterCommand] where the run decides it. [Over] says when one of these has
// ended. A wait of the server cannot be in the journal, since nothing can be written or nothing is known of the run:
// [ForStore], [ForFault], [ForPlace], [ForVersion], [ForReplica], and the outage of a service. The engine knows when these
// end.
package waits

import (
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/worker"
)

// Reasons, as RunWait and EvalWait have them.
const (
	Capacity = agentv1.WaitReason_WAIT_REASON_CAPACITY // of a provider, or of the server's own calls to it
	Quota    = agentv1.WaitReason_WAIT_REASON_QUOTA    // of sandboxes
	Engine   = agentv1.WaitReason_WAIT_REASON_ENGINE   // that makes sandboxes
	Budget   = agentv1.WaitReason_WAIT_REASON_BUDGET
	Worker   = agentv1.WaitReason_WAIT_REASON_WORKER
	Input    = agentv1.WaitReason_WAIT_REASON_INPUT
	Hold     = agentv1.WaitReason_WAIT_REASON_HOLD
	Decision = agentv1.WaitReason_WAIT_REASON_DECISION // of an operator
	Disk     = agentv1.WaitReason_WAIT_REASON_DISK
	Store    = agentv1.WaitReason_WAIT_REASON_STORE
	Service  = agentv1.WaitReason_WAIT_REASON_SERVICE // that does not answer; of evaluations alone
	Version  = agentv1.WaitReason_WAIT_REASON_VERSION // of the server, which is too early to go on with the run
	Fault    = agentv1.WaitReason_WAIT_REASON_FAULT   // of the server, which keeps the run from every step
	Replica  = agentv1.WaitReason_WAIT_REASON_REPLICA // that drives it; none has taken it yet
)

// RoomSubject is the subject of waits for room.
const RoomSubject = "disk"

const (
	// defaultWait is how long a run waits for capacity where the answer does not say.
	defaultWait = 2 * time.Second
	// budgetWait is how long it waits for a budget to be raised.
	budgetWait = 30 * time.Second
)

// ForError returns the wait that an answer asks for, in which a run shows what capacity it lacks; nil for all else.
// What could not begin is asked for with the same key afterwards. A call that a provider turned away is over, and
// another is made.
func ForError(err error, now time.Time) *agentv1.RunWait {
	wait := &agentv1.RunWait{Message: err.Error()}
	after := defaultWait
	switch rpcerr.Reason(err) {
	case errorsv1.ErrorReason_ERROR_REASON_CONNECTION_QUEUE_FULL, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_RATE_LIMITED:
		wait.Reason = Capacity
	case errorsv1.ErrorReason_ERROR_REASON_SANDBOX_QUOTA:
		wait.Reason = Quota
	case errorsv1.ErrorReason_ERROR_REASON_ENGINE_UNAVAILABLE:
		wait.Reason = Engine
	case errorsv1.ErrorReason_ERROR_REASON_BUDGET_EXHAUSTED:
		wait.Reason, after = Budget, budgetWait
	case errorsv1.ErrorReason_ERROR_REASON_WORKER_UNAVAILABLE:
		wait.Reason = Worker
		if e, ok := rpcerr.As(err); ok {
			wait.Subject = worker.Offered{Kind: e.Metadata["kind"], Name: e.Metadata["name"]}.String()
		}
	default:
		return nil
	}
	if asked := rpcerr.RetryAfter(err); asked > 0 {
		after = asked
	}
	wait.RetryTime = timestamppb.New(now.Add(after))
	return wait
}

// ForDecision is the wait of a run whose effect was lost with its processes more often than its owner allows: an
// operator decides whether it is done anew. What is the effect.
func ForDecision(what string) *agentv1.RunWait {
	return &agentv1.RunWait{
		Reason: Decision, Message: what + " was lost again and again with the process that did it; resume the run to have it done anew, or cancel the run",
	}
}

// ForHold is the wait of a run that an operator holds.
func ForHold() *agentv1.RunWait {
	return &agentv1.RunWait{Reason: Hold, Message: "held by an operator"}
}

// ForInput is the wait for a message of an operator.
func ForInput() *agentv1.RunWait {
	return &agentv1.RunWait{Reason: Input, Message: "waits for a message of an operator"}
}

// ForRoom is the wait of what should not begin now; nil where nothing is lacking. Runs that wait for room are found by
// the subject when there is some.
func ForRoom(lack string) *agentv1.RunWait {
	if lack == "" {
		return nil
	}
	return &agentv1.RunWait{Reason: Disk, Message: lack, Subject: RoomSubject}
}

// ForVersion is the wait of a run whose journal a later version of the server wrote.
func ForVersion() *agentv1.RunWait {
	return &agentv1.RunWait{Reason: Version, Message: "a later version of the server wrote its journal and has to go on with it"}
}

// ForLaterCommand is the wait of a run with a command in its inbox that only a later version of the server can read.
func ForLaterCommand() *agentv1.RunWait {
	return &agentv1.RunWait{Reason: Version, Message: "its inbox holds a command of a later version of the server, which has to go on with it"}
}

// ForPlace is the wait of a model call for its place among those that are open with one account.
func ForPlace(limit int, since time.Time) *agentv1.RunWait {
	return &agentv1.RunWait{
		Reason: Capacity, Since: timestamppb.New(since),
		Message: fmt.Sprintf("the account of its model has %d calls open, as many as may be; it goes on when one of them ends", limit),
	}
}

// ForStore is the wait for a store that is away.
func ForStore(why string, since time.Time) *agentv1.RunWait {
	return &agentv1.RunWait{Reason: Store, Message: why, Since: timestamppb.New(since)}
}

// ForFault is the wait of a run whose every step fails.
func ForFault(since time.Time) *agentv1.RunWait {
	return &agentv1.RunWait{
		Reason: Fault, Message: "a fault of the server keeps it from going on; the server's log has the cause", Since: timestamppb.New(since),
	}
}

// ForReplica is the wait of a run that no replica has claimed yet.
func ForReplica(since time.Time) *agentv1.RunWait {
	return &agentv1.RunWait{
		Reason: Replica, Message: "no replica has taken the run yet; one with fewer runs than the others does so soon", Since: timestamppb.New(since),
	}
}

// Now is what ends waits.
type Now struct {
	// Time ends those with a time to retry at.
	Time time.Time
	// Arrived ends those for one of these subjects.
	Arrived []string
	// Held says that an operator holds the run still.
	Held bool
	// Posted says that a message of an operator is there.
	Posted bool
	// Unread says that the inbox holds a command of a later version still.
	Unread bool
	// Room says that new work may begin.
	Room bool
}

// Over reports whether a wait in a journal has ended. One for a decision is ended by the command that decides.
func Over(wait *agentv1.RunWait, now Now) bool {
	switch wait.GetReason() {
	case Hold:
		return !now.Held
	case Decision:
		return false
	case Disk:
		return now.Room
	case Input:
		return now.Posted
	case Version:
		return !now.Unread
	default:
		return !now.Time.Before(wait.GetRetryTime().AsTime()) || wait.GetSubject() != "" && slices.Contains(now.Arrived, wait.GetSubject())
	}
}
