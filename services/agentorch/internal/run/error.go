package run

import (
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// reasonAgent is the reason of errors that are not from an RPC: the agent cannot continue.
const reasonAgent = "AGENT_FAILED"

// ErrorOf returns an error as a journal holds it. Of an internal error the cause is left out.
func ErrorOf(err error) *agentv1.RunError {
	e, ok := rpcerr.As(err)
	if !ok {
		return &agentv1.RunError{Reason: reasonAgent, Message: err.Error()}
	}
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
