package openaicompat

import (
	"context"
	"slices"

	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/exchange"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/rawcompletions"
)

// rawSuffix ends the names of providers that complete prompts: `openai-api-completions`, `vllm-completions`.
const rawSuffix = "-completions"

// RawName is the provider that completes prompts by configured services.
const RawName = Name + rawSuffix

// rawOf returns a kind whose models complete prompts, with the accounts and addresses of one whose models chat.
func rawOf(kind provider.Kind) provider.Kind {
	raw := kind
	raw.Name, raw.Dialect = kind.Name+rawSuffix, rawcompletions.Name
	raw.Description = "prompts without a chat's template, by " + kind.Name
	raw.Open = func(spec provider.Spec) (provider.Provider, error) {
		opened, err := kind.Open(spec)
		if err != nil {
			return nil, err
		}
		m := opened.(*model) // as both kinds open
		r := &rawModel{model: m, exchange: m.client.Exchange}
		r.exchange.Codec = rawcompletions.Codec{}
		return r, nil
	}
	return raw
}

// rawModel is a model that completes prompts.
type rawModel struct {
	*model
	exchange exchange.Exchange
}

// Capabilities implements provider.Provider.
func (m *rawModel) Capabilities() provider.Capabilities {
	chats := m.model.Capabilities()
	return provider.Capabilities{
		ConnectionKey: chats.ConnectionKey,
		MergeUser:     chats.MergeUser, MergeAssistant: chats.MergeAssistant, MergeSystem: chats.MergeSystem,
		Ignored: rawcompletions.Ignored, Dropped: rawcompletions.Dropped,
		Features: &modelv1.Capabilities{}, Server: m.client.BaseURL,
	}
}

// Overruled implements provider.OptionDropper.
func (m *rawModel) Overruled(c *modelv1.GenerateConfig) []provider.Unsent {
	all := provider.UnsentArguments("since prompts without a chat's template do not take it", map[string]bool{
		"emulate_tools": isTrue(m.args.EmulateTools), "responses_api": isTrue(m.args.ResponsesAPI), "responses_phase": isTrue(m.args.ResponsesPhase),
		"responses_store": isTrue(m.args.ResponsesStore), "stream": isTrue(m.args.Stream), "strict_tools": m.args.StrictTools != nil,
	})
	if c.TopLogprobs != nil && !c.GetLogprobs() {
		all = append(all, provider.Unsent{Option: "top_logprobs", Why: "which takes them with logprobs alone"})
	}
	return all
}

// Check implements provider.Provider: any call may succeed.
func (*rawModel) Check(*modelv1.GenerateConfig) error { return nil }

// Generate implements provider.Provider.
func (m *rawModel) Generate(ctx context.Context, r *provider.Request) (*provider.Response, error) {
	prompt, err := rawcompletions.Prompt(r.Messages)
	if err != nil {
		return nil, err
	}
	if m.service.ListsWindows {
		m.window.ask(ctx, m.client, m.name)
	}
	sent := provider.Fit(m, r.Config).Sent
	request := &rawcompletions.Request{Model: m.name, Prompt: prompt, Config: chat.Merge(sent)}
	call := &exchange.Call{URL: m.client.BaseURL + rawcompletions.Path, Header: m.client.Header(r), Model: m.name}
	response, err := m.exchange.Do(ctx, r, call, request.Append)
	if err == nil && len(r.Tools) > 0 {
		response.Warnings = append(slices.Clip(response.Warnings), "no tools are offered: the model continues a prompt")
	}
	return response, err
}
