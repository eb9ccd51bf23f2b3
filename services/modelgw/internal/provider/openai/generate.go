package openai

import (
	"context"
	"net/http"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	format "github.com/evalfleet/evalfleet/pkg/dialect/openai"
	"github.com/evalfleet/evalfleet/pkg/dialect/openaichat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/chatapi"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/exchange"
)

// visionTokens is the least bound of output tokens of the first models that took images.
const visionTokens = 4096

// quirks interpret OpenAI's errors.
var quirks = exchange.Quirks{
	StopStatuses: []int{http.StatusBadRequest, http.StatusUnprocessableEntity},
	Class: func(status int, e *dialect.Error, class provider.Class) provider.Class {
		// Waiting does not restore a quota that is used up.
		if e.Code == format.QuotaSpent || e.Type == format.QuotaSpent || status == http.StatusTooManyRequests && strings.Contains(e.Message, "exceeded your current quota") {
			return provider.Final
		}
		return class
	},
}

// Generate implements provider.Provider.
func (m *model) Generate(ctx context.Context, r *provider.Request) (*provider.Response, error) {
	if err := m.Check(r.Config); err != nil {
		return nil, err
	}
	if err := m.refuseServers(r); err != nil {
		return nil, err
	}
	if m.usesResponses(r.Config) {
		return m.generateResponses(ctx, r)
	}
	if len(m.native(r)) > 0 {
		return m.generateForTools(ctx, r)
	}
	return m.client.Do(ctx, r, m.chatRequest(r))
}

// Check implements provider.Provider.
func (m *model) Check(c *modelv1.GenerateConfig) error {
	return provider.CheckOutputs(Name+"/"+m.served, c)
}

// chatRequest makes the upstream request for chat completions.
func (m *model) chatRequest(r *provider.Request) *openaichat.Request {
	config := chat.Without(r.Config, m.traits().lacks)
	request := &openaichat.Request{
		Request: dialect.Request{
			Model: m.served, Messages: r.Messages, Tools: r.Tools, Choice: r.ToolChoice, Config: config, Stream: r.Streams(m.args.Streaming), Members: m.members(),
		},
		CacheMarks: m.takesCacheMarks() && config.GetCachePrompt() != modelv1.CachePrompt_CACHE_PROMPT_OFF,
	}
	if m.traits().reasons {
		request.SystemRole, request.MaxTokensMember = "developer", "max_completion_tokens"
	}
	if m.name.sees() {
		request.Config = chat.Merge(config, &modelv1.GenerateConfig{MaxTokens: new(max(visionTokens, config.GetMaxTokens()))})
	}
	return request
}

// Mode implements provider.Moded.
func (m *model) Mode(c *modelv1.GenerateConfig) string { return chatapi.Mode(c, m.args.ServiceTier) }

func (m *model) members() []dialect.Member {
	var members []dialect.Member
	for _, member := range []struct{ name, value string }{
		{chatapi.ServiceTier, m.args.ServiceTier},
		{"prompt_cache_key", m.args.PromptCacheKey},
		{"prompt_cache_retention", m.args.PromptCacheRetention},
		{"safety_identifier", m.args.SafetyIdentifier},
	} {
		if member.value != "" {
			members = append(members, dialect.TextMember(member.name, member.value))
		}
	}
	return members
}
