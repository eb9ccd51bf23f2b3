package anthropic

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	format "github.com/evalfleet/evalfleet/pkg/dialect/anthropic"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/claude"
)

// Features in preview, by the names of their headers: https://platform.claude.com/docs/en/api/beta-headers.
const (
	betaOAuth        = "oauth-2025-04-20"
	betaInterleaved  = "interleaved-thinking-2025-05-14"
	betaLongOutput   = "output-128k-2025-02-19"
	betaEffort       = "effort-2025-11-24"
	betaSchema       = "structured-outputs-2025-11-13"
	betaFallback     = "server-side-fallback-2026-06-01"
	betaBinding      = "thinking-binding-controls-2026-08-01"
	betaFullThinking = "full-thinking"
	betaCompaction   = "compact-2026-01-12"
	betaMCP          = "mcp-client-2025-04-04"
	betaMemory       = "context-management-2025-06-27"
	betaCode         = "code-execution-2025-08-25"
	betaFetch        = "web-fetch-2025-09-10"
	betaComputer     = "computer-use-2025-11-24"
	betaComputerOld  = "computer-use-2025-01-24"
	betaEditorOld    = "computer-use-2024-10-22"

	betaHeader = "anthropic-beta"
)

// degradedMember is the member of an output's metadata that reports a tool choice which the model does not accept.
const degradedMember = "tool_choice_degraded"

const (
	// contextMember is the member of a request that defines how the server shortens conversations, and compactEdit its
	// method by summary.
	contextMember = "context_management"
	compactEdit   = "compact_20260112"
	// compactMargin is how much of the window is left when a conversation is compacted again.
	compactMargin = 10_000
)

const (
	// longOutput is the bound from which output with thinking counts as long.
	longOutput = 8192
	// streamFrom is the bound of output tokens from which requests are streamed, since connections have a limited
	// lifetime.
	streamFrom = 8192
)

// plan is a request in the making.
type plan struct {
	*format.Request
	betas    []string
	headers  map[string]string
	warnings []string
	// degraded holds the requested tool choice and the used one, if they differ.
	degraded *orderedjson.Object
	// offered are the names of tools by those under which the model calls them, where these are others.
	offered map[string]string
	// thinks means that thinking is enabled for the model.
	thinks bool
}

// plan makes the upstream request, and returns the omitted options.
func (m *model) plan(r *provider.Request) (*plan, error) {
	c := chat.Merge(chat.Changed(r.Config, m.Changed(r.Config)))
	p := &plan{betas: slices.Clone(m.betas), headers: map[string]string{}}
	p.Request = &format.Request{Request: dialect.Request{Model: string(m.name), Tools: r.Tools, Choice: r.ToolChoice, Config: c}}
	p.ModelInAddress, p.StreamInAddress = m.site.modelInAddress, m.site.streamInAddress
	p.Messages, p.warnings = format.Arrange(r.Messages, m.generation.takesSystemTurns() && !m.site.noSystemTurns)
	p.Cache = format.Cache{
		Off: !m.name.caches() || c.GetCachePrompt() == modelv1.CachePrompt_CACHE_PROMPT_OFF, TTL: m.args.CacheTTL, Automatic: !m.site.noAutomaticCache,
	}
	c.Temperature, c.TopP, c.TopK = nil, nil, nil
	p.readHeaders(c)
	if err := m.think(p, r.Client && (p.forced() || claude.Unthought(r.Messages, true))); err != nil {
		return nil, err
	}
	servers, err := m.native(p)
	if err != nil {
		return nil, err
	}
	m.choose(p)
	for sent, offered := range p.offered {
		if p.Choice.GetFunction() == offered {
			p.Choice = chat.FunctionChoice(sent)
		}
	}
	if c.ResponseSchema != nil {
		p.betas = append(p.betas, betaSchema)
	}
	compacted, fellBack := kept(r.Messages)
	if m.generation.refusesFallback() || m.site.noFallback {
		c.FallbackModels, fellBack = nil, fellBack && !m.site.noFallback
	}
	if c.FallbackModels != nil || fellBack {
		p.betas = append(p.betas, betaFallback)
	}
	given, err := members(c.GetExtraBodyJson(), passedOn)
	if err != nil {
		return nil, rpcerr.InvalidField("config.extra_body_json", "%v", err)
	}
	p.Members = slices.Concat(withoutReplaced(given, m.members), servers, m.members)
	p.compact(compacted, cmp.Or(r.InputWindow, m.generation.window()))
	p.Members = append(p.Members, m.site.members(trimmed(p.betas))...)
	always := m.args.Streaming.Always
	p.Stream = r.Streams(always) || always == nil && r.Carrier == nil && (p.thinks || c.GetMaxTokens() >= streamFrom)
	p.Stream = p.Stream && !m.noStream.Load()
	return p, nil
}

// compact requests compaction if the conversation was compacted before, since the server accepts its summary only then.
// Compaction is to happen when the window is nearly full, unless the request specifies more.
func (p *plan) compact(before bool, window int64) {
	at := slices.IndexFunc(p.Members, func(m dialect.Member) bool { return m.Name == contextMember })
	management := &orderedjson.Object{}
	if at >= 0 {
		if given, err := orderedjson.DecodeObject([]byte(p.Members[at].JSON)); err == nil {
			management = given
		}
	}
	edits, _ := management.Get("edits")
	list, _ := edits.([]any)
	asked := slices.ContainsFunc(list, func(edit any) bool {
		object, ok := edit.(*orderedjson.Object)
		if !ok {
			return false
		}
		kind, _ := object.Get("type")
		return kind == compactEdit
	})
	if !asked && !before {
		return
	}
	p.betas = append(p.betas, betaCompaction)
	if asked {
		return
	}
	management.Set("edits", append(list, compaction(max(window-compactMargin, compactFrom))))
	p.setMember(contextMember, orderedjson.Append(nil, management))
}

// readHeaders removes preview features from the headers of the configuration, where they may have two names. Their
// order is that of the names.
func (p *plan) readHeaders(c *modelv1.GenerateConfig) {
	headers := c.GetExtraHeaders().GetValues()
	for _, header := range slices.Sorted(maps.Keys(headers)) {
		value := headers[header]
		if strings.EqualFold(strings.ReplaceAll(header, "_", "-"), betaHeader) {
			p.betas = append(p.betas, strings.Split(value, ",")...)
		} else {
			p.headers[header] = value
		}
	}
}

// forced reports whether the choice demands a call of a tool.
func (p *plan) forced() bool {
	return len(p.Tools) > 0 && (p.Choice.GetFunction() != "" || p.Choice.GetMode() == toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_ANY)
}

// think sets the model's thinking: by an effort, within a budget, or off, as its generation accepts it. Within a budget
// the server takes no demand for a call, and no turn that began without thinking: where a client of an endpoint makes or
// continues one (bound), the model does not think.
func (m *model) think(p *plan, bound bool) error {
	c, g := p.Config, m.generation
	asked, tokens := c.GetReasoningEffort(), c.ReasoningTokens
	none := asked == "none"
	if none {
		asked = ""
	}
	if c.Effort != nil {
		p.betas = append(p.betas, betaEffort)
	}
	switch control := g.Control(); {
	case control == claude.NoThinking:
	case control == claude.ByEffort && tokens != nil:
		return rpcerr.InvalidField("config.reasoning_tokens", "%s does not think within a number of tokens; set reasoning_effort", m.name)
	case control != claude.ByEffort && tokens != nil && (control == claude.ByBudget || asked == ""):
		p.Thinking = &format.Thinking{Type: format.ThinkingEnabled, BudgetTokens: *tokens}
	case control == claude.ByBudget && asked != "":
		p.Thinking = &format.Thinking{Type: format.ThinkingEnabled, BudgetTokens: provider.EffortTokens[asked]}
	case control != claude.ByBudget && asked != "":
		p.Thinking = &format.Thinking{Type: "adaptive"}
		c.Effort = &asked
	}
	if bound && p.Thinking != nil && p.Thinking.Type == format.ThinkingEnabled {
		p.Thinking = nil
	}
	if p.Thinking != nil {
		p.thinks = true
		m.displayed(p)
	} else if none && g.off() != "" {
		p.Thinking = &format.Thinking{Type: g.off()}
	}
	if g.binds() && (m.site.binds == nil || m.site.binds(g)) {
		p.betas = append(p.betas, betaBinding)
		if p.Thinking == nil {
			p.Thinking = &format.Thinking{Type: "adaptive"}
		}
		p.Thinking.DropUnbound = p.Thinking.Type == "adaptive"
	}
	return nil
}

// displayed requests the companions of thinking: summaries of it, thinking between calls, and room for it.
func (m *model) displayed(p *plan) {
	if !slices.ContainsFunc(p.betas, func(beta string) bool { return strings.Contains(beta, betaFullThinking) }) {
		p.Thinking.Display = "summarized"
	}
	if m.generation.Version >= 40 {
		p.betas = append(p.betas, betaInterleaved)
	}
	if p.Config.GetMaxTokens() > longOutput {
		p.betas = append(p.betas, betaLongOutput)
	}
}

// choose adapts the tool choice to the model: with a thinking budget there is none but that of no tool, except that
// calls one at a time are part of one, and some models cannot be forced.
func (m *model) choose(p *plan) {
	used := chat.ModeChoice(toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_AUTO)
	none := p.Choice.GetMode() == toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_NONE
	if p.Thinking != nil && p.Thinking.Type == format.ThinkingEnabled && !none {
		if p.forced() {
			p.warnings = append(p.warnings, fmt.Sprintf("%s is sent no choice among the tools while it thinks within a budget; it may call any, or none", m.name))
		}
		p.Choice = nil
		if parallel := p.Config.ParallelToolCalls; parallel != nil && !*parallel {
			p.Choice = used
		}
		return
	}
	set := p.Toolset != "" && p.Choice.GetFunction() == p.Toolset // No tool has the name of a set.
	if !p.forced() || !set && !m.generation.RefusesForce() {
		return
	}
	p.warnings = append(p.warnings, fmt.Sprintf("%s cannot be made to call a tool; the choice is left to it", m.name))
	p.degraded = &orderedjson.Object{}
	p.degraded.Set("requested", format.ChoiceObject(p.Choice))
	p.degraded.Set("used", format.ChoiceObject(used))
	p.Choice = used
}

// header returns the headers of the request.
func (m *model) header(p *plan, entry *entry) http.Header {
	h := m.headers.Clone()
	maps.Copy(h, entry.header)
	if betas := trimmed(p.betas); len(betas) > 0 {
		slices.Sort(betas)
		h.Set(betaHeader, strings.Join(slices.Compact(betas), ","))
	}
	for header, value := range p.headers {
		h.Set(header, value)
	}
	return h
}

// trimmed are preview features without blanks around them.
func trimmed(betas []string) (all []string) {
	for _, beta := range betas {
		if beta = strings.TrimSpace(beta); beta != "" {
			all = append(all, beta)
		}
	}
	return all
}

// passedOn are the members of extra_body in a configuration that the API knows.
var passedOn = []string{"metadata", "service_tier", "context_management"}

// members reads the members of a JSON object; those of these names only, unless names is nil.
func members(document string, names []string) ([]dialect.Member, error) {
	if document == "" || document == "null" {
		return nil, nil
	}
	object, err := orderedjson.DecodeObject([]byte(document))
	if err != nil {
		return nil, fmt.Errorf("extra_body must be a JSON object: %w", err)
	}
	var all []dialect.Member
	for member, value := range object.All() {
		if names == nil || slices.Contains(names, member) {
			all = append(all, dialect.Member{Name: member, JSON: string(orderedjson.Append(nil, value))})
		}
	}
	return all, nil
}

func withoutReplaced(given, replacing []dialect.Member) []dialect.Member {
	return slices.DeleteFunc(given, func(g dialect.Member) bool {
		return slices.ContainsFunc(replacing, func(r dialect.Member) bool { return r.Name == g.Name })
	})
}
