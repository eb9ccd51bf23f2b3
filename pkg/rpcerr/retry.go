package rpcerr

import (
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	optionsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/options/v1"
)

// retries maps each reason to its retry rule of the protocol.
var retries = sync.OnceValue(func() map[errorsv1.ErrorReason]optionsv1.Retry {
	all := map[errorsv1.ErrorReason]optionsv1.Retry{}
	values := errorsv1.ErrorReason(0).Descriptor().Values()
	for i := range values.Len() {
		v := values.Get(i)
		all[errorsv1.ErrorReason(v.Number())], _ = proto.GetExtension(v.Options(), optionsv1.E_Retry).(optionsv1.Retry)
	}
	return all
})

// Transient reports whether a failure is not an outcome of the call: a service, a store or capacity was not available,
// and the same call with the same key may succeed later. The call may have begun. The reason decides; an UNAVAILABLE
// without one, such as that of a broken connection, is transient too.
func Transient(err error) bool {
	reason := Reason(err)
	if reason == errorsv1.ErrorReason_ERROR_REASON_UNSPECIFIED {
		return Code(err) == codes.Unavailable
	}
	return retries()[reason] != optionsv1.Retry_RETRY_UNSPECIFIED
}

// NotStarted reports whether a failure is transient and means that the call has not begun. The reason decides. It
// applies to the call that failed with err, not to a call that made this one among others.
func NotStarted(err error) bool {
	return err != nil && retries()[Reason(err)] == optionsv1.Retry_RETRY_NOT_STARTED
}
