// Package exchange makes attempts over HTTP in a dialect: it encodes a request, posts it, reads the answer as a body or
// as a stream, and classifies a refusal, an unreadable answer and a broken connection. A provider adds credentials,
// addresses, headers and [Quirks].
package exchange

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/retry"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/buffer"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/transport"
)

// Exchange speaks with one API in one dialect. It is safe for concurrent use, and must not be changed once it is used.
//
// The errors of an attempt are those of [provider.Provider]: a *provider.Error with its class if the API failed, the
// context's error if the context ended, CAPABILITY_UNSUPPORTED if the dialect cannot express the request. None contains
// a credential: HTTP redacts those of the account in the API's messages (transport.RedactSecrets), and URLs are
// omitted.
type Exchange struct {
	// Codec is the dialect.
	Codec dialect.Codec
	// HTTP makes the requests. It follows no redirects, and redacts the account's secrets in failures.
	HTTP *http.Client
	// Provider is the name for errors.
	Provider string
	// Quirks interpret the errors of this API.
	Quirks Quirks
}

// Quirks interpret the errors of an API where they differ from its dialect. The zero value has none.
type Quirks struct {
	// Header adds to an error what the API says of it in the headers of the answer; nil adds nothing.
	Header func(h http.Header, said *dialect.Error)
	// RetryUnreadable means that a 200 whose body is not a JSON object comes from an intermediary, and may be retried.
	RetryUnreadable bool
	// RetryMalformed means that any answer that cannot be read may be retried.
	RetryMalformed bool
	// StopStatuses are the statuses whose errors may represent an output, such as a full context; nil is all.
	StopStatuses []int
	// Stop reads such an error before the dialect does; nil has no rules of its own.
	Stop func(status int, said *dialect.Error, model string) (*modelv1.ModelOutput, bool)
	// OwnStops means that the codes by which the dialect reads such an error mean nothing here, so that Stop alone
	// does.
	OwnStops bool
	// Class corrects the class of an error; nil corrects nothing.
	Class func(status int, said *dialect.Error, class provider.Class) provider.Class
	// Finish adds to an output what the dialect leaves out of it; nil adds nothing. It fails for an answer that cannot
	// be used.
	Finish func(answer dialect.Response, output *modelv1.ModelOutput) error
	// Auth recognises an error that refuses the credential with another status than 401; nil recognises none.
	Auth func(said *dialect.Error) bool
}

// Call is the target of a request.
type Call struct {
	URL string
	// Method is the method of HTTP; empty is POST. A GET has no body.
	Method string
	// Header is the call's own: credentials, and further headers of the API. Post sets Content-Type and Accept if they
	// are missing.
	Header http.Header
	// Model is the name by which the API knows the model.
	Model string
	// Stream means that the request asks for a stream.
	Stream bool
}

// Answer is the result of a request: a response, or the output that a refusal represents.
type Answer struct {
	// Response is the answer, of a stream as far as it came; nil where Stopped is set.
	Response dialect.Response
	// Stopped is the output that a refusal represents.
	Stopped *modelv1.ModelOutput
	// Raw is the received answer, of a stream its events; nil if it is not to be recorded. It is also set beside an
	// error.
	Raw []byte
}

// Billing is what the answer says of its price beside the usage.
func (a Answer) Billing() dialect.Billing {
	if biller, ok := a.Response.(dialect.Biller); ok {
		return biller.Billing()
	}
	return dialect.Billing{}
}

// Do makes an attempt of one request: encode appends its body.
func (x *Exchange) Do(ctx context.Context, r *provider.Request, call *Call, encode func(dst []byte) ([]byte, error)) (*provider.Response, error) {
	var billing dialect.Billing
	response, err := x.Attempt(r, encode, func(body *buffer.Buffer) (*modelv1.ModelOutput, []byte, error) {
		left := r.AnswerBound()
		answer, err := x.Post(ctx, r, call, body, &left)
		if err != nil || answer.Stopped != nil {
			return answer.Stopped, answer.Raw, err
		}
		billing = answer.Billing()
		output, err := answer.Response.Output(r.Tools)
		if err == nil && x.Quirks.Finish != nil {
			err = x.Quirks.Finish(answer.Response, output)
		}
		if err != nil {
			return nil, answer.Raw, x.Malformed(err)
		}
		return output, answer.Raw, nil
	})
	if response != nil {
		response.Billing = billing
	}
	return response, err
}

// Attempt makes an attempt that may take several requests. encode appends the body of the first; run makes the requests
// and returns the output, and the part of the answers to record.
func (x *Exchange) Attempt(
	r *provider.Request, encode func(dst []byte) ([]byte, error), run func(body *buffer.Buffer) (output *modelv1.ModelOutput, raw []byte, err error),
) (*provider.Response, error) {
	body, err := x.encode(dialect.Size(r.Messages, r.Tools), encode)
	if err != nil {
		return nil, err
	}
	defer body.Release()
	return transport.Attempt(r, func() []byte { return body.Bytes }, func() (*modelv1.ModelOutput, []byte, error) { return run(body) })
}

// Encode returns the body of a request, which the caller must release. A request that the dialect cannot express fails
// with CAPABILITY_UNSUPPORTED.
func (x *Exchange) Encode(encode func(dst []byte) ([]byte, error)) (*buffer.Buffer, error) {
	return x.encode(0, encode)
}

// encode is Encode with a guess of the body's length.
func (x *Exchange) encode(room int, encode func(dst []byte) ([]byte, error)) (*buffer.Buffer, error) {
	body, err := buffer.Of(room, encode)
	if err == nil {
		return body, nil
	}
	return nil, transport.Unsupported(x.Provider, err)
}

// Post sends a request and reads the answer, of which at most left bytes; it subtracts the read bytes from left. The
// pieces of a stream go to the request's Stream as they arrive.
func (x *Exchange) Post(ctx context.Context, r *provider.Request, call *Call, body *buffer.Buffer, left *int64) (Answer, error) {
	answer, err := x.deliver(ctx, r, call, body)
	if err != nil {
		return Answer{}, err
	}
	defer answer.Body.Close()
	switch {
	case answer.StatusCode/100 == 3:
		return Answer{}, provider.Redirected(x.Provider)
	case answer.StatusCode/100 != 2:
		return x.refused(answer, r, call)
	case call.Stream && !transport.IsWhole(answer):
		return x.redacted(x.stream(ctx, answer, r, call, left))
	default:
		return x.redacted(x.whole(ctx, answer, r, call, left))
	}
}

// Count asks the API for the number of input tokens of a request: encode appends the question. The dialect must be a
// [dialect.TokenCounter].
func (x *Exchange) Count(ctx context.Context, call *Call, encode func(dst []byte) ([]byte, error)) (int64, error) {
	counter, counts := x.Codec.(dialect.TokenCounter)
	if !counts {
		return 0, rpcerr.CapabilityUnsupported("count_tokens", "%s counts no tokens", x.Provider)
	}
	body, err := x.Encode(encode)
	if err != nil {
		return 0, err
	}
	defer body.Release()
	answer, err := x.Send(ctx, call, body)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	if answer.StatusCode/100 == 3 {
		return 0, provider.Redirected(x.Provider)
	}
	read, err := transport.Read(answer, transport.MaxErrorBytes)
	defer read.Release()
	if answer.StatusCode/100 != 2 { // If it breaks off, the received part counts.
		return 0, x.Refused(answer.StatusCode, answer.Header, read.Bytes)
	}
	if err != nil {
		return 0, x.broken(ctx, err)
	}
	tokens, err := counter.DecodeCountResponse(read.Bytes)
	if said, ok := errors.AsType[*dialect.Error](err); ok {
		x.complete(said, answer.Header)
		return 0, x.failure(cmp.Or(said.Status, answer.StatusCode), answer.Header, said)
	}
	if err != nil {
		return 0, x.Malformed(err)
	}
	return tokens, nil
}

// heldBody is a body that is held as a whole until the attempt ends.
type heldBody struct {
	io.ReadCloser

	ctx  context.Context //nolint:containedctx // A body is read in the context of its request.
	hold func(ctx context.Context, n int) error
}

// Read implements io.Reader.
func (b *heldBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		if no := b.hold(b.ctx, n); no != nil {
			return n, no
		}
	}
	return n, err
}

// redacted returns an answer whose record has no secret if it failed: what began as an answer may contain an error.
func (x *Exchange) redacted(a Answer, err error) (Answer, error) {
	if (err != nil || a.Stopped != nil) && a.Raw != nil {
		a.Raw = []byte(transport.Redact(x.HTTP, string(a.Raw)))
	}
	return a, err
}

// deliver sends a request as the attempt wants it: by its carrier, or else over a connection.
func (x *Exchange) deliver(ctx context.Context, r *provider.Request, call *Call, body *buffer.Buffer) (*http.Response, error) {
	if r.Carrier == nil {
		answer, err := x.Send(ctx, call, body)
		if err == nil && r.OnHeaders != nil {
			r.OnHeaders(answer.StatusCode, answer.Header)
		}
		return answer, err
	}
	return r.Carrier.Carry(ctx, provider.Post{URL: call.URL, Header: call.Header, Body: body.Bytes})
}

// Send sends a request, which posts a body unless it is a GET. The caller must close the body of the answer.
func (x *Exchange) Send(ctx context.Context, call *Call, body *buffer.Buffer) (*http.Response, error) {
	post, err := newRequest(ctx, call, body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", x.Provider, err)
	}
	post.Header = call.Header
	if post.Header.Get("Content-Type") == "" {
		post.Header.Set("Content-Type", "application/json")
	}
	if post.Header.Get("Accept") == "" {
		accepted := "application/json"
		if call.Stream {
			accepted = "text/event-stream"
		}
		post.Header.Set("Accept", accepted)
	}
	answer, err := provider.Send(x.HTTP, post)
	if err != nil {
		return nil, x.broken(ctx, err)
	}
	return answer, nil
}

// newRequest returns the request of a call.
func newRequest(ctx context.Context, call *Call, body *buffer.Buffer) (*http.Request, error) {
	if call.Method == http.MethodGet {
		return http.NewRequestWithContext(ctx, http.MethodGet, call.URL, nil)
	}
	return transport.NewPost(ctx, call.URL, body)
}

// refused reads an answer whose status is that of a failure. If it breaks off, the received part counts.
func (x *Exchange) refused(answer *http.Response, r *provider.Request, call *Call) (a Answer, err error) {
	read, _ := transport.Read(answer, transport.MaxErrorBytes)
	defer read.Release()
	a.Stopped, err = x.meaning(answer, x.Codec.DecodeError(read.Bytes), call.Model)
	a.keep(r, read, err)
	return a, err
}

// whole reads an answer that is a body.
func (x *Exchange) whole(ctx context.Context, answer *http.Response, r *provider.Request, call *Call, left *int64) (a Answer, err error) {
	if r.Hold != nil {
		answer.Body = &heldBody{answer.Body, ctx, r.Hold}
	}
	read, err := transport.ReadWhole(answer, *left)
	defer read.Release()
	*left -= int64(len(read.Bytes))
	if err != nil {
		err = x.broken(ctx, err)
		a.keep(r, read, err)
		return a, err
	}
	if r.Progress != nil {
		r.Progress()
	}
	a.Response, err = x.Codec.DecodeResponse(read.Bytes)
	if said, ok := errors.AsType[*dialect.Error](err); ok {
		a.Stopped, err = x.meaning(answer, said, call.Model)
	} else if err != nil {
		failure := x.unreadable(err)
		if x.Quirks.RetryUnreadable && !bytes.HasPrefix(bytes.TrimSpace(read.Bytes), []byte("{")) {
			failure.Class = provider.Transient
		}
		err = failure
	}
	a.keep(r, read, err)
	return a, err
}

// keep keeps an answer, if it is to be recorded.
func (a *Answer) keep(r *provider.Request, read *buffer.Buffer, err error) {
	if r.Record.Of(err) {
		a.Raw = bytes.Clone(read.Bytes)
	}
}

// stream reads an answer that arrives as events. A stream that is cut off returns the received part; one that never
// began is retryable.
func (x *Exchange) stream(ctx context.Context, answer *http.Response, r *provider.Request, call *Call, left *int64) (a Answer, err error) {
	s, events, pieces := x.Codec.NewStreamReader(), transport.NewEvents(r.Record != provider.RecordNone), int64(0)
	defer func() {
		a.Raw = events.Document()
		if s.Started() && a.Stopped == nil && (err != nil || !s.Complete()) && r.Unfinished != nil {
			r.Unfinished(s.Usage(), pieces)
		}
	}()
	for event, err := range x.Codec.ReadEvents(events.From(transport.Limit(answer.Body, left))) {
		if err != nil {
			return a, x.broken(ctx, err)
		}
		if r.Progress != nil {
			r.Progress()
		}
		events.Add(event.Data)
		deltas, err := s.Add(event)
		if said, ok := errors.AsType[*dialect.Error](err); ok {
			if a.Stopped, err = x.meaning(answer, x.within(said), call.Model); err == nil {
				a.Stopped.Usage = s.Usage()
			}
			return a, err
		}
		if err != nil {
			return a, x.unreadable(err)
		}
		pieces += int64(len(deltas))
		if err := r.HoldSaid(ctx, deltas...); err != nil {
			return a, x.broken(ctx, err)
		}
		if r.Stream != nil {
			for _, delta := range deltas {
				r.Stream(delta)
			}
		}
		if s.Done() {
			break
		}
	}
	if !s.Started() {
		return a, &provider.Error{
			Provider: x.Provider, Class: provider.Transient, Status: answer.StatusCode, Message: "the stream ended before anything came",
		}
	}
	a.Response = s.Response()
	return a, nil
}

// invalidRequest is the type of an error that is the request's fault, in the formats of several vendors.
const invalidRequest = "invalid_request_error"

// within returns an error that came within a stream. The API had accepted the request by then, so that an error without
// a more specific meaning is the server's, and is retryable.
func (x *Exchange) within(said *dialect.Error) *dialect.Error {
	said.Transient = said.Transient || said.Status == 0 && said.Type != invalidRequest
	return said
}

// meaning interprets an error of the API. An error with the status of a success has the one that its words represent.
func (x *Exchange) meaning(answer *http.Response, said *dialect.Error, model string) (*modelv1.ModelOutput, error) {
	status, mayStop := answer.StatusCode, x.Quirks.StopStatuses == nil || slices.Contains(x.Quirks.StopStatuses, answer.StatusCode)
	if status/100 == 2 {
		status, mayStop = cmp.Or(said.Status, status), true
	}
	x.complete(said, answer.Header)
	if mayStop {
		if x.Quirks.Stop != nil {
			if output, stops := x.Quirks.Stop(status, said, model); stops {
				return output, nil
			}
		}
		if output, stops := x.Codec.Stopped(status, said, model); stops && !x.Quirks.OwnStops {
			return output, nil
		}
	}
	return nil, x.failure(status, answer.Header, said)
}

// complete redacts an error of the API, and adds what the headers say of it.
func (x *Exchange) complete(said *dialect.Error, header http.Header) {
	said.Message = transport.Redact(x.HTTP, said.Message)
	if x.Quirks.Header != nil {
		x.Quirks.Header(header, said)
	}
}

// failure is the failure that an error of the API is.
func (x *Exchange) failure(status int, header http.Header, said *dialect.Error) *provider.Error {
	return &provider.Error{
		Provider: x.Provider, Class: x.class(status, said), Status: status, Message: said.Message,
		Auth:       status == http.StatusUnauthorized || x.Quirks.Auth != nil && x.Quirks.Auth(said),
		RetryAfter: cmp.Or(retry.After(header, time.Now()), said.RetryAfter),
		Cause:      said,
	}
}

// Refused is the failure that an answer with the status of one is.
func (x *Exchange) Refused(status int, header http.Header, body []byte) *provider.Error {
	said := x.Codec.DecodeError(body)
	x.complete(said, header)
	return x.failure(status, header, said)
}

// class reports whether a refused request may be repeated.
func (x *Exchange) class(status int, said *dialect.Error) provider.Class {
	class := provider.ClassOf(status)
	if class == provider.Final && said.Transient {
		class = provider.Transient
	}
	if x.Quirks.Class != nil {
		class = x.Quirks.Class(status, said, class)
	}
	return class
}

// Malformed is the failure of an answer that cannot be read.
func (x *Exchange) Malformed(err error) *provider.Error {
	return &provider.Error{Provider: x.Provider, Invalid: true, Status: http.StatusOK, Cause: err}
}

// unreadable is the failure of an answer, or of a part of one, that the dialect cannot read.
func (x *Exchange) unreadable(err error) *provider.Error {
	failure := x.Malformed(err)
	if x.Quirks.RetryMalformed {
		failure.Class = provider.Transient
	}
	return failure
}

// broken is the failure of a connection.
func (x *Exchange) broken(ctx context.Context, err error) error {
	return transport.Broken(ctx, x.Provider, err)
}

// Upstream returns the API as a target for requests that are already in the dialect. authorize sets the account's
// credentials and headers, replacing present ones.
func (x *Exchange) Upstream(url, model string, authorize func(http.Header)) *provider.Upstream {
	return &provider.Upstream{
		Dialect: x.Codec.Format().Name, Provider: x.Provider, URL: url, Model: model, HTTP: x.HTTP, Authorize: authorize,
		Refused: x.Refused,
	}
}
