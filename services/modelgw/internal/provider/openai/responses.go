package openai

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/openairesponses"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/exchange"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/responsesapi"
)

// unverified is what OpenAI refuses to an organization whose identity it has not verified. It is known once a request
// was refused for it.
type unverified struct{ stream, summary atomic.Bool }

// generateResponses makes an attempt with the Responses API. A request that was refused for what needs a verified
// organization is sent again without, unless the call asked for a summary.
func (m *model) generateResponses(ctx context.Context, r *provider.Request) (*provider.Response, error) {
	r, restore := responsesapi.Renamed(r)
	for {
		request := m.responsesRequest(r)
		call := &exchange.Call{
			URL: m.responsesURL, Header: m.client.Header(r), Model: m.served, Stream: request.Stream,
		}
		do := m.responses.Do
		if r.Carrier == nil && m.inBackground(r.Config) {
			do = m.doInBackground
		}
		response, err := do(ctx, r, call, request.Append)
		if err == nil {
			responsesapi.SetModel(response.Output, m.served)
			restore(response.Output)
			if hasComputer(request.Native) {
				response.Warnings = append(slices.Clip(response.Warnings), storedForComputer)
			}
			return response, nil
		}
		if !m.goesWithout(request, r.Config, err) {
			return nil, err
		}
	}
}

// storedForComputer is the warning of an answer that is stored for its calls of a computer.
const storedForComputer = "the answer is stored at OpenAI, which its computer needs; the model argument responses_store false makes the computer a function"

func hasComputer(native map[string]openairesponses.Native) bool {
	for _, own := range native {
		if own.Computer {
			return true
		}
	}
	return false
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
	native, stores := m.native(r), m.args.ResponsesStore
	if hasComputer(native) {
		stores = new(true)
	}
	request := responsesapi.New(dialect.Request{
		Model: m.served, Messages: r.Messages, Tools: r.Tools, Choice: r.ToolChoice, Config: config,
		Stream: r.Streams(m.args.Streaming) && !m.unverified.stream.Load(), Members: m.members(),
	}, stores)
	request.SealReasoning = request.SealReasoning && m.name.takesReasoning()
	request.Phases = m.args.ResponsesPhase != nil && *m.args.ResponsesPhase
	request.CacheMarks = m.takesCacheMarks() && config.GetCachePrompt() != modelv1.CachePrompt_CACHE_PROMPT_OFF
	if background := m.background(config); background != nil && r.Carrier == nil {
		request.Members = append(request.Members, dialect.Member{Name: backgroundMember, JSON: strconv.FormatBool(*background)})
		request.Stream = request.Stream && !*background
	}
	request.Native = native
	for _, own := range request.Native {
		request.CodeOutputs = request.CodeOutputs || own.Choice == codeTool
		request.Sources = request.Sources || own.Sources
	}
	if m.name.takesReasoning() {
		config.ReasoningSummary = m.summary(config)
	}
	return request
}

// sent returns a copy of the configuration without what is not sent, whether or not that changes an answer.
func (m *model) sent(c *modelv1.GenerateConfig) *modelv1.GenerateConfig {
	left := provider.Fit(m, c).Sent
	return chat.Merge(left)
}

// summary is the summary of reasoning to ask for. A model that is used by this API for its tools alone is asked for
// none by default.
func (m *model) summary(c *modelv1.GenerateConfig) *string {
	if c.GetReasoningSummary() == "" && (m.unverified.summary.Load() || m.forTools) {
		return nil
	}
	return responsesapi.Summary(c)
}
