// Package waits defines the waits of runs and evaluations, and decides when a wait of a run is over.
//
// A wait of the run itself is in its journal: [ForError] and [ForDecision] for an effect that could not run now,
// [ForHold], [ForInput], [ForRoom] and [ForLaterCommand] for decisions of the run. [Over] reports whether such a wait
// has ended. A wait of the server cannot be in the journal, since the journal cannot be written or the run is not
// loaded: [ForStore], [ForFault], [ForPlace], [ForVersion], [ForReplica], and the outage of a service. The engine knows
// when these end.
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

// The reasons of waits in RunWait and EvalWait.
const (
	Capacity = agentv1.WaitReason_WAIT_REASON_CAPACITY // of the server's calls to a provider
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
	Version  = agentv1.WaitReason_WAIT_REASON_VERSION // of the server, which is too old to continue the run
	Fault    = agentv1.WaitReason_WAIT_REASON_FAULT   // of the server, which keeps the run from every step
	Loading  = agentv1.WaitReason_WAIT_REASON_LOADING // of what an evaluation needs
	Batch    = agentv1.WaitReason_WAIT_REASON_BATCH   // of the model's provider, which has the call
	Replica  = agentv1.WaitReason_WAIT_REASON_REPLICA // that drives it; no replica has taken it yet
)

// RoomSubject is the subject of waits for room.
const RoomSubject = "disk"

const (
	// defaultWait is how long a run waits for capacity if the error names no delay.
	defaultWait = 2 * time.Second
	// budgetWait is how long it waits for a budget to be raised.
	budgetWait = 30 * time.Second
)

// ForError returns the wait that an error demands, which shows the platform's lack of capacity; nil for all other
// errors. After the wait the effect, which did not begin, is requested under the same key. The rate limit of a provider
// is no such error: its retries are those that the configuration of the call allows.
func ForError(err error, now time.Time) *agentv1.RunWait {
	wait := &agentv1.RunWait{Message: err.Error()}
	after := defaultWait
	switch rpcerr.Reason(err) {
	case errorsv1.ErrorReason_ERROR_REASON_CONNECTION_QUEUE_FULL:
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
	case errorsv1.ErrorReason_ERROR_REASON_BATCH_PENDING:
		wait.Reason = Batch
		if e, ok := rpcerr.As(err); ok {
			wait.Subject = CallSubject(e.Metadata["requestId"])
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

// CallSubject is the subject of the wait for the answer of a model call under a key, which a batch brings.
func CallSubject(requestID string) string { return "call " + requestID }

// ForDecision is the wait of a run whose effect was lost with its processes more often than its owner allows: an
// operator decides whether to repeat it. What names the effect.
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

// ForRoom is the wait of work that should not start now; nil if lack is empty. Runs that wait for room are found by the
// subject when there is room again.
func ForRoom(lack string) *agentv1.RunWait {
	if lack == "" {
		return nil
	}
	return &agentv1.RunWait{Reason: Disk, Message: lack, Subject: RoomSubject}
}

// ForVersion is the wait of a run or an evaluation whose journal a later version of the server wrote.
func ForVersion() *agentv1.RunWait {
	return &agentv1.RunWait{Reason: Version, Message: "a later version of the server wrote its journal and has to go on with it"}
}

// ForLaterCommand is the wait of a run or an evaluation with a command in its inbox that only a later version of the
// server can read.
func ForLaterCommand() *agentv1.RunWait {
	return &agentv1.RunWait{Reason: Version, Message: "its inbox holds a command of a later version of the server, which has to go on with it"}
}

// ForPlace is the wait of a model call for its place among the open calls of one account.
func ForPlace(limit int, since time.Time) *agentv1.RunWait {
	return &agentv1.RunWait{
		Reason: Capacity, Since: timestamppb.New(since),
		Message: fmt.Sprintf("the account of its model has %d calls open, as many as may be; it goes on when one of them ends", limit),
	}
}

// ForStore is the wait for an unreachable store.
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

// Now holds the facts that end waits.
type Now struct {
	// Time ends waits whose time to retry has come.
	Time time.Time
	// Arrived ends waits for one of these subjects.
	Arrived []string
	// Held is set while an operator holds the run.
	Held bool
	// Posted is set if a message of an operator is pending.
	Posted bool
	// Unread is set while the inbox holds a command of a later version.
	Unread bool
	// Room is set if new work may start.
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
