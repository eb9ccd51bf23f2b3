package openai

import (
	"context"
	"net/http"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/openaichat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
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
		if status == http.StatusTooManyRequests && strings.Contains(e.Message, "exceeded your current quota") {
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
	return m.client.Do(ctx, r, m.request(r))
}

// Check implements provider.Provider.
func (m *model) Check(c *modelv1.GenerateConfig) error {
	field, why := m.needsResponses(c)
	if field == "" {
		return nil
	}
	return rpcerr.In(field, rpcerr.CapabilityUnsupported("responses_api",
		"%s/%s: %s needs OpenAI's Responses API, which is not built yet; use chat completions: by the model argument responses_api=false, "+
			"by responses_api: false of the account in the configuration of modelgw (openai), or as a client by asking at /v1/chat/completions", Name, m.name, why))
}

// needsResponses returns the field of a call that needs the Responses API, and the feature; empty if there is none.
func (m *model) needsResponses(c *modelv1.GenerateConfig) (field, why string) {
	_, images := chat.ImageOutput(c)
	switch asked := m.args.ResponsesAPI; {
	case images:
		return "config.modalities", "output of images"
	case m.args.Background != nil && *m.args.Background:
		return "model_args_json/background", "a background request"
	case asked != nil && *asked:
		return "model_args_json/responses_api", "what the model argument responses_api asks for"
	case asked == nil && m.atVendor && m.name.wantsResponses() && c.NumChoices == nil:
		return "model", "this model"
	default:
		return "", ""
	}
}

// request makes the upstream request.
func (m *model) request(r *provider.Request) *openaichat.Request {
	config := chat.Merge(r.Config)
	request := &openaichat.Request{
		Request: dialect.Request{
			Model: string(m.name), Messages: r.Messages, Tools: r.Tools, Choice: r.ToolChoice, Config: config, Stream: m.streams(r), Members: m.members(),
		},
		CacheMarks: m.takesCacheMarks() && config.GetCachePrompt() != modelv1.CachePrompt_CACHE_PROMPT_OFF,
	}
	if m.name.reasons() {
		request.SystemRole, request.MaxTokensMember = "developer", "max_completion_tokens"
		config.Temperature = nil
	}
	if m.name.isOSeries() {
		config.ParallelToolCalls = nil
	}
	if !m.name.takesEffort() {
		config.ReasoningEffort = nil
	}
	if m.name.sees() {
		config.MaxTokens = new(max(visionTokens, config.GetMaxTokens()))
	}
	return request
}

// streams reports whether a request is streamed: as the model argument sets it, else if the answer is watched.
func (m *model) streams(r *provider.Request) bool {
	if m.args.Streaming != nil {
		return *m.args.Streaming
	}
	return r.Stream != nil || r.Progress != nil
}

func (m *model) members() []dialect.Member {
	var members []dialect.Member
	for _, member := range []struct{ name, value string }{
		{"service_tier", m.args.ServiceTier},
		{"prompt_cache_key", m.args.PromptCacheKey},
		{"prompt_cache_retention", m.args.PromptCacheRetention},
		{"safety_identifier", m.args.SafetyIdentifier},
	} {
		if member.value != "" {
			members = append(members, dialect.Member{Name: member.name, JSON: chatapi.Text(member.value)})
		}
	}
	return members
}
