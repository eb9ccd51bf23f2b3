// Package chatapi makes one request of chat completions over HTTP and reads the answer: the transport that providers of this format share. What
// differs between them they put into the request and into Quirks.
package chatapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/openaichat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/retry"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/buffer"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/transport"
)

// Client calls one endpoint. It may be used concurrently.
type Client struct {
	// HTTP makes the requests.
	HTTP *http.Client
	// Provider is the name for errors.
	Provider string
	// BaseURL is where `/chat/completions` is.
	BaseURL string
	// Key is sent as a bearer token; zero sends none.
	Key config.Secret
	// Headers are sent with each request.
	Headers map[string]string
	// Quirks are what the server's errors mean.
	Quirks Quirks
}

// Quirks say what the errors of a server mean, where it is not what most mean.
type Quirks struct {
	// RetryUnreadable says that a 200 whose body is no JSON object comes from something between us and the server, and may be tried again.
	RetryUnreadable bool
	// BadRequest are the statuses whose errors may stand for an output, such as a full context.
	BadRequest []int
	// Stop reads such an error before the common rules do; nil has no rules of its own.
	Stop func(status int, e *openaichat.Error, model string) (*modelv1.ModelOutput, bool)
	// Class corrects the class of an error; nil corrects nothing.
	Class func(status int, e *openaichat.Error, class provider.Class) provider.Class
}

// path is where chat completions are, below the base URL.
const path = "/chat/completions"

// Upstream returns the endpoint as a place for requests that come in the format already. model is the name that the server knows.
func (c *Client) Upstream(model string) *provider.Upstream {
	return &provider.Upstream{
		Dialect: openaichat.Name, Provider: c.Provider, URL: c.BaseURL + path, Model: model, HTTP: c.HTTP, Authorize: c.authorize,
		Class: func(status int, body []byte) provider.Class { return c.class(status, openaichat.DecodeError(body)) },
	}
}

// authorize sets what the account sends with each request.
func (c *Client) authorize(h http.Header) {
	h.Del("Authorization")
	if !c.Key.IsZero() {
		h.Set("Authorization", "Bearer "+c.Key.Reveal())
	}
	for name, value := range c.Headers {
		h.Set(name, value)
	}
}

// class says whether a refused request may be repeated.
func (c *Client) class(status int, said *openaichat.Error) provider.Class {
	class := provider.ClassOf(status)
	if c.Quirks.Class != nil {
		class = c.Quirks.Class(status, said, class)
	}
	return class
}

// Do makes one request. The output of a stream is collected, and its pieces are given to the request's Stream as they come.
func (c *Client) Do(ctx context.Context, r *provider.Request, request *openaichat.Request) (*provider.Response, error) {
	body, err := buffer.Of(request.Append)
	if err != nil {
		return nil, unsupported(c.Provider, err)
	}
	defer body.Release()
	start := time.Now()
	output, raw, err := c.exchange(ctx, r, request, body)
	if err != nil {
		if failure, ok := provider.As(err); ok && r.Record.Of(err) {
			failure.Call = transport.Record(body.Bytes, raw, true, start)
		}
		return nil, err
	}
	output.Time = provider.Clock(start)
	response := &provider.Response{Output: output}
	if r.Record.Of(nil) {
		response.Call = transport.Record(body.Bytes, raw, false, start)
	}
	return response, nil
}

// exchange sends a request and reads the answer. raw is the answer as it came, where that is to be recorded; of a stream its events.
func (c *Client) exchange(
	ctx context.Context, r *provider.Request, request *openaichat.Request, body *buffer.Buffer,
) (output *modelv1.ModelOutput, raw []byte, err error) {
	post, err := transport.NewPost(ctx, c.BaseURL+path, body)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", c.Provider, err)
	}
	c.setHeaders(post.Header, request)
	answer, err := c.HTTP.Do(post)
	if err != nil {
		return nil, nil, c.broken(ctx, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode/100 == 3 {
		return nil, nil, provider.Redirected(c.Provider)
	}
	refused := answer.StatusCode != http.StatusOK
	if !refused && request.Stream && !transport.IsJSON(answer.Header) {
		events := transport.NewEvents(r.Record != provider.RecordNone)
		output, err = c.stream(ctx, answer.Body, r, request, events)
		return output, events.Document(), err
	}
	var read *buffer.Buffer
	if refused {
		read, err = transport.Read(answer, transport.MaxErrorBytes)
	} else {
		read, err = transport.ReadWhole(answer, r.AnswerBound())
	}
	defer read.Release()
	switch {
	case refused: // Of what breaks off as much counts as came.
		output, err = c.refused(answer, openaichat.DecodeError(read.Bytes), request.Model)
	case err != nil:
		err = c.broken(ctx, err)
	default:
		output, err = openaichat.Decode(read.Bytes, r.Tools)
		if err != nil {
			output, err = c.unreadable(answer, read.Bytes, err, request.Model)
		}
	}
	if r.Record.Of(err) {
		raw = bytes.Clone(read.Bytes)
	}
	return output, raw, err
}

func (c *Client) setHeaders(h http.Header, request *openaichat.Request) {
	h.Set("Content-Type", "application/json")
	if request.Stream {
		h.Set("Accept", "text/event-stream")
	} else {
		h.Set("Accept", "application/json")
	}
	c.authorize(h)
	for name, value := range request.Config.GetExtraHeaders().GetValues() {
		h.Set(name, value)
	}
}

// stream reads an answer that comes in pieces, and keeps them as events.
func (c *Client) stream(
	ctx context.Context, body io.Reader, r *provider.Request, request *openaichat.Request, events *transport.Events,
) (output *modelv1.ModelOutput, err error) {
	var s openaichat.Stream
	pieces := int64(0)
	defer func() {
		if s.Started() && (err != nil || !s.Whole()) && r.Unfinished != nil {
			r.Unfinished(s.Usage(), pieces)
		}
	}()
	left := r.AnswerBound()
	for event, err := range dialect.Events(events.From(transport.Limit(body, &left))) {
		if err != nil {
			return nil, c.broken(ctx, err)
		}
		if r.Progress != nil {
			r.Progress()
		}
		events.Add(event.Data)
		deltas, err := s.Add(event.Data)
		if err != nil {
			return c.failedStream(err, request.Model)
		}
		pieces += int64(len(deltas))
		if r.Stream != nil {
			for _, delta := range deltas {
				r.Stream(delta)
			}
		}
		if s.Ended() {
			break
		}
	}
	if !s.Started() {
		return nil, &provider.Error{Provider: c.Provider, Class: provider.Transient, Status: http.StatusOK, Message: "the stream ended before anything came"}
	}
	return s.Output(r.Tools)
}

// failedStream says what an error within a stream means. The attempt may be repeated unless the request itself is at fault.
func (c *Client) failedStream(err error, model string) (*modelv1.ModelOutput, error) {
	said, ok := errors.AsType[*openaichat.Error](err)
	if !ok {
		return nil, &provider.Error{Provider: c.Provider, Invalid: true, Status: http.StatusOK, Cause: err}
	}
	if output, stops := said.Stop(model); stops {
		return output, nil
	}
	class := provider.Transient
	if said.Code == "rate_limit_exceeded" || said.Code == "429" {
		class = provider.RateLimit
	}
	return nil, &provider.Error{Provider: c.Provider, Class: class, Status: http.StatusOK, Message: said.Message}
}

// refused says what an answer with another status than 200 means.
func (c *Client) refused(answer *http.Response, said *openaichat.Error, model string) (*modelv1.ModelOutput, error) {
	status := answer.StatusCode
	if slices.Contains(c.Quirks.BadRequest, status) {
		if c.Quirks.Stop != nil {
			if output, stops := c.Quirks.Stop(status, said, model); stops {
				return output, nil
			}
		}
		if output, stops := said.Stop(model); stops {
			return output, nil
		}
	}
	return nil, &provider.Error{
		Provider: c.Provider, Class: c.class(status, said), Status: status, Message: said.Message,
		Auth: status == http.StatusUnauthorized, RetryAfter: retry.After(answer.Header, time.Now()),
	}
}

// unreadable says what a 200 means whose body is no answer.
func (c *Client) unreadable(answer *http.Response, body []byte, err error, model string) (*modelv1.ModelOutput, error) {
	if said, ok := errors.AsType[*openaichat.Error](err); ok {
		return c.refusedInside(answer, said, model)
	}
	failure := &provider.Error{Provider: c.Provider, Invalid: true, Status: answer.StatusCode, Cause: err}
	if c.Quirks.RetryUnreadable && !bytes.HasPrefix(bytes.TrimSpace(body), []byte("{")) {
		failure.Class = provider.Transient
	}
	return nil, failure
}

// refusedInside reads an error that came with a 200: its code may be the status that was meant.
func (c *Client) refusedInside(answer *http.Response, said *openaichat.Error, model string) (*modelv1.ModelOutput, error) {
	if output, stops := said.Stop(model); stops {
		return output, nil
	}
	var status int
	if _, err := fmt.Sscanf(said.Code, "%d", &status); err != nil {
		status = answer.StatusCode
	}
	return nil, &provider.Error{
		Provider: c.Provider, Class: provider.ClassOf(status), Status: status, Message: said.Message, RetryAfter: retry.After(answer.Header, time.Now()),
	}
}

// broken is the failure of a connection.
func (c *Client) broken(ctx context.Context, err error) error {
	return transport.Broken(ctx, c.Provider, err)
}
