package grok

import (
	"cmp"
	"context"
	"net/http"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect/openai"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/retry"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/transport"
)

// classes are the failures that may be repeated.
var classes = map[codes.Code]provider.Class{
	codes.ResourceExhausted: provider.RateLimit,
	codes.Unknown:           provider.Transient,
	codes.Unavailable:       provider.Transient,
	codes.DeadlineExceeded:  provider.Transient,
}

// statuses are the HTTP statuses of gRPC's codes: google/rpc/code.proto.
var statuses = map[codes.Code]int{
	codes.Canceled:           499,
	codes.Unknown:            http.StatusInternalServerError,
	codes.InvalidArgument:    http.StatusBadRequest,
	codes.DeadlineExceeded:   http.StatusGatewayTimeout,
	codes.NotFound:           http.StatusNotFound,
	codes.AlreadyExists:      http.StatusConflict,
	codes.PermissionDenied:   http.StatusForbidden,
	codes.ResourceExhausted:  http.StatusTooManyRequests,
	codes.FailedPrecondition: http.StatusBadRequest,
	codes.Aborted:            http.StatusConflict,
	codes.OutOfRange:         http.StatusBadRequest,
	codes.Unimplemented:      http.StatusNotImplemented,
	codes.Internal:           http.StatusInternalServerError,
	codes.Unavailable:        http.StatusServiceUnavailable,
	codes.DataLoss:           http.StatusInternalServerError,
	codes.Unauthenticated:    http.StatusUnauthorized,
}

// tooLong and filtered are the words, in lower case, by which the server says that a conversation is too long for the
// model, and that a filter refused it.
var (
	tooLong  = []string{"prompt length", "input_too_large"}
	filtered = []string{"safety_check", "can't help with that request"}
)

// clockSkew is how much earlier than we a server may notice that the time of a call is over.
const clockSkew = time.Second

// ended waits for the end of a call whose time the server has said to be over, if it is about to be; it returns the
// context's error, if it has one then.
func ended(ctx context.Context, code codes.Code) error {
	if deadline, has := ctx.Deadline(); has && code == codes.DeadlineExceeded && time.Until(deadline) < clockSkew {
		<-ctx.Done()
	}
	return ctx.Err()
}

// meaning interprets a failed call: the output that it represents, or an error. began means that a part of the answer
// had come, so that the server had accepted the request.
func (m *model) meaning(ctx context.Context, err error, trailer metadata.MD, began bool) (*modelv1.ModelOutput, error) {
	s := status.Convert(err)
	if err := ended(ctx, s.Code()); err != nil {
		return nil, err
	}
	if tooLarge(s) {
		return nil, transport.Broken(ctx, Name, transport.ErrAnswerTooLarge)
	}
	said := m.redact(s.Message())
	if output := stopped(s.Code(), said, string(m.name)); output != nil {
		return output, nil
	}
	class := classes[s.Code()]
	if began && s.Code() == codes.Internal {
		class = provider.Transient
	}
	return nil, &provider.Error{
		Provider: Name, Class: class, Status: statuses[s.Code()], Message: said, Auth: s.Code() == codes.Unauthenticated, RetryAfter: retryAfter(s, trailer),
	}
}

// stopped is the output that a refusal represents; nil if it is an error.
func stopped(code codes.Code, said, model string) *modelv1.ModelOutput {
	has := func(words []string) bool {
		lower := strings.ToLower(said)
		for _, word := range words {
			if strings.Contains(lower, word) {
				return true
			}
		}
		return false
	}
	switch {
	case code == codes.InvalidArgument && has(tooLong):
		return chat.MessageOutput(model, chat.Assistant(said), modelv1.StopReason_STOP_REASON_MODEL_LENGTH)
	case code == codes.PermissionDenied && has(filtered):
		output := chat.MessageOutput(model, chat.Assistant(said), modelv1.StopReason_STOP_REASON_CONTENT_FILTER)
		output.Choices[0].StopDetails = chat.NewStopDetails(openai.KindRefusal, "", said)
		return output
	default:
		return nil
	}
}

// tooLarge reports whether the connection refused a message over our bound. gRPC has the same code for it as for a
// server's limit, so only its message distinguishes them.
func tooLarge(s *status.Status) bool {
	return s.Code() == codes.ResourceExhausted && strings.HasPrefix(s.Message(), "grpc: received message ")
}

// retryAfter is the delay that the server asks for: in the details of the error, or in its trailer.
func retryAfter(s *status.Status, trailer metadata.MD) time.Duration {
	var wait time.Duration
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			wait = max(0, info.GetRetryDelay().AsDuration())
		}
	}
	header := http.Header{}
	for _, value := range trailer.Get("retry-after") {
		header.Add("Retry-After", value)
	}
	return cmp.Or(wait, retry.After(header, time.Now()))
}
