package agent

import (
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// Repeatable reports whether a model call or the creation of a sandbox failed for a reason that does not fail the run
// by itself. The effect is over, and the run repeats it under another key after a wait. It was lost with its processes,
// and an operator decides. Or a provider limited its rate, after which earlier versions waited.
func Repeatable(err *agentv1.RunError) bool {
	return err.GetReason() == rateLimited || err.GetReason() == indeterminate
}

// RateLimited reports whether a model call failed since the rate limit of a provider outlasted its retries.
func RateLimited(err *agentv1.RunError) bool { return err.GetReason() == rateLimited }

var (
	rateLimited   = rpcerr.ReasonName(errorsv1.ErrorReason_ERROR_REASON_PROVIDER_RATE_LIMITED)
	indeterminate = rpcerr.ReasonName(errorsv1.ErrorReason_ERROR_REASON_EFFECT_INDETERMINATE)
)
