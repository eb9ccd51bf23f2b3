package turn

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/worker"
)

// Reasons of runs' errors that are no reasons of RPC errors.
const (
	reasonScoringTimeout = "SCORING_TIMEOUT" // scorers took longer than half of the time limit
	reasonOperator       = "OPERATOR"        // an operator had the run recorded as an error
	reasonAgent          = "AGENT_FAILED"    // the agent cannot go on
)

var reasonInternal = rpcerr.ReasonName(errorsv1.ErrorReason_ERROR_REASON_INTERNAL)

// logFault logs a fault of ours that becomes an outcome of the run, since the journal does not tell its cause.
func (a *actor) logFault(err error) {
	if rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INTERNAL) {
		a.engine.deps.Logger.Error("a fault of ours is an outcome of a run", "run", a.head.Name, "error", err)
	}
}

// runError is an error as a journal holds it: of a fault of ours not the cause.
func runError(err error) *agentv1.RunError {
	if e, ok := rpcerr.As(err); ok {
		reason := rpcerr.ReasonName(e.Reason)
		if e.Reason == errorsv1.ErrorReason_ERROR_REASON_UNSPECIFIED {
			reason = e.Code.String()
		}
		message := err.Error()
		if e.Reason == errorsv1.ErrorReason_ERROR_REASON_INTERNAL {
			message = rpcerr.ToStatus(err).Message()
		}
		return &agentv1.RunError{Reason: reason, Message: message}
	}
	return &agentv1.RunError{Reason: reasonAgent, Message: err.Error()}
}

const (
	// defaultWait is how long a run waits for capacity where the answer does not say.
	defaultWait = 2 * time.Second
	// budgetWait is how long it waits for a budget to be raised.
	budgetWait = 30 * time.Second
)

// waitFor returns the wait that an answer asks for, in which a run shows what capacity it lacks; nil for all else. What
// could not begin is asked for with the same key afterwards. A call that a provider turned away is over
// ([run.Repeatable]), and another is made.
func waitFor(err error, now time.Time) *agentv1.RunWait {
	wait := &agentv1.RunWait{Message: err.Error()}
	after := defaultWait
	switch rpcerr.Reason(err) {
	case errorsv1.ErrorReason_ERROR_REASON_CONNECTION_QUEUE_FULL, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_RATE_LIMITED:
		wait.Reason = waitCapacity
	case errorsv1.ErrorReason_ERROR_REASON_SANDBOX_QUOTA:
		wait.Reason = waitQuota
	case errorsv1.ErrorReason_ERROR_REASON_ENGINE_UNAVAILABLE:
		wait.Reason = waitEngine
	case errorsv1.ErrorReason_ERROR_REASON_BUDGET_EXHAUSTED:
		wait.Reason, after = waitBudget, budgetWait
	case errorsv1.ErrorReason_ERROR_REASON_WORKER_UNAVAILABLE:
		wait.Reason = waitWorker
		if e, ok := rpcerr.As(err); ok {
			wait.Subject = worker.Offered{Kind: e.Metadata["kind"], Name: e.Metadata["name"]}.String()
		}
	default:
		return nil
	}
	if told := rpcerr.RetryAfter(err); told > 0 {
		after = told
	}
	wait.RetryAt = timestamppb.New(now.Add(after))
	return wait
}

// undecided returns the wait of a run whose effect was lost with its processes more often than its owner allows: an operator decides whether it is done anew. It is nil
// for other errors, and for effects whose policy says what becomes of them.
func undecided(e effect, err error) *agentv1.RunWait {
	if !rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_EFFECT_INDETERMINATE) {
		return nil
	}
	what := ""
	switch e.(type) {
	case *modelCall:
		what = "a model call"
	case *creation:
		what = "the making of a sandbox"
	default:
		return nil
	}
	return &agentv1.RunWait{
		Reason: waitDecision, Message: what + " was lost again and again with the process that did it; resume the run to have it done anew, or cancel the run",
	}
}

// withTimeout bounds a call within a step, which also ends with the engine.
func withTimeout(ctx, life context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	bounded, cancel := context.WithTimeout(ctx, d)
	stop := context.AfterFunc(life, cancel)
	return bounded, func() { stop(); cancel() }
}
