package execute

import (
	"context"

	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/enum"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/headtail"
	"github.com/evalfleet/evalfleet/pkg/telemetry"
)

const (
	// maxShownName bounds a name that a model has chosen, in the name of a span, and contentBytes the arguments and the
	// result in a span.
	maxShownName = 100
	contentBytes = 16 << 10
)

// beginSpan begins the span of a call.
func beginSpan(ctx context.Context, call *toolv1.ToolCall) (context.Context, trace.Span) {
	ctx, span := telemetry.Start(ctx, "execute_tool", trace.SpanKindInternal)
	if span.IsRecording() {
		name := headtail.Cut(call.GetFunction(), maxShownName)
		span.SetName("execute_tool " + name)
		span.SetAttributes(semconv.GenAIOperationNameExecuteTool, semconv.GenAIToolName(name), semconv.GenAIToolType("function"), semconv.GenAIToolCallID(call.GetId()))
	}
	return ctx, span
}

// endSpan ends it with the result.
func endSpan(ctx context.Context, span trace.Span, result *toolv1.ToolResult) {
	if !span.IsRecording() {
		return
	}
	switch {
	case result.GetFailure() != nil:
		telemetry.Fail(span, result.GetFailure().GetReason())
	case result.GetError() != nil:
		telemetry.Fail(span, enum.Word(result.GetError().GetType()))
	}
	if telemetry.Content(ctx) {
		span.SetAttributes(semconv.GenAIToolCallArgumentsKey.String(headtail.Cut(result.GetArgumentsJson(), contentBytes)),
			semconv.GenAIToolCallResultKey.String(headtail.Cut(chat.ContentText(result.GetContent()), contentBytes)))
	}
	span.End()
}
