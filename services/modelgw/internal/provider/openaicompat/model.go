package openaicompat

import (
	"context"
	"regexp"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/openaichat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/chatapi"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/transport"
)

// arguments are the model arguments.
type arguments struct {
	// ResponsesAPI and EmulateTools are not built yet.
	ResponsesAPI bool `json:"responses_api"`
	EmulateTools bool `json:"emulate_tools"`
	// Stream reports whether requests are streamed; the default is the service's.
	Stream *bool `json:"stream"`
	// StrictTools is sent with each tool; default true.
	StrictTools *bool `json:"strict_tools"`
}

// model is one opened model.
type model struct {
	service *Service
	// name is sent; differs are the differences of models of this name.
	name    string
	differs Models
	args    arguments
	client  *chatapi.Client
	// upstream is the client's, made once.
	upstream *provider.Upstream
	window   window
}

// openModel opens a model with an account. label is its name in answers that are made of an error.
func (h *host) openModel(spec provider.Spec, account, name, label string) (provider.Provider, error) {
	s := h.service
	if s.Adapters {
		if _, adapter, ok := strings.Cut(name, ":"); ok && adapter != "" {
			name = adapter
		}
	}
	m := &model{service: s, name: name, differs: s.of(name)}
	if err := spec.Arguments(&m.args); err != nil {
		return nil, err
	}
	switch {
	case m.args.ResponsesAPI:
		return nil, rpcerr.NotBuiltField("model_args_json/responses_api", "the Responses API")
	case m.args.EmulateTools:
		return nil, rpcerr.NotBuiltField("model_args_json/emulate_tools", "emulating tools in prompts")
	}
	access, err := h.accounts.Open(account, spec.BaseURL)
	if err != nil {
		return nil, err
	}
	called := s.Name
	if s == &configured {
		called += "/" + account
	}
	m.client = chatapi.New(called, access, transport.RedactSecrets(h.http, access.APIKey), s.quirks(label))
	if access.APIKey.IsZero() && s.DefaultKey != "" {
		m.client.Key = config.NewSecret(s.DefaultKey)
	}
	m.upstream = m.client.Upstream(name)
	return m, nil
}

// Capabilities implements provider.Provider.
func (m *model) Capabilities() provider.Capabilities {
	pool := provider.ShownURL(m.client.BaseURL) // which lists of pools show
	if !m.service.PoolByAddress {
		pool += "/" + m.name
	}
	return provider.Capabilities{
		ConnectionKey:    pool,
		MaxTokens:        m.service.MaxTokens,
		MergeUser:        m.service.MergeTurns,
		MergeAssistant:   m.service.MergeTurns,
		Ignored:          slices.Concat(chatapi.Ignored, m.differs.Ignored),
		Dropped:          append(slices.Clone(chatapi.Dropped), "modalities"),
		ExtraBodyDropped: chatapi.ExtraBodyDropped,
		Features: &modelv1.Capabilities{
			Tools: true, Images: true, Audio: true, Streaming: m.args.Stream == nil || *m.args.Stream, ResponseSchema: true, Reasoning: true,
		},
		Upstream: m.upstream,
	}
}

// Overruled implements provider.OptionDropper.
func (m *model) Overruled(c *modelv1.GenerateConfig) []provider.Unsent {
	if word, changed := m.differs.Efforts[c.GetReasoningEffort()]; changed && word == "" {
		return []provider.Unsent{{Option: "reasoning_effort", Why: "which has no effort " + c.GetReasoningEffort()}}
	}
	return nil
}

// Check implements provider.Provider: any call may succeed.
func (*model) Check(*modelv1.GenerateConfig) error { return nil }

// Close implements provider.Provider.
func (m *model) Close() error { return nil }

// newer are names whose bound of output tokens has another member.
var newer = regexp.MustCompile(`^(?:o\d|gpt-(?:[5-9]|\d\d))`)

// Generate implements provider.Provider.
func (m *model) Generate(ctx context.Context, r *provider.Request) (*provider.Response, error) {
	if m.service.ListsWindows {
		m.window.ask(ctx, m.client, m.name)
	}
	request, warnings := m.request(r)
	response, err := m.client.Do(ctx, r, request)
	if err == nil {
		response.Warnings = append(response.Warnings, warnings...)
	}
	return response, err
}

// request makes the upstream request, and returns warnings.
func (m *model) request(r *provider.Request) (*openaichat.Request, []string) {
	sent, _ := provider.Sent(m, r.Config)
	request := &openaichat.Request{StrictTools: m.args.StrictTools, FillEmpty: m.service.FillEmpty, Request: dialect.Request{
		Model: m.name, Messages: r.Messages, Tools: r.Tools, Choice: r.ToolChoice, Config: chat.Merge(sent), Stream: m.streams(r),
	}}
	if !m.service.WholeSchemas {
		request.Tools = reduced(r.Tools)
	}
	if request.StrictTools == nil {
		request.StrictTools = new(true)
	}
	if newer.MatchString(m.name) {
		request.MaxTokensMember = "max_completion_tokens"
	}
	var warnings []string
	if m.service.Adapt != nil {
		warnings = m.service.Adapt(request)
	}
	m.setEffort(request)
	return request, warnings
}

// setEffort sets the effort in the service's words.
func (m *model) setEffort(request *openaichat.Request) {
	c := request.Config
	if word, changed := m.differs.Efforts[c.GetReasoningEffort()]; changed {
		c.ReasoningEffort = &word
	}
	switch effort := c.GetReasoningEffort(); {
	case effort == "":
		c.ReasoningEffort = nil
	case m.service.ReasoningObject:
		c.ReasoningEffort = nil
		request.Members = append(request.Members, dialect.Member{Name: "reasoning", JSON: `{"effort":` + chatapi.Text(effort) + `}`})
	}
}

// streams reports whether a request is to be streamed.
func (m *model) streams(r *provider.Request) bool {
	switch s := m.service; {
	case m.args.Stream != nil:
		return *m.args.Stream
	case s.WholeLogprobs && r.Config.GetLogprobs():
		return false
	case s.Streamed, s.StreamedOver > 0 && r.Config.GetMaxTokens() > s.StreamedOver:
		return true
	default:
		return r.Streams(nil)
	}
}

// reduced returns tools whose schemas lack the keywords that many of these servers refuse.
func reduced(tools []*toolv1.ToolInfo) []*toolv1.ToolInfo {
	all := make([]*toolv1.ToolInfo, len(tools))
	for i, tool := range tools {
		all[i] = &toolv1.ToolInfo{
			Name: tool.GetName(), Description: tool.GetDescription(), OptionsJson: tool.GetOptionsJson(),
			ParametersJson: withoutExtendedKeywords(tool.GetParametersJson()),
		}
	}
	return all
}
