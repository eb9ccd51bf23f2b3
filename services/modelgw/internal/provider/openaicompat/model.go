package openaicompat

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	format "github.com/evalfleet/evalfleet/pkg/dialect/openai"
	"github.com/evalfleet/evalfleet/pkg/dialect/openaichat"
	"github.com/evalfleet/evalfleet/pkg/dialect/openairesponses"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/batchapi"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/chatapi"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/emulate"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/exchange"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/responsesapi"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/toolschema"
)

// arguments are the model arguments.
type arguments struct {
	// ResponsesAPI selects the Responses API or chat completions; the default is the service's.
	ResponsesAPI *bool `json:"responses_api"`
	// ResponsesStore makes the server of the Responses API store answers, and ResponsesPhase states to it which
	// messages of the assistant are comments before calls.
	ResponsesStore *bool `json:"responses_store"`
	ResponsesPhase *bool `json:"responses_phase"`
	// EmulateTools puts tools into a prompt, for models or servers that know none.
	EmulateTools *bool `json:"emulate_tools"`
	// Stream reports whether requests are streamed; the default is the service's.
	Stream *bool `json:"stream"`
	// StrictTools is sent with each tool in chat completions; the default is the service's, mostly true.
	StrictTools *bool `json:"strict_tools"`
}

// model is one opened model.
type model struct {
	service *Service
	// name is sent, and label is the name in answers that are made here; differs are the differences of such models.
	name    string
	label   string
	differs Models
	args    arguments
	// members are those of the service's own arguments, and enabled is the one that switches reasoning on or off, as
	// JSON.
	members []dialect.Member
	enabled string
	// emulates puts tools into a prompt.
	emulates bool
	client   *chatapi.Client
	// responses makes attempts with the Responses API; nil if the model is asked by chat completions.
	responses *exchange.Exchange
	// upstreams are the targets for unchanged requests in the format that is used.
	upstreams []*provider.Upstream
	window    window
	// deployments is what the list of a proxy says; it is asked if asksDeployments.
	deployments     deployments
	asksDeployments bool
	// refused is set once the server has refused one of the service's options of sampling: they are not sent again.
	refused atomic.Bool
	// batch is the batch API; nil if there is none.
	batch *provider.BatchSupport
	// sealer is who reads the server's sealed reasoning: the account, at a server for models of several vendors one for
	// each.
	sealer string
}

// openModel opens a model with an account. label is its name in answers that are made of an error.
func (h *host) openModel(spec provider.Spec, account, name, label string) (provider.Provider, error) {
	s := h.service
	if s.Sent != nil {
		sent, err := s.Sent(name)
		if err != nil {
			return nil, err
		}
		name = sent
	}
	m := &model{service: s, name: name, label: label, differs: s.of(name), asksDeployments: s.ListsDeployments}
	if err := m.takeArguments(spec); err != nil {
		return nil, err
	}
	byResponses := s.Responses
	if m.args.ResponsesAPI != nil {
		byResponses = *m.args.ResponsesAPI
	}
	if s.ResponsesOnly && !byResponses {
		return nil, provider.InvalidArguments(fmt.Errorf("%s has the Responses API alone, so that responses_api cannot be false", s.Name))
	}
	if byResponses && s.Path != "" {
		return nil, provider.InvalidArguments(fmt.Errorf("%s has chat completions alone, so that responses_api cannot be true", s.Name))
	}
	m.emulates = m.differs.Emulate && !byResponses
	if m.args.EmulateTools != nil {
		m.emulates = *m.args.EmulateTools
	}
	if byResponses && m.emulates {
		return nil, provider.InvalidArguments(errors.New("emulate_tools is for chat completions; it cannot be used with responses_api"))
	}
	spec.Account = account
	access, client, err := h.accounts.Open(spec)
	if err != nil {
		return nil, err
	}
	called := s.Name
	if s == &configured {
		called += "/" + account
	}
	m.client = chatapi.New(called, access, client, s.quirks(name, label))
	if access.APIKey.IsZero() && s.DefaultKey != "" {
		m.client.Key = config.NewSecret(s.DefaultKey)
	}
	m.client.Path, m.client.KeyHeader = cmp.Or(s.Path, m.client.Path), s.KeyHeader
	m.client.Conversation = s.ConversationHeader
	m.upstreams = []*provider.Upstream{m.client.Upstream(name)}
	if s.Batches != nil && !byResponses {
		m.batch = &provider.BatchSupport{
			API: &batchapi.Files{
				Client: batchapi.Client{Exchange: &m.client.Exchange, Authorize: m.client.Authorize}, Base: access.Endpoint, Dialect: *s.Batches,
			},
			MaxRequests: 50_000, MaxBytes: 100 << 20, // https://docs.together.ai/docs/batch-inference
		}
	}
	if byResponses {
		m.responses = new(m.client.Exchange)
		m.responses.Codec = openairesponses.Codec{}
		m.responses.Quirks.Finish = m.finishResponses
		m.upstreams[0] = m.responses.Upstream(access.Endpoint+responsesapi.Path, name, m.client.Authorize)
		m.upstreams[0].LacksPath = responsesapi.LacksAddress
	}
	var vendor []string
	if author, _, within := strings.Cut(name, "/"); within {
		vendor = []string{author}
	}
	m.sealer = provider.Sealer(m.upstreams[0].Dialect, access.Endpoint, account, vendor...)
	return m, nil
}

// Listing implements provider.Lister. The list is beside `/chat/completions`; of a service that has its completions at
// another place it is not known.
func (m *model) Listing() (provider.Listing, bool) {
	listing := m.client.Listing(m.name)
	above, beside := strings.CutSuffix(m.service.Path, "/chat/completions")
	listing.URL = m.client.BaseURL + above + "/models"
	return listing, beside || m.service.Path == ""
}

// takeArguments reads the model's arguments, those of the service first.
func (m *model) takeArguments(spec provider.Spec) error {
	if m.service.Arguments != nil && spec.Args != "" {
		all, err := orderedjson.DecodeObject([]byte(spec.Args))
		if err != nil {
			return provider.InvalidArguments(err)
		}
		members, err := m.service.Arguments(all)
		if err != nil {
			return provider.InvalidArguments(err)
		}
		for _, member := range members {
			switch member.Name {
			case reasoningEnabled:
				m.enabled = member.JSON
			case modelInfo:
				m.asksDeployments = false
			default:
				m.members = append(m.members, member)
			}
		}
		spec.Args = string(orderedjson.Append(nil, all))
	}
	return spec.Arguments(&m.args)
}

// Capabilities implements provider.Provider.
func (m *model) Capabilities() provider.Capabilities {
	pool := provider.ShownURL(m.client.BaseURL) // which lists of pools show
	if !m.service.PoolByAddress {
		pool += "/" + m.name
	}
	caps := provider.Capabilities{
		ConnectionKey:  pool,
		MaxTokens:      m.service.MaxTokens,
		LeastEffort:    m.differs.LeastEffort,
		MergeUser:      m.service.MergeTurns || m.service.MergeUser,
		MergeAssistant: m.service.MergeTurns,
		MergeSystem:    m.service.MergeSystem,
		Features: &modelv1.Capabilities{
			Tools: true, Images: true, Audio: !m.service.ImagesOnly, Streaming: m.args.Stream == nil || *m.args.Stream, ResponseSchema: true, Reasoning: true,
			Batch: m.batch != nil,
		},
		Hosted:    m.service.Hosted,
		Upstreams: m.upstreams,
		Batch:     m.batch,
		Server:    m.client.BaseURL,
		Sealer:    m.sealer,
	}
	if m.responses != nil {
		caps.Responses = true
		caps.Ignored, caps.Dropped, caps.ExtraBody = responsesapi.Ignored, responsesapi.Dropped, responsesapi.ExtraBody
	} else {
		caps.Ignored, caps.Dropped, caps.ExtraBodyDropped = chatapi.Ignored, chatapi.Dropped, chatapi.ExtraBodyDropped
	}
	switch {
	case m.service.NoExtraBody:
		caps.ExtraBody = []string{}
	case m.service.WholeExtraBody:
		caps.ExtraBody, caps.ExtraBodyDropped = nil, nil
	}
	if m.differs.Unbounded {
		caps.MaxTokens = 0
	}
	caps.Ignored = slices.DeleteFunc(slices.Clone(caps.Ignored), func(option string) bool {
		return m.responses == nil && slices.Contains(m.service.Sampling, option)
	})
	caps.Ignored = slices.Compact(slices.Sorted(slices.Values(slices.Concat(caps.Ignored, m.differs.Ignored))))
	caps.Dropped = slices.DeleteFunc(slices.Clone(caps.Dropped), func(option string) bool {
		return m.responses == nil && (slices.Contains(m.service.Sampling, option) ||
			option == "reasoning_tokens" && m.service.ReasoningTokens ||
			option == "cache_prompt" && (m.differs.Marks || m.asksDeployments))
	})
	if !m.draws() {
		caps.Ignored = append(caps.Ignored, "modalities")
	}
	if m.emulates {
		caps.Dropped = append(caps.Dropped, "parallel_tool_calls")
		caps.Upstreams = nil // A request that passes unchanged has tools.
	}
	caps.Dropped = slices.DeleteFunc(caps.Dropped, func(option string) bool { return slices.Contains(caps.Ignored, option) })
	return caps
}

// draws reports whether the server is offered the tool that draws images, which a service with tools of its own lacks.
func (m *model) draws() bool { return m.responses != nil && m.service.Tools == nil }

// Overruled implements provider.OptionDropper.
func (m *model) Overruled(c *modelv1.GenerateConfig) []provider.Unsent {
	var all []provider.Unsent
	if word, changed := m.differs.Efforts[c.GetReasoningEffort()]; changed && word == "" {
		all = append(all, provider.Unsent{Option: "reasoning_effort", Why: "which has no effort " + c.GetReasoningEffort()})
	}
	if (m.service.NoReasoning || m.emulates) && m.responses == nil && c.ReasoningHistory != nil {
		all = append(all, provider.Unsent{Option: "reasoning_history", Why: "which is sent no past reasoning"})
	}
	if m.asksDeployments && m.responses == nil && !m.isClaude() && c.GetCachePrompt() != modelv1.CachePrompt_CACHE_PROMPT_UNSPECIFIED {
		all = append(all, provider.Unsent{Option: "cache_prompt", Why: "which is not known to be Claude"})
	}
	if m.service.ReasoningTokens && m.responses == nil && c.ReasoningTokens != nil && c.ReasoningEffort != nil {
		all = append(all, provider.Unsent{Option: "reasoning_tokens", Why: "which takes either them or reasoning_effort"})
	}
	if _, given := responsesapi.ExtraBodyOf(c).Get(responsesapi.Metadata); given && m.responses != nil && !m.service.NoExtraBody && responsesapi.Stores(c, m.args.ResponsesStore) {
		all = append(all, provider.Unsent{Option: chat.ExtraBodyMember + responsesapi.Metadata, Why: "since it stores the answer"})
	}
	if m.responses != nil {
		return append(all, provider.UnsentArguments("since the Responses API does not take it", map[string]bool{
			reasoningEnabled: m.enabled != "", "strict_tools": m.args.StrictTools != nil,
		})...)
	}
	return append(all, provider.UnsentArguments("since chat completions do not take it", map[string]bool{
		"responses_store": isTrue(m.args.ResponsesStore), "responses_phase": isTrue(m.args.ResponsesPhase),
	})...)
}

// Changed implements provider.OptionChanger.
func (m *model) Changed(c *modelv1.GenerateConfig) []*modelv1.ChangedOption {
	word := c.GetReasoningEffort()
	if other, differs := m.differs.Efforts[word]; differs {
		word = other
	}
	if m.responses != nil && !m.service.Responses && word == "max" && !highest.MatchString(m.name) {
		word = "xhigh" // their highest
	}
	return provider.ChangeEffort(c, word)
}

// Mode implements provider.Moded.
func (m *model) Mode(c *modelv1.GenerateConfig) string {
	if m.service.NoExtraBody {
		return ""
	}
	return chatapi.Mode(c, "")
}

func isTrue(asked *bool) bool { return asked != nil && *asked }

// Check implements provider.Provider.
func (m *model) Check(c *modelv1.GenerateConfig) error {
	if !m.draws() {
		return nil // The option is not sent.
	}
	return provider.CheckOutputs(m.client.Provider+"/"+m.name, c)
}

// Close implements provider.Provider.
func (m *model) Close() error { return nil }

var (
	// newer are names whose bound of output tokens has another member.
	newer = regexp.MustCompile(`(?:^|[/.:_-])(?:o\d|gpt-(?:[5-9]|[12]\d)\b)`)
	// highest are names of OpenAI's models with the effort `max`.
	highest = regexp.MustCompile(`gpt-(?:5\.[6-9]|5\.\d\d|[6-9]|\d\d)`)
)

// Generate implements provider.Provider.
func (m *model) Generate(ctx context.Context, r *provider.Request) (*provider.Response, error) {
	if err := m.Check(r.Config); err != nil {
		return nil, err
	}
	if m.service.ListsWindows {
		m.window.ask(ctx, m.client, m.name)
	}
	if m.asksDeployments {
		if err := m.askDeployments(ctx); err != nil {
			return nil, err
		}
	}
	response, err := m.attempt(ctx, r)
	if asked := m.sampling(r.Config); len(asked) > 0 && !m.refused.Load() && refuses(err, asked) {
		m.refused.Store(true)
		response, err = m.attempt(ctx, r)
	}
	if asked := m.sampling(r.Config); err == nil && len(asked) > 0 && m.refused.Load() {
		response.Warnings = append(slices.Clip(response.Warnings), refusedSampling(asked))
	}
	if err == nil && m.service.RefusalStops {
		for _, choice := range response.Output.GetChoices() {
			if choice.GetStopReason() == modelv1.StopReason_STOP_REASON_STOP && choice.GetStopDetails().GetType() == format.KindRefusal {
				choice.StopReason = modelv1.StopReason_STOP_REASON_CONTENT_FILTER
			}
		}
	}
	return response, err
}

// attempt makes an attempt in the format that the model is asked in.
func (m *model) attempt(ctx context.Context, r *provider.Request) (*provider.Response, error) {
	switch {
	case m.responses != nil:
		return m.generateResponses(ctx, r)
	case m.emulates:
		emulated := emulate.Request(r)
		request, warnings := m.chatRequest(emulated)
		emulated.Tools = r.Tools // They name the argument of a call in the API's own form whose arguments are bare.
		response, err := m.client.Do(ctx, emulated, request)
		if err == nil {
			emulate.Read(response.Output, r.Tools, m.label)
			if isForced(r.ToolChoice) && len(r.Tools) > 0 {
				warnings = append(warnings, "the model is not forced to call a tool: its tools are in a prompt")
			}
			response.Warnings = warnings
		}
		return response, err
	default:
		request, warnings := m.chatRequest(r)
		response, err := m.client.Do(ctx, r, request)
		if err == nil {
			response.Warnings = warnings
		}
		return response, err
	}
}

// generateResponses makes an attempt with the Responses API.
func (m *model) generateResponses(ctx context.Context, r *provider.Request) (*provider.Response, error) {
	r, restore := responsesapi.Renamed(r)
	base, warnings := m.base(r)
	if m.service.Tools != nil {
		if err := m.service.Tools(&base); err != nil {
			return nil, err
		}
	}
	base.Members = append(base.Members, m.service.ResponsesMembers...)
	base.Config.ReasoningSummary = responsesapi.Summary(base.Config)
	request := responsesapi.New(base, m.args.ResponsesStore)
	request.Phases, request.FillEmpty = isTrue(m.args.ResponsesPhase), true
	call := &exchange.Call{URL: m.client.BaseURL + responsesapi.Path, Header: m.client.Header(r), Model: m.name, Stream: request.Stream}
	response, err := m.responses.Do(ctx, r, call, request.Append)
	if err != nil {
		return nil, err
	}
	restore(response.Output)
	response.Warnings = warnings
	return response, nil
}

// finishResponses names the model of an answer by the Responses API as it is sent; of one that is made of an error it
// is named already.
func (m *model) finishResponses(answer dialect.Response, output *modelv1.ModelOutput) error {
	responsesapi.SetModel(output, m.name)
	if m.service.Finish != nil {
		return m.service.Finish(answer, output, m.name)
	}
	return nil
}

// chatRequest makes the upstream request for chat completions, and returns warnings.
func (m *model) chatRequest(r *provider.Request) (*openaichat.Request, []string) {
	base, warnings := m.base(r)
	request := &openaichat.Request{
		Request: base, StrictTools: m.args.StrictTools, FillEmpty: m.service.FillEmpty, Replay: m.differs.Replay,
		PlainTurns: m.service.PlainTurns, JoinTexts: m.service.JoinTexts, EmptyCalls: m.service.EmptyCalls,
		OmitEmpty: m.service.OmitEmpty, ImagesOnly: m.service.ImagesOnly, NoStreamUsage: m.service.NoStreamUsage,
		EphemeralMarks: (m.differs.Marks || m.isClaude()) && r.Config.GetCachePrompt() != modelv1.CachePrompt_CACHE_PROMPT_OFF,
	}
	if m.service.NoReasoning {
		request.Replay = func(*contentv1.Content) (string, []dialect.Member) { return "", nil }
	}
	if !m.refused.Load() {
		request.Members = append(request.Members, m.sampling(r.Config)...)
	}
	if m.isClaude() {
		m.forClaude(&request.Request)
	}
	if !m.service.WholeSchemas && !m.isClaude() {
		request.Tools = toolschema.Edit(r.Tools, dialect.DropBounds)
		if schema := request.Config.GetResponseSchema(); schema != nil {
			schema.JsonSchema = dialect.EditSchema(schema.GetJsonSchema(), dialect.DropBounds)
		}
	}
	if request.StrictTools == nil && !m.service.PlainTools {
		request.StrictTools = new(!m.service.LaxTools && !r.Client)
	}
	if m.service.MaxCompletionTokens || newer.MatchString(m.name) {
		request.MaxTokensMember = "max_completion_tokens"
	}
	return request, warnings
}

// base is the part of a request that is the same in both formats, with the service's differences; it returns warnings.
func (m *model) base(r *provider.Request) (base dialect.Request, warnings []string) {
	sent := provider.Fit(m, r.Config).Sent
	base = dialect.Request{
		Model: m.name, Messages: r.Messages, Tools: r.Tools, Choice: r.ToolChoice, Config: chat.Merge(sent),
		Stream: m.streams(r), Members: slices.Clone(m.members),
	}
	if id := r.Conversation(); id != "" && m.service.ConversationMember != "" {
		base.Members = append(base.Members, dialect.TextMember(m.service.ConversationMember, id))
	}
	if m.service.Adapt != nil {
		warnings = m.service.Adapt(&base)
	}
	c := base.Config
	if c.GetReasoningEffort() == "" {
		c.ReasoningEffort = nil
	}
	if m.service.ReasoningObject && m.responses == nil {
		base.Members = append(base.Members, m.reasoning(c)...)
		c.ReasoningEffort = nil
	}
	return base, warnings
}

// reasoning is the object of options of reasoning; none if there are no options.
func (m *model) reasoning(c *modelv1.GenerateConfig) []dialect.Member {
	object := &orderedjson.Object{}
	if c.ReasoningEffort != nil {
		object.Set("effort", c.GetReasoningEffort())
	} else if c.ReasoningTokens != nil && m.service.ReasoningTokens {
		object.Set("max_tokens", json.Number(strconv.FormatInt(c.GetReasoningTokens(), 10)))
	}
	if m.enabled != "" {
		object.Set("enabled", m.enabled == "true")
	}
	if document := string(orderedjson.Append(nil, object)); document != "{}" {
		return []dialect.Member{{Name: "reasoning", JSON: document}}
	}
	return nil
}

// streams reports whether a request is to be streamed.
func (m *model) streams(r *provider.Request) bool {
	switch s := m.service; {
	case m.args.Stream != nil:
		return *m.args.Stream
	case s.WholeLogprobs && r.Config.GetLogprobs(), r.Config.GetPromptLogprobs() != 0:
		return false
	case s.Streamed, s.StreamedOver > 0 && r.Config.GetMaxTokens() > s.StreamedOver:
		return true
	default:
		return r.Streams(nil)
	}
}
