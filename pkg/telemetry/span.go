package telemetry

import (
	"context"
	"crypto/rand"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
)

// Names of attributes that are the platform's own; all others are those of the semantic conventions.
const (
	attributeRun     = "evalfleet.run"
	attributeService = "evalfleet.service"
	attributeRequest = "evalfleet.request_id"
)

// Run is the attribute that names a run.
func Run(name string) attribute.KeyValue { return attribute.String(attributeRun, name) }

// w3c carries the identity of a span in headers.
var w3c propagation.TraceContext

func random() []byte {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // It never fails.
	return b
}

func newSpanID() (id trace.SpanID) {
	copy(id[:], random())
	return id
}

// Start begins a span below that of ctx. Without one, or where it is not exported, it costs nothing. End it.
func Start(ctx context.Context, name string, kind trace.SpanKind, attributes ...attribute.KeyValue) (context.Context, trace.Span) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, none
	}
	return parent.TracerProvider().Tracer(scope).Start(ctx, name, trace.WithSpanKind(kind), trace.WithAttributes(attributes...))
}

// none is no span.
var none = trace.SpanFromContext(context.Background())

// Fail sets the reason why the work of a span failed; empty if it did not.
func Fail(span trace.Span, reason string) {
	if reason == "" {
		return
	}
	span.SetAttributes(semconv.ErrorTypeKey.String(reason))
	span.SetStatus(codes.Error, reason)
}

// incoming are the headers of a gRPC call at its server.
type incoming struct {
	propagation.TextMapCarrier
	ctx context.Context //nolint:containedctx // The headers are in it.
}

// Get implements [propagation.TextMapCarrier].
func (c incoming) Get(key string) string {
	return strings.Join(metadata.ValueFromIncomingContext(c.ctx, key), ",")
}

// Values implements [propagation.ValuesGetter].
func (c incoming) Values(key string) []string { return metadata.ValueFromIncomingContext(c.ctx, key) }

// ServeGRPC begins the span of a call that a server handles: below the span of ctx, which is that of a server that
// includes this one, or else in its caller's trace if the call's headers name one. [EndGRPC] ends it. Callers are to be
// authenticated before.
func (t *Traces) ServeGRPC(ctx context.Context, service, method string) context.Context {
	if t == nil {
		return ctx
	}
	method = strings.TrimPrefix(method, "/")
	ctx = t.withContent(ctx)
	if !trace.SpanContextFromContext(ctx).IsValid() {
		ctx = w3c.Extract(ctx, incoming{ctx: ctx})
	}
	ctx, _ = t.tracer.Start(ctx, method, trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(semconv.RPCSystemNameGRPC, semconv.RPCMethod(method), attribute.String(attributeService, service)))
	return ctx
}

// EndGRPC ends the span of ctx with the code of a call that a server handled. If there is none, it does nothing.
func EndGRPC(ctx context.Context, code grpccodes.Code, requestID string) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(attribute.String(attributeRequest, requestID), semconv.RPCResponseStatusCode(code.String()))
	switch code { //nolint:exhaustive // These are faults of a server; all others are its answers.
	case grpccodes.Unknown, grpccodes.DeadlineExceeded, grpccodes.Unimplemented, grpccodes.Internal, grpccodes.Unavailable, grpccodes.DataLoss:
		Fail(span, code.String())
	}
	span.End()
}

// CallGRPC begins the span of a call to another service, if ctx is part of a trace, and returns the context that
// carries it to the service. The returned function ends the span, at its first call; it is nil without a trace.
func CallGRPC(ctx context.Context, method string) (context.Context, func(grpccodes.Code)) {
	parent := trace.SpanFromContext(ctx)
	if !parent.SpanContext().IsValid() {
		return ctx, nil
	}
	method = strings.TrimPrefix(method, "/")
	ctx, span := parent.TracerProvider().Tracer(scope).Start(ctx, method, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(semconv.RPCSystemNameGRPC, semconv.RPCMethod(method)))
	headers, _ := metadata.FromOutgoingContext(ctx) // A copy.
	if headers == nil {
		headers = metadata.MD{}
	}
	told := propagation.MapCarrier{}
	w3c.Inject(ctx, told)
	delete(headers, "tracestate")
	for name, value := range told {
		headers.Set(name, value)
	}
	return metadata.NewOutgoingContext(ctx, headers), func(code grpccodes.Code) {
		span.SetAttributes(semconv.RPCResponseStatusCode(code.String()))
		if code != grpccodes.OK {
			Fail(span, code.String())
		}
		span.End()
	}
}

// ServeHTTP begins the span of a request over HTTP, in its caller's trace if its headers name one. The route is the
// pattern that the request matched. Callers are to be authenticated before. The returned function ends the span.
func (t *Traces) ServeHTTP(ctx context.Context, r *http.Request, service, route string) (context.Context, func(code string)) {
	if t == nil {
		return ctx, func(string) {}
	}
	ctx, span := t.tracer.Start(w3c.Extract(t.withContent(ctx), propagation.HeaderCarrier(r.Header)), methodOf(r)+" "+route, trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(semconv.HTTPRequestMethodKey.String(methodOf(r)), semconv.HTTPRoute(route), attribute.String(attributeService, service)))
	return ctx, func(failure string) {
		Fail(span, failure)
		span.End()
	}
}

// methodOf returns the method of a request, as one of the known ones.
func methodOf(r *http.Request) string {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		return r.Method
	}
	return "_OTHER"
}
