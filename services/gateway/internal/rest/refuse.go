package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/auth"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// body is a request's body, at most MaxBodyBytes of it. The mapping keeps only the text of what its decoder says, so the body keeps the error itself.
type body struct {
	io.ReadCloser
	refused error
}

// bounded gives every request a body of that kind.
func bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil {
			r = r.WithContext(r.Context())
			r.Body = &body{ReadCloser: http.MaxBytesReader(w, r.Body, MaxBodyBytes)}
		}
		next.ServeHTTP(w, r)
	})
}

// refuse notes err as what is wrong with the body that r reads, and returns it.
func refuse(r io.Reader, err error) error {
	if b, ok := r.(*body); ok {
		b.refused = err
	}
	return err
}

// answerError writes err as every error of the platform: with a reason, and the fields that are wrong.
func answerError(ctx context.Context, mux *runtime.ServeMux, m runtime.Marshaler, w http.ResponseWriter, r *http.Request, err error) {
	if b, ok := r.Body.(*body); ok && b.refused != nil {
		err = b.refused
	}
	// What the mapping itself refuses, such as a query parameter that is no number, has no details.
	if s := status.Convert(err); s.Code() == codes.InvalidArgument && len(s.Details()) == 0 {
		err = rpcerr.InvalidRequest("%s", s.Message())
	}
	runtime.DefaultHTTPErrorHandler(ctx, mux, m, challenging{w}, r, err)
}

// challenging writes what a credential should be into answers that lack one, where the mapping would write the error's
// message, which need be no header.
type challenging struct{ http.ResponseWriter }

func (c challenging) WriteHeader(code int) {
	if code == http.StatusUnauthorized {
		c.Header().Set("WWW-Authenticate", auth.Challenge)
	}
	c.ResponseWriter.WriteHeader(code)
}

func (c challenging) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// unread says why a body could not be read to its end.
func unread(err error) error {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return rpcerr.RequestTooLarge("", MaxBodyBytes,
			"the body may have %d bytes and has more; send what is large as a blob first (UploadBlob of gRPC takes any size) and name it by its hash", MaxBodyBytes)
	}
	return rpcerr.InvalidRequest("the body ended early: %v", err)
}

// misfit says why text is not the JSON of m. Cause is what the parser said.
func misfit(text []byte, m proto.Message, cause error) error {
	d := m.ProtoReflect().Descriptor()
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		where := ""
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			where = fmt.Sprintf(" at byte %d", syntax.Offset)
		}
		return rpcerr.InvalidRequest("the body is not one JSON value%s: %v; write an object of %s", where, err, d.FullName())
	}
	if _, ok := value.(map[string]any); !ok {
		return rpcerr.InvalidRequest("the body is no JSON object; write an object of %s", d.FullName())
	}
	var wrong rpcerr.Fields
	violations(&wrong, "", value, d)
	if wrong.Len() == 0 {
		return rpcerr.InvalidRequest("the body is no %s: %v", d.FullName(), cause)
	}
	return wrong.Err()
}
