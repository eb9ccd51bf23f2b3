package chatapi

import (
	"errors"

	"github.com/evalfleet/evalfleet/pkg/chat/encode"
	"github.com/evalfleet/evalfleet/pkg/dialect/openaichat"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// unsupported says that the format cannot say what the request holds.
func unsupported(name string, err error) error {
	what := err.Error()
	if u, ok := errors.AsType[*openaichat.UnsupportedError](err); ok {
		what = u.What
	}
	return rpcerr.FailedPrecondition(errorsv1.ErrorReason_ERROR_REASON_CAPABILITY_UNSUPPORTED, "%s: %w", name, err).With("capability", what)
}

// Text returns a text as JSON, for members of a request.
func Text(text string) string { return string(encode.AppendText(nil, text)) }
