package openai

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect/openaichat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/chatapi"
)

// visionTokens is the least bound of output tokens of the first models that took images.
const visionTokens = 4096

// quirks are what OpenAI's errors mean.
var quirks = chatapi.Quirks{
	BadRequest: []int{http.StatusBadRequest, http.StatusUnprocessableEntity},
	Class: func(status int, e *openaichat.Error, class provider.Class) provider.Class {
		// A quota that is used up does not come back by waiting.
		if status == http.StatusTooManyRequests && strings.Contains(e.Message, "exceeded your current quota") {
			return provider.Final
		}
		return class
	},
}

// Generate implements provider.Provider.
func (m *model) Generate(ctx context.Context, r *provider.Request) (*provider.Response, error) {
	if why := m.needsResponses(r.Config); why != "" {
		return nil, rpcerr.CapabilityUnsupported("responses_api",
			"%s/%s: %s needs OpenAI's Responses API, which is not built yet; use chat completions: by the model argument responses_api=false, by responses_api: false of the account in the configuration of modelgw (openai), or as a client by asking at /v1/chat/completions", Name, m.name, why)
	}
	request, warnings := m.request(r)
	response, err := m.client.Do(ctx, r, request)
	if err != nil {
		return nil, err
	}
	response.Warnings = append(response.Warnings, warnings...)
	return response, nil
}

// needsResponses says what of a call needs the Responses API; empty when nothing does.
func (m *model) needsResponses(c *modelv1.GenerateConfig) string {
	_, images := chat.ImageOutput(c)
	switch asked := m.args.ResponsesAPI; {
	case images:
		return "output of images"
	case m.args.Background != nil && *m.args.Background:
		return "a background request"
	case asked != nil && *asked:
		return "what the model argument responses_api asks for"
	case asked == nil && m.name.wantsResponses() && c.NumChoices == nil:
		return "this model"
	default:
		return ""
	}
}

// request makes the upstream request, and says what it leaves out.
func (m *model) request(r *provider.Request) (request *openaichat.Request, warnings []string) {
	config := chat.Merge(r.Config)
	leaveOut := func(option string) {
		warnings = append(warnings, fmt.Sprintf("%s is not taken by %s and was left out", option, m.name))
	}
	request = &openaichat.Request{
		Model: string(m.name), Messages: r.Messages, Tools: r.Tools, Choice: r.ToolChoice, Config: config,
		Stream: m.streams(r), Members: m.members(),
		CacheMarks: m.atVendor && m.name.takesCacheMarks() && config.GetCachePrompt() != modelv1.CachePrompt_CACHE_PROMPT_OFF,
	}
	if m.name.reasons() {
		request.SystemRole, request.MaxTokensMember = "developer", "max_completion_tokens"
		if config.Temperature != nil {
			config.Temperature = nil
			leaveOut("temperature")
		}
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
	return request, warnings
}

// streams says whether a request is streamed: as the model argument says, else when somebody watches.
func (m *model) streams(r *provider.Request) bool {
	if m.args.Streaming != nil {
		return *m.args.Streaming
	}
	return r.Stream != nil || r.Progress != nil
}

func (m *model) members() []openaichat.Member {
	var members []openaichat.Member
	for _, member := range []struct{ name, value string }{
		{"service_tier", m.args.ServiceTier},
		{"prompt_cache_key", m.args.PromptCacheKey},
		{"prompt_cache_retention", m.args.PromptCacheRetention},
		{"safety_identifier", m.args.SafetyIdentifier},
	} {
		if member.value != "" {
			members = append(members, openaichat.Member{Name: member.name, JSON: chatapi.Text(member.value)})
		}
	}
	return members
}
