package mistral

import (
	"context"
	"net/http"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/mistralconversations"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/exchange"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/toolschema"
)

// quirks interpret Mistral's errors: no other status than 400 represents an output.
var quirks = exchange.Quirks{StopStatuses: []int{http.StatusBadRequest}}

// dropped are options that are not sent, and that shape no more than how an answer is made.
var dropped = []string{
	"best_of", "cache_prompt", "effort", "fallback_models", "internal_tools", "parallel_tool_calls", "prompt_logprobs", "reasoning_mode",
	"reasoning_summary", "reasoning_tokens",
}

// Capabilities implements provider.Provider.
func (m *model) Capabilities() provider.Capabilities {
	atVendor := strings.HasPrefix(m.url, vendor+"/")
	runs := provider.Hosted{NoHistory: m.api == completions}
	if m.api != completions {
		runs.Kinds = []string{provider.WebSearch, provider.CodeExecution}
	}
	return provider.Capabilities{
		Hosted:        runs,
		ConnectionKey: m.shown,
		CallIDLen:     9,
		Fetches:       provider.Fetches{Images: atVendor, Documents: atVendor},
		Ignored:       m.api.ignored,
		Dropped:       dropped,
		ExtraBody:     []string{},
		Features: &modelv1.Capabilities{
			Tools: true, Images: true, ResponseSchema: true, Reasoning: true, Streaming: m.args.Streaming == nil || *m.args.Streaming,
			Batch: m.batch != nil,
		},
		Upstreams: m.upstreams,
		Batch:     m.batch,
		Server:    m.url,
	}
}

// Check implements provider.Provider: any call may succeed.
func (*model) Check(*modelv1.GenerateConfig) error { return nil }

// Generate implements provider.Provider.
func (m *model) Generate(ctx context.Context, r *provider.Request) (*provider.Response, error) {
	header := http.Header{}
	m.authorize(header)
	for name, value := range r.Config.GetExtraHeaders().GetValues() {
		header.Set(name, value)
	}
	request := m.request(r)
	call := &exchange.Call{URL: m.url, Header: header, Model: m.name, Stream: request.Stream}
	if m.api == completions {
		return m.exchange.Do(ctx, r, call, func(dst []byte) ([]byte, error) { return m.api.codec.AppendRequest(dst, request) })
	}
	conversation := &mistralconversations.Request{Request: *request, Native: native(r)}
	response, err := m.exchange.Do(ctx, r, call, conversation.Append)
	if err != nil {
		return nil, err
	}
	// Entries bear the name of what served them; the API has no name of its own for the answer.
	response.Output.Model = m.name
	// With tools of the server the usage is that of several passes, of which each has the bound.
	full := len(conversation.Native) == 0 && spent(request.Config, response.Output)
	for _, choice := range response.Output.GetChoices() {
		choice.GetMessage().Model = m.name
		if full && choice.GetStopReason() == modelv1.StopReason_STOP_REASON_STOP {
			choice.StopReason = modelv1.StopReason_STOP_REASON_MAX_TOKENS
		}
	}
	return response, nil
}

// spent reports whether an answer has as many tokens as it may have: the Conversations API does not say that it was
// cut.
func spent(c *modelv1.GenerateConfig, output *modelv1.ModelOutput) bool {
	return c.MaxTokens != nil && output.GetUsage() != nil && output.GetUsage().GetOutputTokens() >= c.GetMaxTokens()
}

// request makes the upstream request.
func (m *model) request(r *provider.Request) *dialect.Request {
	left := provider.Fit(m, r.Config).Sent
	c := chat.Merge(left)
	var members []dialect.Member
	if id := r.Conversation(); id != "" && m.cacheKey {
		members = []dialect.Member{dialect.TextMember("prompt_cache_key", id)}
	}
	return &dialect.Request{
		Members: members, Model: m.name, Messages: r.Messages, Tools: toolschema.Edit(r.Tools, toolschema.Open), Choice: r.ToolChoice, Config: c, Stream: r.Streams(m.args.Streaming),
	}
}

// Changed implements provider.OptionChanger. Models reason, or do not: https://docs.mistral.ai/capabilities/reasoning.
func (m *model) Changed(c *modelv1.GenerateConfig) []*modelv1.ChangedOption {
	if c.GetReasoningEffort() == "none" {
		return nil
	}
	return provider.ChangeEffort(c, "high")
}

// natives are the server's tools by kind.
var natives = map[string]string{provider.WebSearch: mistralconversations.ToolSearch, provider.CodeExecution: mistralconversations.ToolCode}

// native are the tools that the server runs itself, by the name of the offered tool.
func native(r *provider.Request) map[string]string {
	all := map[string]string{}
	for _, tool := range r.Tools {
		if own := natives[provider.NativeTool(tool, Name, Name)]; own != "" {
			all[tool.GetName()] = own
		}
	}
	return all
}
