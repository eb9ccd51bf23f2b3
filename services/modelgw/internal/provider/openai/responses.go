package openai

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/openairesponses"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/exchange"
)

// responsesPath is where the Responses API is, below the base URL.
const responsesPath = "/responses"

// Members of extra_body that this provider reads.
const (
	metadata = "metadata"
	store    = "store"
)

// unverified is what OpenAI refuses to an organization whose identity it has not verified. It is known once a request
// was refused for it.
type unverified struct{ stream, summary atomic.Bool }

// generateResponses makes an attempt with the Responses API. A request that was refused for what needs a verified
// organization is sent again without, unless the call asked for a summary.
func (m *model) generateResponses(ctx context.Context, r *provider.Request) (*provider.Response, error) {
	r, restore := renamed(r)
	for {
		request := m.responsesRequest(r)
		call := &exchange.Call{
			URL: m.responsesURL, Header: m.client.Header(r.Config), Model: m.served, Stream: request.Stream,
		}
		response, err := m.responses.Do(ctx, r, call, request.Append)
		if err == nil {
			for _, choice := range response.Output.GetChoices() {
				choice.GetMessage().Model = m.served
			}
			restore(response.Output)
			return response, nil
		}
		if !m.goesWithout(request, r.Config, err) {
			return nil, err
		}
	}
}

// goesWithout reports whether a refused request may be sent again without a part that needs a verified organization,
// and leaves that out of further requests.
func (m *model) goesWithout(request *openairesponses.Request, asked *modelv1.GenerateConfig, err error) bool {
	said, ok := errors.AsType[*dialect.Error](err)
	switch {
	case !ok || said.Code != "unsupported_value":
		return false
	case said.Param == "stream" && request.Stream:
		m.unverified.stream.Store(true)
		return true
	case said.Param == "reasoning.summary" && request.Config.ReasoningSummary != nil && asked.GetReasoningSummary() == "":
		m.unverified.summary.Store(true)
		return true
	default:
		return false
	}
}

// responsesRequest makes the upstream request.
func (m *model) responsesRequest(r *provider.Request) *openairesponses.Request {
	config := m.sent(r.Config)
	extra := extraBody(config)
	image, drawn := chat.ImageOutput(config)
	request := &openairesponses.Request{
		Request: dialect.Request{
			Model: m.served, Messages: r.Messages, Tools: r.Tools, Choice: r.ToolChoice, Config: config,
			Stream: r.Streams(m.args.Streaming) && !m.unverified.stream.Load(), Members: m.members(),
		},
		SealReasoning: m.name.takesReasoning() && !m.stores(extra),
		Phases:        m.args.ResponsesPhase != nil && *m.args.ResponsesPhase,
		CacheMarks:    m.takesCacheMarks() && config.GetCachePrompt() != modelv1.CachePrompt_CACHE_PROMPT_OFF,
	}
	if len(r.Tools) == 0 || r.ToolChoice.GetMode() == toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_AUTO {
		request.Choice = nil // The choice is among the tools here, and auto is the default.
	}
	if drawn {
		request.ImageTool = imageTool(image)
	}
	if !m.stores(extra) {
		request.Members = append(request.Members, dialect.Member{Name: store, JSON: "false"})
		if value, given := extra.Get(metadata); given {
			request.Members = append(request.Members, dialect.Member{Name: metadata, JSON: string(orderedjson.Append(nil, value))})
		}
	}
	if m.name.takesReasoning() {
		config.ReasoningSummary = m.summary(config)
	}
	if config.GetReasoningEffort() == "max" && !m.name.isNewest() {
		config.ReasoningEffort = new("xhigh") // their highest
	}
	return request
}

// sent returns a copy of the configuration without what is not sent, whether or not that changes an answer.
func (m *model) sent(c *modelv1.GenerateConfig) *modelv1.GenerateConfig {
	left, _ := provider.Sent(m, c)
	return chat.Merge(left)
}

// summary is the summary of reasoning to ask for: by default, what the server decides.
func (m *model) summary(c *modelv1.GenerateConfig) *string {
	switch asked := c.GetReasoningSummary(); {
	case asked == "none", asked == "" && m.unverified.summary.Load():
		return nil
	default:
		return new(cmp.Or(asked, "auto"))
	}
}

// stores reports whether the server stores the answer.
func (m *model) stores(extra *orderedjson.Object) bool {
	if value, given := extra.Get(store); given {
		return value == true
	}
	return m.args.ResponsesStore != nil && *m.args.ResponsesStore
}

// extraBody returns extra_body as an object; empty if it is none, which the request then fails for.
func extraBody(c *modelv1.GenerateConfig) *orderedjson.Object { return object(c.GetExtraBodyJson()) }

// object reads a JSON object; empty if the document is none.
func object(document string) *orderedjson.Object {
	read, err := orderedjson.DecodeObject([]byte(document))
	if err != nil {
		return &orderedjson.Object{}
	}
	return read
}

// imageTool is the tool that draws images, with the options for this provider.
func imageTool(optionsJSON string) string {
	tool := &orderedjson.Object{}
	tool.Set("type", "image_generation")
	own, _ := object(optionsJSON).Get(Name)
	if options, ok := own.(*orderedjson.Object); ok {
		for name, value := range options.All() {
			tool.Set(name, value)
		}
	}
	return string(orderedjson.Append(nil, tool))
}
