package grok

import (
	"errors"
	"fmt"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/xai"
)

// malformed is the error for an answer that has no meaning.
func malformed(cause error) error {
	return &dialect.MalformedError{Answer: "chat completion of xAI", Cause: cause}
}

// reasons are why an output ended; all others are unknown.
var reasons = map[xai.FinishReason]modelv1.StopReason{
	xai.FinishReason_REASON_STOP:        modelv1.StopReason_STOP_REASON_STOP,
	xai.FinishReason_REASON_TOOL_CALLS:  modelv1.StopReason_STOP_REASON_TOOL_CALLS,
	xai.FinishReason_REASON_MAX_LEN:     modelv1.StopReason_STOP_REASON_MAX_TOKENS,
	xai.FinishReason_REASON_MAX_CONTEXT: modelv1.StopReason_STOP_REASON_MODEL_LENGTH,
}

// asked is what an answer replies to.
type asked struct {
	name  name
	tools []*toolv1.ToolInfo
	// sent are the tools as they were sent.
	sent []*xai.Tool
}

// output is an answer in the canonical form. Its outputs are steps of one choice, between which the server ran tools;
// what those gave is not sent.
func (a *asked) output(r *xai.GetChatCompletionResponse) (*modelv1.ModelOutput, error) {
	message := chat.Generated(string(a.name))
	choice := &modelv1.Choice{Message: message}
	var parts []*contentv1.Content
	var last *xai.CompletionOutput
	for _, step := range r.GetOutputs() {
		said := step.GetMessage()
		if said.GetRole() == xai.MessageRole_ROLE_TOOL {
			continue
		}
		last = step
		if part := reasoningOf(said); part != nil {
			parts = append(parts, part)
		}
		for _, call := range said.GetToolCalls() {
			if a.isClients(call) {
				message.ToolCalls = append(message.ToolCalls, dialect.ToolCall(call.GetId(), call.GetFunction().GetName(), call.GetFunction().GetArguments(), a.tools))
				continue
			}
			part, err := useOf(call)
			if err != nil {
				return nil, err
			}
			parts = append(parts, part)
		}
		if said.GetContent() != "" {
			parts = append(parts, chat.TextPart(said.GetContent()))
		}
	}
	if last == nil {
		return nil, malformed(errors.New("it has no output of the model"))
	}
	message.Content = chat.ListContent(cited(parts, last.GetMessage().GetContent() != "", r.GetCitations())...)
	choice.StopReason, choice.Logprobs = modelv1.StopReason_STOP_REASON_UNKNOWN, logprobsOf(last.GetLogprobs())
	if reason, known := reasons[last.GetFinishReason()]; known {
		choice.StopReason = reason
	}
	output := &modelv1.ModelOutput{Model: string(a.name), Choices: []*modelv1.Choice{choice}, Usage: usageOf(r.GetUsage())}
	if r.GetId() != "" {
		output.ResponseId = new(r.GetId())
	}
	chat.CompleteOutput(output)
	return output, nil
}

// reasoningOf is the reasoning of a step: sealed with its text as a summary, or open; nil if there is none.
func reasoningOf(said *xai.CompletionMessage) *contentv1.Content {
	text := said.GetReasoningContent()
	if said.GetEncryptedContent() == "" {
		if text == "" {
			return nil
		}
		return chat.ReasoningPart(text)
	}
	sealed := &contentv1.Reasoning{Reasoning: said.GetEncryptedContent(), Redacted: true}
	if text != "" {
		sealed.Summary = &text
	}
	return &contentv1.Content{Part: &contentv1.Content_Reasoning{Reasoning: sealed}}
}

// isClients reports whether a call is of a tool of the client. The server gives calls of a function with the name of
// its interpreter the type of that, also if only the function was offered.
func (a *asked) isClients(call *xai.ToolCall) bool {
	switch call.GetType() {
	case xai.ToolCallType_TOOL_CALL_TYPE_INVALID, xai.ToolCallType_TOOL_CALL_TYPE_CLIENT_SIDE_TOOL:
		return true
	case xai.ToolCallType_TOOL_CALL_TYPE_CODE_EXECUTION_TOOL:
		offered := false
		for _, tool := range a.sent {
			if tool.GetCodeExecution() != nil {
				return false
			}
			offered = offered || tool.GetFunction() != nil && tool.GetFunction().GetName() == call.GetFunction().GetName()
		}
		return offered
	default:
		return false
	}
}

// useOf is a call that the server ran.
func useOf(call *xai.ToolCall) (*contentv1.Content, error) {
	for kind, of := range toolTypes {
		if of == call.GetType() {
			return chat.ToolUsePart(&contentv1.ToolUse{
				ToolType: kind, Id: call.GetId(), Name: call.GetFunction().GetName(), Arguments: call.GetFunction().GetArguments(), Error: call.ErrorMessage,
			}), nil
		}
	}
	return nil, malformed(fmt.Errorf("it has a call of a tool of the kind %s, which was not offered", call.GetType()))
}

// cited adds the citations of an answer to its last text.
func cited(parts []*contentv1.Content, hasText bool, urls []string) []*contentv1.Content {
	if len(urls) == 0 {
		return parts
	}
	if !hasText {
		parts = append(parts, chat.TextPart(""))
	}
	text := parts[len(parts)-1].GetText()
	for _, url := range urls {
		text.Citations = append(text.Citations, &contentv1.Citation{Source: &contentv1.Citation_Url{Url: url}})
	}
	return parts
}

func logprobsOf(given *xai.LogProbs) *modelv1.Logprobs {
	if len(given.GetContent()) == 0 {
		return nil
	}
	all := &modelv1.Logprobs{}
	for _, p := range given.GetContent() {
		token := &modelv1.Logprob{Token: p.GetToken(), Logprob: float64(p.GetLogprob()), Bytes: numbers(p.GetBytes())}
		for _, top := range p.GetTopLogprobs() {
			token.TopLogprobs = append(token.TopLogprobs, &modelv1.TopLogprob{Token: top.GetToken(), Logprob: float64(top.GetLogprob()), Bytes: numbers(top.GetBytes())})
		}
		all.Content = append(all.Content, token)
	}
	return all
}

// numbers are bytes as the canonical form has them.
func numbers(all []byte) []int32 {
	list := make([]int32, len(all))
	for i, b := range all {
		list[i] = int32(b)
	}
	return list
}

// dollarsPerTick is the unit of costs: cost.py of xai-sdk.
const dollarsPerTick = 1e-10

// usageOf is the usage of an answer; nil if there is none. The server counts reasoning apart from the answer, and may
// say what the request costs, the use of its tools included.
func usageOf(u *xai.SamplingUsage) *modelv1.ModelUsage {
	if u == nil {
		return nil
	}
	usage := &modelv1.ModelUsage{
		InputTokens: int64(u.GetPromptTokens()), OutputTokens: int64(u.GetCompletionTokens()), TotalTokens: int64(u.GetTotalTokens()),
		InputTokensCacheRead: new(int64(u.GetCachedPromptTextTokens())), ReasoningTokens: new(int64(u.GetReasoningTokens())),
	}
	if u.CostInUsdTicks != nil {
		usage.TotalCost = new(float64(u.GetCostInUsdTicks()) * dollarsPerTick)
	}
	return dialect.CacheApart(usage)
}
