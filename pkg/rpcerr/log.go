package rpcerr

import (
	"context"
	"log/slog"

	"google.golang.org/grpc/codes"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/headtail"
)

// maxLogged bounds a value of an error that is logged, in bytes.
const maxLogged = 200

// LogRefusal logs the refusal of a call: at warn if an operator must act at the server, such as by setting a key, else
// at info. The line has the error's reason, its first field, and the account, provider, model or capability concerned.
// It omits the message, which may quote the caller's input. An error that is no refusal is not logged.
func LogRefusal(ctx context.Context, log *slog.Logger, message string, err error, attributes ...any) {
	fault, ok := As(err)
	if !ok {
		return
	}
	switch fault.Code { //nolint:exhaustive // All others are logged.
	case codes.Internal, codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
		return
	}
	level := slog.LevelInfo
	switch fault.Reason { //nolint:exhaustive // All others are at info.
	case errorsv1.ErrorReason_ERROR_REASON_PROVIDER_NOT_CONFIGURED, errorsv1.ErrorReason_ERROR_REASON_PRICE_UNKNOWN,
		errorsv1.ErrorReason_ERROR_REASON_PROVIDER_CREDENTIALS_REJECTED:
		level = slog.LevelWarn
	}
	attributes = append(attributes, "reason", ReasonName(fault.Reason))
	if len(fault.Fields) > 0 {
		attributes = append(attributes, "field", headtail.Cut(fault.Fields[0].Path, maxLogged))
	}
	for _, key := range []string{"provider", "account", "model", "capability"} {
		if value := fault.Metadata[key]; value != "" {
			attributes = append(attributes, key, headtail.Cut(value, maxLogged))
		}
	}
	log.Log(ctx, level, message, attributes...)
}
