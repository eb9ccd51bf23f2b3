package agent

import (
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// Repeatable reports whether a model call or the creation of a sandbox failed for a reason that does not fail the run
// by itself: the effect has ended, and the run repeats it under another key after a wait. Either the effect was lost
// ([Lost]), and an operator decides, or a provider limited its rate, after which earlier versions waited.
func Repeatable(err *agentv1.RunError) bool { return err.GetReason() == rateLimited || Lost(err) }

// Lost reports whether the outcome of an effect is unknown, because its owner was lost.
func Lost(err *agentv1.RunError) bool { return err.GetReason() == indeterminate }

// RateLimited reports whether a model call failed since the rate limit of a provider outlasted its retries.
func RateLimited(err *agentv1.RunError) bool { return err.GetReason() == rateLimited }

var (
	rateLimited   = rpcerr.ReasonName(errorsv1.ErrorReason_ERROR_REASON_PROVIDER_RATE_LIMITED)
	indeterminate = rpcerr.ReasonName(errorsv1.ErrorReason_ERROR_REASON_EFFECT_INDETERMINATE)
)
