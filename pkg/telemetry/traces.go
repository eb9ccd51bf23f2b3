package telemetry

import (
	"cmp"
	"context"
	"crypto/sha256"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/evalfleet/evalfleet/pkg/headtail"
	"github.com/evalfleet/evalfleet/pkg/version"
)

const (
	// scope names the instrumentation.
	scope = "evalfleet.dev"
	// exportTime bounds one export with its retries, and flushTime the export of the rest at the end.
	exportTime = 15 * time.Second
	flushTime  = 5 * time.Second
	// queuedSpans bounds the spans that wait for their export; more are dropped. attributeBytes bounds a value.
	queuedSpans    = 4096
	attributeBytes = 32 << 10
	// failureEvery is the shortest time between two lines in the log about exports that failed.
	failureEvery = time.Minute
	// maxShownFailure bounds the text of such a failure, which may be the collector's.
	maxShownFailure = 300
)

// samplers are the samplers by their standard names, for a share of traces.
var samplers = map[string]func(ratio float64) sdktrace.Sampler{
	"always_on":                func(float64) sdktrace.Sampler { return sdktrace.AlwaysSample() },
	"always_off":               func(float64) sdktrace.Sampler { return sdktrace.NeverSample() },
	"traceidratio":             sdktrace.TraceIDRatioBased,
	"parentbased_always_on":    func(float64) sdktrace.Sampler { return sdktrace.ParentBased(sdktrace.AlwaysSample()) },
	"parentbased_always_off":   func(float64) sdktrace.Sampler { return sdktrace.ParentBased(sdktrace.NeverSample()) },
	"parentbased_traceidratio": func(r float64) sdktrace.Sampler { return sdktrace.ParentBased(sdktrace.TraceIDRatioBased(r)) },
}

func samplerNames() []string { return slices.Sorted(maps.Keys(samplers)) }

// Traces makes the spans of a process and exports them in batches. Nil makes none. It is safe for concurrent use. An
// export never delays the work that a span is about: spans that find the queue full are dropped.
type Traces struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	sampler  sdktrace.Sampler
	content  bool
	// cut ends the exports that are in progress, and all later ones.
	cut context.CancelFunc
}

// NewTraces returns the traces of a process, and nil if cfg has no endpoint. Service is the name of the process unless
// cfg has one, and instance distinguishes it from others of the name. It does not connect. Stop ends it.
func NewTraces(ctx context.Context, cfg TraceConfig, service, instance string, log *slog.Logger) (*Traces, error) {
	if cfg.Endpoint == "" {
		return nil, nil //nolint:nilnil // Nil makes no spans.
	}
	headers, err := cfg.headers()
	if err != nil {
		return nil, err
	}
	ratio, err := cfg.ratio()
	if err != nil {
		return nil, err
	}
	client, err := clientOf(cfg, headers)
	if err != nil {
		return nil, err
	}
	exporter, err := otlptrace.New(ctx, client)
	if err != nil {
		return nil, err
	}
	life, cut := context.WithCancel(context.WithoutCancel(ctx))
	t := &Traces{sampler: samplers[cfg.sampler()](ratio), content: cfg.Content, cut: cut}
	quiet := &discreet{SpanExporter: exporter, life: life, log: log, secrets: secretsOf(headers)}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { quiet.failed(0, err) })) // It would print them.
	t.provider = sdktrace.NewTracerProvider(
		sdktrace.WithSampler(t.sampler),
		sdktrace.WithIDGenerator(identities{}),
		sdktrace.WithRawSpanLimits(limits()),
		sdktrace.WithResource(resource.NewSchemaless(
			semconv.ServiceName(cmp.Or(cfg.ServiceName, service)), semconv.ServiceVersion(version.String()), semconv.ServiceInstanceID(instance),
		)),
		sdktrace.WithBatcher(quiet, sdktrace.WithMaxQueueSize(queuedSpans), sdktrace.WithExportTimeout(exportTime)),
	)
	t.tracer = t.provider.Tracer(scope)
	return t, nil
}

func clientOf(cfg TraceConfig, headers map[string]string) (otlptrace.Client, error) {
	if cfg.Protocol == protocolGRPC {
		return otlptracegrpc.NewClient(otlptracegrpc.WithEndpointURL(cfg.Endpoint), otlptracegrpc.WithHeaders(headers), otlptracegrpc.WithTimeout(exportTime)), nil
	}
	u, err := url.Parse(cfg.Endpoint)
	if err != nil {
		return nil, err
	}
	return otlptracehttp.NewClient(otlptracehttp.WithEndpointURL(u.JoinPath("v1/traces").String()), otlptracehttp.WithHeaders(headers), otlptracehttp.WithTimeout(exportTime)), nil
}

func limits() sdktrace.SpanLimits {
	l := sdktrace.NewSpanLimits()
	l.AttributeValueLengthLimit = attributeBytes
	return l
}

// Stop exports the ended spans that wait, for at most five seconds, whether or not ctx has ended: a collector that is
// away must not hold a process, and the grace of a stop may be spent. Later spans are dropped.
func (t *Traces) Stop(ctx context.Context) error {
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime+time.Second) // Room for the end of what is cut.
	defer cancel()
	defer time.AfterFunc(flushTime, t.cut).Stop()
	defer t.cut()
	_ = t.provider.Shutdown(ctx) // A failed export is logged; nothing follows from it for the process.
	return nil
}

type contentKey struct{}

// withContent returns ctx, in which [Content] reports what t is configured for.
func (t *Traces) withContent(ctx context.Context) context.Context {
	if !t.content {
		return ctx
	}
	return context.WithValue(ctx, contentKey{}, true)
}

// Content reports whether the span of ctx is exported, with the texts of messages, arguments and results.
func Content(ctx context.Context) bool {
	return ctx.Value(contentKey{}) != nil && trace.SpanFromContext(ctx).IsRecording()
}

// secretsOf are the values of headers, and beside them the credential alone where a value begins with its scheme.
func secretsOf(headers map[string]string) (all []string) {
	for _, value := range headers {
		_, credential, _ := strings.Cut(value, " ")
		all = append(all, value, strings.TrimSpace(credential))
	}
	return all
}

// discreet is an exporter whose failures are logged, seldom and without secrets, and never returned.
type discreet struct {
	sdktrace.SpanExporter
	life    context.Context //nolint:containedctx // It bounds all exports.
	log     *slog.Logger
	secrets []string

	mu     sync.Mutex
	logged time.Time
	lost   int
}

// ExportSpans implements [sdktrace.SpanExporter].
func (d *discreet) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.life, cancel)() //nolint:contextcheck // It ends with the exporter too.
	err := d.life.Err()
	if err == nil {
		err = d.SpanExporter.ExportSpans(ctx, readable(spans))
	}
	if err != nil {
		d.failed(len(spans), err)
	}
	return nil
}

// failed logs that spans are lost.
func (d *discreet) failed(spans int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lost += spans; time.Since(d.logged) >= failureEvery {
		d.log.Warn("spans of traces cannot be exported", "lost", d.lost, "error", d.explain(err))
		d.logged, d.lost = time.Now(), 0
	}
}

// explain returns the text of a failure without the values of our headers, which a collector may repeat.
func (d *discreet) explain(err error) string {
	text := err.Error()
	for _, secret := range d.secrets {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "*****")
		}
	}
	return headtail.Cut(text, maxShownFailure)
}

// identities makes the ids of spans: random ones, unless the context has some.
type identities struct{}

type identityKey struct{}

// NewIDs implements [sdktrace.IDGenerator].
func (identities) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if of, ok := ctx.Value(identityKey{}).(trace.SpanContext); ok {
		return of.TraceID(), of.SpanID()
	}
	var id trace.TraceID
	copy(id[:], random())
	return id, newSpanID()
}

// NewSpanID implements [sdktrace.IDGenerator].
func (identities) NewSpanID(context.Context, trace.TraceID) trace.SpanID { return newSpanID() }

// runSpan is the span of a whole run. Its ids are made from the run's name, so that each process that drives the run
// adds to the same trace, without a record of it.
func (t *Traces) runSpan(run string) trace.SpanContext {
	sum := sha256.Sum256([]byte("evalfleet run\x00" + run))
	c := trace.SpanContextConfig{TraceID: trace.TraceID(sum[:16]), SpanID: trace.SpanID(sum[16:24])}
	if t.sampler.ShouldSample(sdktrace.SamplingParameters{ParentContext: context.Background(), TraceID: c.TraceID}).Decision == sdktrace.RecordAndSample {
		c.TraceFlags = trace.FlagsSampled
	}
	return trace.NewSpanContext(c)
}

// Step begins the span of a step of a run, in the trace of the run. End it.
func (t *Traces) Step(ctx context.Context, run, name string, attributes ...attribute.KeyValue) (context.Context, trace.Span) {
	if t == nil {
		return ctx, trace.SpanFromContext(ctx)
	}
	return t.tracer.Start(trace.ContextWithSpanContext(t.withContent(ctx), t.runSpan(run)), name, trace.WithAttributes(append(attributes, Run(run))...))
}

// Ended makes the span of a run that has ended. Failure is the reason; empty if it did not fail.
func (t *Traces) Ended(run, name string, begun, ended time.Time, failure string, attributes ...attribute.KeyValue) {
	if t == nil {
		return
	}
	ctx := context.WithValue(context.Background(), identityKey{}, t.runSpan(run))
	_, span := t.tracer.Start(ctx, name, trace.WithNewRoot(), trace.WithTimestamp(begun), trace.WithAttributes(append(attributes, Run(run))...))
	Fail(span, failure)
	span.End(trace.WithTimestamp(ended))
}

// LinkRun links the span of ctx to the trace of a run that it begins.
func (t *Traces) LinkRun(ctx context.Context, run string) {
	if t == nil {
		return
	}
	span := trace.SpanFromContext(ctx)
	span.AddLink(trace.Link{SpanContext: t.runSpan(run)})
	span.SetAttributes(Run(run))
}
