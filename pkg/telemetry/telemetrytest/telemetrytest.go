// Package telemetrytest receives traces as a collector does, in tests.
package telemetrytest

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/hex"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/telemetry"
)

// Collector takes traces by OTLP, over gRPC at one address and over HTTP at another. It is safe for concurrent use.
type Collector struct {
	collectorv1.UnimplementedTraceServiceServer
	// GRPC and HTTP are its addresses, as URLs.
	GRPC, HTTP string

	mu       sync.Mutex
	spans    []*Span
	headers  []string
	services []string
	raw      strings.Builder
}

// Span is a span as it was received.
type Span struct {
	*tracev1.Span
	// Attributes are the attributes by name: texts, int64, float64, bool, or lists of texts.
	Attributes map[string]any
}

// Trace is the id of the span's trace, in hexadecimal digits.
func (s *Span) Trace() string { return hex.EncodeToString(s.GetTraceId()) }

// ID is the span's own id.
func (s *Span) ID() string { return hex.EncodeToString(s.GetSpanId()) }

// Parent is the id of the span's parent; empty for a root.
func (s *Span) Parent() string { return hex.EncodeToString(s.GetParentSpanId()) }

// Collect starts a collector that ends with the test.
func Collect(t testing.TB) *Collector {
	t.Helper()
	c := &Collector{}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer()
	collectorv1.RegisterTraceServiceServer(server, c)
	var served sync.WaitGroup
	served.Go(func() { assert.NoError(t, server.Serve(listener)) })
	web := httptest.NewServer(http.HandlerFunc(c.serve))
	c.GRPC, c.HTTP = "http://"+listener.Addr().String(), web.URL
	t.Cleanup(func() {
		web.Close()
		server.Stop()
		served.Wait()
	})
	return c
}

// Traces makes traces that c receives; flush exports all spans that have ended.
func (c *Collector) Traces(t testing.TB, change func(*telemetry.TraceConfig)) (traces *telemetry.Traces, flush func()) {
	t.Helper()
	cfg := telemetry.TraceConfig{Endpoint: c.GRPC, Protocol: "grpc"}
	if change != nil {
		change(&cfg)
	}
	require.NoError(t, cfg.Validate())
	traces, err := telemetry.NewTraces(t.Context(), cfg, "test", "one", slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	flush = sync.OnceFunc(func() { assert.NoError(t, traces.Stop(context.Background())) })
	t.Cleanup(flush)
	return traces, flush
}

// Export implements the service.
func (c *Collector) Export(ctx context.Context, r *collectorv1.ExportTraceServiceRequest) (*collectorv1.ExportTraceServiceResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	c.take(r, strings.Join(md.Get("x-key"), ","))
	return &collectorv1.ExportTraceServiceResponse{}, nil
}

func (c *Collector) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err == nil && r.Header.Get("Content-Encoding") == "gzip" {
		var z *gzip.Reader
		if z, err = gzip.NewReader(bytes.NewReader(body)); err == nil {
			body, err = io.ReadAll(z)
		}
	}
	request := &collectorv1.ExportTraceServiceRequest{}
	if err == nil {
		err = proto.Unmarshal(body, request)
	}
	if err != nil || r.URL.Path != "/v1/traces" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	c.take(request, r.Header.Get("X-Key"))
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func (c *Collector) take(r *collectorv1.ExportTraceServiceRequest, key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.headers = append(c.headers, key)
	c.raw.WriteString(protojson.Format(r))
	for _, of := range r.GetResourceSpans() {
		for _, a := range of.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				c.services = append(c.services, a.GetValue().GetStringValue())
			}
		}
		for _, scope := range of.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				c.spans = append(c.spans, &Span{Span: span, Attributes: attributes(span.GetAttributes())})
			}
		}
	}
}

// Keys are the values of the header X-Key of all exports, and Services the names of their processes.
func (c *Collector) Keys() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Compact(slices.Clone(c.headers))
}

// Services are the names of the processes of all exports.
func (c *Collector) Services() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Compact(slices.Clone(c.services))
}

// Spans returns all spans that were received, in the order of their start.
func (c *Collector) Spans() []*Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := slices.Clone(c.spans)
	slices.SortStableFunc(all, func(a, b *Span) int { return cmp.Compare(a.GetStartTimeUnixNano(), b.GetStartTimeUnixNano()) })
	return all
}

// Text is everything that was received, as text.
func (c *Collector) Text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.raw.String()
}

// Find returns the one span of a name.
func (c *Collector) Find(t testing.TB, name string) *Span {
	t.Helper()
	var found []*Span
	var names []string
	for _, span := range c.Spans() {
		if names = append(names, span.GetName()); span.GetName() == name {
			found = append(found, span)
		}
	}
	require.Len(t, found, 1, "spans of the name %q among %q", name, names)
	return found[0]
}

func attributes(all []*commonv1.KeyValue) map[string]any {
	found := map[string]any{}
	for _, a := range all {
		switch v := a.GetValue().GetValue().(type) {
		case *commonv1.AnyValue_StringValue:
			found[a.GetKey()] = v.StringValue
		case *commonv1.AnyValue_IntValue:
			found[a.GetKey()] = v.IntValue
		case *commonv1.AnyValue_DoubleValue:
			found[a.GetKey()] = v.DoubleValue
		case *commonv1.AnyValue_BoolValue:
			found[a.GetKey()] = v.BoolValue
		case *commonv1.AnyValue_ArrayValue:
			var texts []string
			for _, each := range v.ArrayValue.GetValues() {
				texts = append(texts, each.GetStringValue())
			}
			found[a.GetKey()] = texts
		}
	}
	return found
}
