package endpoint

import (
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// refusal is a failure as it is answered.
type refusal struct {
	dialect.Failure
	retryAfter time.Duration
	// final means that a retry is useless, whatever the status.
	final bool
}

// Error implements error.
func (r *refusal) Error() string { return r.Message }

// refuse is a failure with this status.
func refuse(status int, message string) *refusal {
	return &refusal{Failure: dialect.Failure{Status: status, Message: message}}
}

// statusClosed is what proxies log for a client that left; no client receives it.
const statusClosed = 499

// unknownCaller is the message for a caller without a token. It does not disclose where the token is on the server.
const unknownCaller = "the platform's token is missing or not known; send it as `Authorization: Bearer …`, `x-api-key` or `x-goog-api-key`, where a vendor's key would be"

// retryAfter is the header that says when to ask again, in whole seconds.
const retryAfter = "Retry-After"

func wholeSeconds(d time.Duration) string { return strconv.Itoa(int(math.Ceil(d.Seconds()))) }

// refuse answers with a failure, in the shape of the vendor.
func (x *exchange) refuse(err error) {
	r := x.refusalOf(err)
	if r.retryAfter > 0 {
		x.out.Header().Set(retryAfter, wholeSeconds(r.retryAfter))
	}
	if r.final {
		x.giveUp()
	}
	failure := r.Failure // r may be a value that others answer with too.
	failure.RequestID = x.id
	_ = x.send(r.Status, x.AppendError(nil, failure)) // A client that left needs no answer.
}

// giveUp asks the client not to retry: the vendors' own clients read it.
func (x *exchange) giveUp() { x.out.Header().Set("X-Should-Retry", "false") }

// refusalOf returns the answer for a failure.
func (x *exchange) refusalOf(err error) *refusal {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r
	}
	if wrong, ok := errors.AsType[*dialect.RequestError](x.blamed(err)); ok {
		return &refusal{Failure: wrong.Failure()}
	}
	r := refuse(statusOf(err), rpcerr.ToStatusUnder(err, x.id).Message())
	r.retryAfter = rpcerr.RetryAfter(err)
	if r.Status == http.StatusUnauthorized {
		r.Message = unknownCaller
	}
	switch rpcerr.Reason(err) { //nolint:exhaustive // The others have nothing of their own.
	case errorsv1.ErrorReason_ERROR_REASON_PROVIDER_RESPONSE_INVALID:
		r.Status, r.final = http.StatusBadGateway, true // It was paid for, and would be again.
	case errorsv1.ErrorReason_ERROR_REASON_BUDGET_EXHAUSTED:
		r.Cause, r.final = dialect.QuotaSpent, true
	case errorsv1.ErrorReason_ERROR_REASON_PROVIDER_RATE_LIMITED:
		r.final = x.triesAgain
	case errorsv1.ErrorReason_ERROR_REASON_PROVIDER_UNAVAILABLE:
		r.Status, r.final = vendorStatus(err, r.Status), x.triesAgain
	case errorsv1.ErrorReason_ERROR_REASON_PROVIDER_REJECTED:
		r.Status = vendorStatus(err, r.Status)
	}
	return r
}

// vendorStatus is the vendor's own status, including non-standard ones such as 529; ours if there was none.
func vendorStatus(err error, ours int) int {
	if e, ok := rpcerr.As(err); ok {
		if status, err := strconv.Atoi(e.Metadata["status"]); err == nil && status >= 400 && status < 600 {
			return status
		}
	}
	return ours
}

// codeOf is the outcome of an exchange in metrics and logs: the code of an RPC, or else the status.
func (x *exchange) codeOf(err error) string {
	if _, isRPC := rpcerr.As(err); err == nil || isRPC {
		return rpcerr.Code(err).String()
	}
	return strconv.Itoa(x.refusalOf(err).Status)
}

// statuses maps the kinds of failures to their status.
var statuses = map[codes.Code]int{
	codes.InvalidArgument: http.StatusBadRequest, codes.FailedPrecondition: http.StatusBadRequest, codes.OutOfRange: http.StatusBadRequest,
	codes.NotFound: http.StatusNotFound, codes.AlreadyExists: http.StatusConflict, codes.Aborted: http.StatusConflict, codes.ResourceExhausted: http.StatusTooManyRequests,
	codes.Unauthenticated: http.StatusUnauthorized, codes.PermissionDenied: http.StatusForbidden, codes.Unavailable: http.StatusServiceUnavailable,
	codes.Unimplemented: http.StatusNotImplemented, codes.DeadlineExceeded: http.StatusGatewayTimeout, codes.Canceled: statusClosed,
}

func statusOf(err error) int {
	if status, ok := statuses[rpcerr.Code(err)]; ok {
		return status
	}
	return http.StatusInternalServerError
}
