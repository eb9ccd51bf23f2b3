package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/auth"
	"github.com/evalfleet/evalfleet/pkg/bound"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/headtail"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

var errBodyTooLarge = errors.New("the body is too large")

// body is a request's body, at most MaxBodyBytes of it. The mapping keeps only the text of the decoder's error, so the
// body keeps the error itself.
type body struct {
	io.ReadCloser
	read int64
	// unsent is true if the body is too large and the client sends it only after "100 Continue".
	unsent  bool
	refused error
}

// Read fails with errBodyTooLarge if the body is larger than the bound.
func (b *body) Read(p []byte) (int, error) {
	if b.unsent || b.read > MaxBodyBytes {
		return 0, errBodyTooLarge
	}
	n, err := b.ReadCloser.Read(p)
	if b.read += int64(n); b.read <= MaxBodyBytes {
		return n, err
	}
	_, _ = io.CopyN(io.Discard, b.ReadCloser, bound.DiscardedBytes) // Whatever comes of it, the answer is the same.
	return 0, errBodyTooLarge
}

// bounded replaces the body of every request by a body.
func bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil {
			r = r.WithContext(r.Context())
			asks := strings.EqualFold(r.Header.Get("Expect"), "100-continue")
			r.Body = &body{ReadCloser: r.Body, unsent: asks && r.ContentLength > MaxBodyBytes}
		}
		next.ServeHTTP(w, r)
	})
}

// refuse records err as the fault of the body that r reads, and returns it.
func refuse(r io.Reader, err error) error {
	if b, ok := r.(*body); ok {
		b.refused = err
	}
	return err
}

// answer writes err in the platform's error format: with a reason, and the invalid fields.
func (n naming) answer(ctx context.Context, mux *runtime.ServeMux, m runtime.Marshaler, w http.ResponseWriter, r *http.Request, err error) {
	if b, ok := r.Body.(*body); ok && b.refused != nil {
		err = spelled{b.refused}
	}
	if own, ok := errors.AsType[spelled](err); ok {
		err = own.error
	} else {
		err = ofMask(r, n.of(ctx, err))
	}
	// Errors of the mapping itself, such as a query parameter that is no number, have no details.
	if s := status.Convert(err); s.Code() == codes.InvalidArgument && len(s.Details()) == 0 {
		err = rpcerr.InvalidRequest("%s", s.Message())
	}
	err = &runtime.HTTPStatusError{HTTPStatus: httpStatus(status.Convert(err)), Err: err}
	runtime.DefaultHTTPErrorHandler(ctx, mux, m, challenging{w}, r, err)
}

// httpStatus returns the HTTP status of an error.
func httpStatus(s *status.Status) int {
	if rpcerr.Is(rpcerr.FromStatus(s.Err()), errorsv1.ErrorReason_ERROR_REASON_METHOD_NOT_ALLOWED) {
		return http.StatusMethodNotAllowed
	}
	return runtime.HTTPStatusFromCode(s.Code())
}

// maxShownPath bounds the path in an error, in bytes.
const maxShownPath = 200

// unrouted answers a request that matches no call.
func (n naming) unrouted(ctx context.Context, mux *runtime.ServeMux, m runtime.Marshaler, w http.ResponseWriter, r *http.Request, code int) {
	path := headtail.Cut(r.URL.Path, maxShownPath)
	err := error(rpcerr.RouteNotFound(r.Method, path))
	switch code {
	case http.StatusMethodNotAllowed:
		err = rpcerr.MethodNotAllowed(r.Method, path)
	case http.StatusBadRequest:
		err = rpcerr.InvalidRequest("the path %s cannot be read", path)
	}
	n.answer(ctx, mux, m, w, r, err)
}

// named is the name of a variable within a path, such as `name` in `{name=projects/*}`.
var named = regexp.MustCompile(`\{[\w.]+=`)

// misrouted refuses by its method a call that the mapping would take for another one: `GET …/runs/{run}:cancel` for a
// run whose id is `{run}:cancel`, and `PATCH …/budgets` for a budget without an id.
func misrouted(answer func(http.ResponseWriter, *http.Request, error)) runtime.Middleware {
	all := map[string]bool{}
	for r := range queries() {
		_, path, _ := strings.Cut(string(r), " ")
		all[named.ReplaceAllString(path, "{")] = true
	}
	return func(next runtime.HandlerFunc) runtime.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request, pathParams map[string]string) {
			pattern, _ := runtime.HTTPPattern(r.Context())
			template, path := pattern.String(), r.URL.Path
			i := strings.LastIndexByte(path, ':')
			taken := i >= 0 && pattern.Verb() == "" && all[named.ReplaceAllString(template, "{")+path[i:]]
			if taken || strings.HasSuffix(template, "/**}") && strings.Count(path, "/") < strings.Count(template, "/") {
				answer(w, r, rpcerr.MethodNotAllowed(r.Method, headtail.Cut(path, maxShownPath)))
				return
			}
			next(w, r, pathParams)
		}
	}
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

// unread returns the error of a body that could not be read to its end.
func unread(err error) error {
	if errors.Is(err, errBodyTooLarge) {
		return rpcerr.RequestTooLarge("", MaxBodyBytes,
			"the body may have %d bytes and has more; send what is large as a blob first (PUT …/blobs:upload takes any size) and name it by its hash", MaxBodyBytes)
	}
	return rpcerr.InvalidRequest("the body ended early: %v", err)
}

// misfit returns the error of a text that is not valid JSON of m. cause is the parser's error.
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
	if path := twice(json.NewDecoder(bytes.NewReader(text)), ""); path != "" {
		wrong.Add(path, "stands twice; write it once")
	}
	violations(&wrong, "", value, d)
	if wrong.Len() == 0 {
		return rpcerr.InvalidRequest("the body is no %s: %v", d.FullName(), cause)
	}
	return wrong.Err()
}
