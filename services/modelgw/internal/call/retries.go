package call

import (
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/evalfleet/evalfleet/pkg/effect"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/lastvalue"
)

// retries are the calls with a key that wait for another attempt.
type retries struct {
	lastvalue.Map[effect.Key, *effectv1.Note]
}

// of returns the progress of a call that sleeps between attempts.
func (r *retries) of(key effect.Key) func(*modelv1.FailedAttempt) {
	attempts := int32(0)
	return func(failed *modelv1.FailedAttempt) {
		if failed == nil {
			r.Clear(key)
			return
		}
		attempts++
		r.Post(key, &effectv1.Note{
			Message: failed.GetError(), Time: failed.GetEndTime(), FailedAttempts: attempts,
			RetryTime: timestamppb.New(failed.GetEndTime().AsTime().Add(failed.GetWait().AsDuration())),
		})
	}
}
