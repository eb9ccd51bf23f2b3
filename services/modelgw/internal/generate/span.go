package generate

import (
	"cmp"
	"context"
	"net/url"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/enum"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/headtail"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
	"github.com/evalfleet/evalfleet/pkg/telemetry"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

const (
	// toldRetries bounds the events of a span, the latest attempts.
	toldRetries = 20
	// contentBytes bounds the text of a conversation in a span, and of an answer; textBytes bounds one message.
	contentBytes, textBytes = 16 << 10, 4 << 10
)

// conventional are the names of providers in the conventions, where they differ from ours. A model in a cloud, whose
// name begins with that, is the cloud's.
var conventional = map[string]string{
	"azureai": "azure.ai.inference", "bedrock": "aws.bedrock", "google": "gcp.gemini", "grok": "x_ai", "mistral": "mistral_ai",
	"openai/azure": "azure.ai.openai", "anthropic/azure": "azure.ai.inference", "mistral/azure": "azure.ai.inference",
	"openai/bedrock": "aws.bedrock", "anthropic/bedrock": "aws.bedrock", "anthropic/vertex": "gcp.vertex_ai", "google/vertex": "gcp.vertex_ai",
}

// providerName is the name of a model's provider in the conventions.
func providerName(m *provider.Model) string {
	cloud, _, _ := strings.Cut(m.Name, "/")
	return cmp.Or(conventional[m.Kind.Name+"/"+cloud], conventional[m.Kind.Name], m.Kind.Name)
}

// beginSpan begins the span of a call.
func beginSpan(ctx context.Context, c *Call) (context.Context, trace.Span) {
	ctx, span := telemetry.Start(ctx, "chat", trace.SpanKindClient)
	if !span.IsRecording() {
		return ctx, span
	}
	span.SetName("chat " + c.Model.Name)
	span.SetAttributes(semconv.GenAIOperationNameChat, semconv.GenAIProviderNameKey.String(providerName(c.Model)), semconv.GenAIRequestModel(c.Model.Name), semconv.GenAIRequestStream(c.Sink != nil),
		attribute.String("evalfleet.account", c.Model.Account), attribute.String("evalfleet.project", c.Origin.Project))
	if run := c.Origin.Attribution.GetRun(); run != "" {
		span.SetAttributes(telemetry.Run(run))
	}
	if c.Config.MaxTokens != nil {
		span.SetAttributes(semconv.GenAIRequestMaxTokens(int(c.Config.GetMaxTokens())))
	}
	if c.Config.Temperature != nil {
		span.SetAttributes(semconv.GenAIRequestTemperature(c.Config.GetTemperature()))
	}
	if at := c.Model.Constant().Upstreams; len(at) > 0 {
		if u, err := url.Parse(at[0].URL); err == nil {
			span.SetAttributes(semconv.ServerAddress(u.Hostname()))
		}
	}
	if telemetry.Content(ctx) && len(c.Messages) > 0 {
		span.SetAttributes(semconv.GenAIInputMessagesKey.String(messagesJSON(c.Messages)))
	}
	return ctx, span
}

// describe adds what is known of a call at its end to its span.
func describe(ctx context.Context, span trace.Span, o *Outcome, response *provider.Response, err error) {
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(attribute.Float64("evalfleet.queued_seconds", o.Queued.Seconds()), attribute.Float64("evalfleet.retry_wait_seconds", o.RetryWait.Seconds()),
		attribute.Int("evalfleet.attempts", o.Attempts), attribute.Int("evalfleet.key", o.Key))
	if o.FirstPiece > 0 { // That a relayed call is streamed is known only now.
		span.SetAttributes(semconv.GenAIRequestStream(true), semconv.GenAIResponseTimeToFirstChunk(o.FirstPiece.Seconds()))
	}
	for _, failed := range o.Failed[max(0, len(o.Failed)-toldRetries):] {
		span.AddEvent("retry", trace.WithTimestamp(failed.GetEndTime().AsTime()), trace.WithAttributes(
			semconv.HTTPResponseStatusCode(int(failed.GetStatus())), attribute.Float64("evalfleet.wait_seconds", failed.GetWait().AsDuration().Seconds())))
	}
	if outcome := ended(o, err); outcome != "ok" {
		telemetry.Fail(span, outcome)
	}
	usage := o.unfinished
	if err == nil {
		output := response.Output
		if !response.BrokenOff {
			usage = chat.AddUsage(usage, output.GetUsage())
		}
		span.SetAttributes(semconv.GenAIResponseModel(output.GetModel()))
		if id := output.GetResponseId(); id != "" {
			span.SetAttributes(semconv.GenAIResponseID(id))
		}
		var reasons []string
		var said []*modelv1.ChatMessage
		for _, choice := range output.GetChoices() {
			reasons, said = append(reasons, enum.Word(choice.GetStopReason())), append(said, choice.GetMessage())
		}
		span.SetAttributes(semconv.GenAIResponseFinishReasons(reasons...))
		if telemetry.Content(ctx) && len(said) > 0 {
			span.SetAttributes(semconv.GenAIOutputMessagesKey.String(messagesJSON(said)))
		}
	}
	spanUsage(span, usage)
}

// spanUsage adds tokens and cost. The input of the conventions includes what was cached.
func spanUsage(span trace.Span, u *modelv1.ModelUsage) {
	if u == nil {
		return
	}
	span.SetAttributes(semconv.GenAIUsageInputTokens(int(chat.SumTokens(u.GetInputTokens(), u.GetInputTokensCacheRead(), u.GetInputTokensCacheWrite()))),
		semconv.GenAIUsageOutputTokens(int(u.GetOutputTokens())))
	for of, n := range map[attribute.Key]int64{
		semconv.GenAIUsageCacheReadInputTokensKey: u.GetInputTokensCacheRead(), semconv.GenAIUsageCacheCreationInputTokensKey: u.GetInputTokensCacheWrite(),
		semconv.GenAIUsageReasoningOutputTokensKey: u.GetReasoningTokens(),
	} {
		if n > 0 {
			span.SetAttributes(of.Int64(n))
		}
	}
	if u.TotalCost != nil {
		span.SetAttributes(attribute.Float64("evalfleet.cost_dollars", u.GetTotalCost()))
	}
}

// messagesJSON returns the texts and the tool calls of messages in the form of the conventions: the latest messages
// that are within the bound. Media are left out.
func messagesJSON(messages []*modelv1.ChatMessage) string {
	first, size := len(messages), 0
	for first > 0 {
		size += len(messageJSON(messages[first-1]))
		if size > contentBytes {
			break
		}
		first--
	}
	all := make([]string, 0, len(messages)-first)
	for _, m := range messages[first:] {
		all = append(all, messageJSON(m))
	}
	return "[" + strings.Join(all, ",") + "]"
}

// messageJSON is one message, its texts cut.
func messageJSON(m *modelv1.ChatMessage) string {
	var w jsonwrite.Writer
	w.BeginObject()
	w.Key("role")
	w.Text(enum.Word(m.GetRole()))
	w.Key("parts")
	w.BeginList()
	if text := chat.Text(m); text != "" {
		w.BeginObject()
		w.Key("type")
		w.Text("text")
		w.Key("content")
		w.Text(headtail.Cut(text, textBytes))
		w.EndObject()
	}
	for _, call := range m.GetToolCalls() {
		w.BeginObject()
		w.Key("type")
		w.Text("tool_call")
		w.Key("id")
		w.Text(call.GetId())
		w.Key("name")
		w.Text(call.GetFunction())
		w.Key("arguments")
		w.Text(headtail.Cut(call.GetArgumentsJson(), textBytes))
		w.EndObject()
	}
	w.EndList()
	w.EndObject()
	return w.String()
}
