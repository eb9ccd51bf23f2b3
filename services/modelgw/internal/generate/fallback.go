package generate

import (
	"net/http"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// PatienceBefore is how often a call without a bound is retried at a model that has a fallback.
const PatienceBefore = 3

// ofTheKey are the statuses of refusals that are about what a key may do or spend.
var ofTheKey = []string{strconv.Itoa(http.StatusPaymentRequired), strconv.Itoa(http.StatusForbidden), strconv.Itoa(http.StatusTooManyRequests)}

// Curable reports whether another model might answer a call that failed with err: its provider cannot be reached, is
// overloaded, limits the rate, refuses the key or finds it spent, or is not configured. A request that is wrong, a
// bound that is reached and an end of the caller are the same with each model.
func Curable(err error) bool {
	switch rpcerr.Reason(err) { //nolint:exhaustive // All others are not.
	case errorsv1.ErrorReason_ERROR_REASON_PROVIDER_UNAVAILABLE, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_RATE_LIMITED,
		errorsv1.ErrorReason_ERROR_REASON_PROVIDER_CREDENTIALS_REJECTED, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_NOT_CONFIGURED:
		return true
	case errorsv1.ErrorReason_ERROR_REASON_PROVIDER_REJECTED:
		fault, _ := rpcerr.As(err)
		return slices.Contains(ofTheKey, fault.Metadata["status"])
	}
	return false
}

// Streamed reports whether the latest attempt has delivered a piece of an answer.
func (o *Outcome) Streamed() bool { return o.streamed }

// Next returns the outcome of the call of another model that follows this call.
func (o *Outcome) Next() *Outcome {
	return &Outcome{Start: o.Start, Earlier: o.number(), streamed: o.streamed}
}

// Follow adds the outcome of such a call. This one was of a model, and failed with err; the attempts that failed are
// noted with the model.
func (o *Outcome) Follow(model string, err error, next *Outcome) {
	for i, failed := range o.Failed {
		if failed.GetModel() == "" {
			o.Failed[i] = proto.CloneOf(failed) // Others hold the attempt too.
			o.Failed[i].Model = model
		}
	}
	last := &modelv1.FailedAttempt{Error: err.Error(), EndTime: timestamppb.Now(), Key: int32(o.Key), Model: model}
	var record *modelv1.ModelCall
	if failure, ok := provider.As(err); ok {
		last.Error, last.Status, record = failure.Error(), int32(failure.Status), failure.Call
	}
	o.fail(last, record)
	for _, failed := range next.Failed {
		o.fail(failed, nil)
	}
	copy(o.records[max(0, len(o.records)-len(next.records)):], next.records)
	o.Queued, o.RetryWait, o.Working, o.Attempts = o.Queued+next.Queued, o.RetryWait+next.RetryWait, o.Working+next.Working, o.Attempts+next.Attempts
	o.Cache, o.BrokenOff, o.Key, o.FirstPiece, o.streamed = next.Cache, next.BrokenOff, next.Key, next.FirstPiece, next.streamed
}
