package generate

import (
	"cmp"
	"context"
	"net/url"
	"slices"
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
	span.SetAttributes(semconv.GenAIOperationNameChat, semconv.GenAIProviderNameKey.String(providerName(c.Model)),
		semconv.GenAIRequestModel(c.Model.Name), semconv.GenAIRequestStream(c.Sink != nil),
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
		span.SetAttributes(semconv.GenAIInputMessagesKey.String(messagesJSON(len(c.Messages), func(i int) string { return messageJSON(c.Messages[i], "") })))
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
	usage := o.unfinishedUsage()
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
		for _, choice := range output.GetChoices() {
			reasons = append(reasons, enum.Word(choice.GetStopReason()))
		}
		span.SetAttributes(semconv.GenAIResponseFinishReasons(reasons...))
		if telemetry.Content(ctx) && chat.FirstMessage(output) != nil { // Else it was relayed, and not read.
			span.SetAttributes(semconv.GenAIOutputMessagesKey.String(messagesJSON(len(reasons), func(i int) string {
				return messageJSON(output.GetChoices()[i].GetMessage(), reasons[i])
			})))
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

// messagesJSON returns some messages, each of which the function returns, in the form of the conventions: the latest
// that are within the bound.
func messagesJSON(count int, message func(int) string) string {
	var all []string
	for i, size := count-1, 0; i >= 0; i-- {
		one := message(i)
		if size += len(one); size > contentBytes {
			break
		}
		all = append(all, one)
	}
	slices.Reverse(all)
	return "[" + strings.Join(all, ",") + "]"
}

// messageJSON is the text and the tool calls of one message, cut. Media are left out. An answer has the reason of its
// end; any other message has none.
func messageJSON(m *modelv1.ChatMessage, finish string) string {
	var w jsonwrite.Writer
	w.BeginObject()
	w.TextMember("role", enum.Word(m.GetRole()))
	w.Key("parts")
	w.BeginList()
	switch text := headtail.Cut(chat.Text(m), textBytes); {
	case m.GetRole() == modelv1.Role_ROLE_TOOL:
		w.BeginObject()
		w.TextMember("type", "tool_call_response")
		if ids := m.GetToolCallIds(); len(ids) > 0 {
			w.TextMember("id", ids[0])
		}
		w.TextMember("response", text)
		w.EndObject()
	case text != "":
		w.BeginObject()
		w.TextMember("type", "text")
		w.TextMember("content", text)
		w.EndObject()
	}
	for _, call := range m.GetToolCalls() {
		w.BeginObject()
		w.TextMember("type", "tool_call")
		w.TextMember("id", call.GetId())
		w.TextMember("name", call.GetFunction())
		w.TextMember("arguments", headtail.Cut(call.GetArgumentsJson(), textBytes))
		w.EndObject()
	}
	w.EndList()
	w.TextUnlessEmpty("finish_reason", finish)
	w.EndObject()
	return w.String()
}
