package bedrock

import (
	"cmp"
	"fmt"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	format "github.com/evalfleet/evalfleet/pkg/dialect/bedrockconverse"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/claude"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/toolschema"
)

// plan is a request in the making.
type plan struct {
	*format.Request
	// unsent are the options that others overrule.
	unsent []provider.Unsent
	// warnings describe changes to the request.
	warnings []string
}

// plan makes the upstream request.
func (m *model) plan(r *provider.Request) *plan {
	c := chat.Merge(chat.Changed(r.Config, m.Changed(r.Config)))
	p := &plan{Request: &format.Request{
		Request: dialect.Request{Model: string(m.name), Messages: r.Messages, Tools: toolschema.Edit(r.Tools, toolschema.Open), Choice: r.ToolChoice, Config: c},
		Cache:   m.cache(c),
	}}
	if m.family == anthropicFamily {
		p.Thoughts = format.AsText // Only text is accepted without a signature.
	}
	m.reason(p)
	if t := p.Fields.Thinking; r.Client && t != nil && t.Type == format.ThinkingEnabled && claude.Unthought(r.Messages, false) {
		p.Fields.Thinking = nil
	}
	m.sample(p)
	m.choose(p)
	if schema := c.GetResponseSchema(); schema != nil && !dialect.IsAnyJSON(schema) {
		if m.family == anthropicFamily {
			p.Fields.Schema = closed(schema.GetJsonSchema())
		}
		c.ResponseSchema = nil
	}
	p.Stream = r.Streams(m.args.Streaming) && !m.noStream.Load()
	return p
}

// closed returns a schema whose objects allow only named members, as the server requires, without the bounds that it
// refuses. On other schemas it refuses the keyword.
func closed(schema string) string {
	return dialect.EditSchema(schema, func(node *orderedjson.Object) bool {
		dialect.DropBounds(node)
		kind, _ := node.Get("type")
		if _, members := node.Get("properties"); members || kind == "object" {
			node.Set("additionalProperties", false)
		}
		return true
	})
}

// cache selects what the server caches. Amazon's models refuse the mark among tools.
func (m *model) cache(c *modelv1.GenerateConfig) format.Cache {
	switch {
	case !m.caches() || c.GetCachePrompt() == modelv1.CachePrompt_CACHE_PROMPT_OFF:
		return format.NoCache
	case m.family == anthropicFamily:
		return format.CacheTools
	default:
		return format.CacheText
	}
}

// caches reports whether Bedrock caches prompts of the model.
func (m *model) caches() bool {
	return m.family == novaFamily || m.family == anthropicFamily && !m.name.hasAny(uncached)
}

// novaUnbound is the effort with which Amazon's models refuse a bound of output tokens.
const novaUnbound = "high"

// reason sets the model's reasoning: by an effort, or within a number of tokens, as the family accepts it.
func (m *model) reason(p *plan) {
	c := p.Config
	switch asked := c.GetReasoningEffort(); {
	case asked == "" && m.family != anthropicFamily:
	case m.family == gptFamily:
		p.Fields.ReasoningEffort = asked
	case m.family == novaFamily && !m.isFirstNova():
		p.Fields.NovaEffort = asked
		if asked == novaUnbound {
			if c.MaxTokens != nil && c.GetMaxTokens() != m.name.bound() {
				p.unsent = append(p.unsent, provider.Unsent{Option: "max_tokens", Why: "which takes no bound with the reasoning_effort high"})
			}
			c.MaxTokens = nil
		}
	case m.family == anthropicFamily:
		m.think(p)
	}
}

func (m *model) isFirstNova() bool { return firstNova.MatchString(string(m.name)) }

// think sets the thinking of a model of Anthropic. It is off by default.
func (m *model) think(p *plan) {
	c, control := p.Config, m.claude.Control()
	asked := c.GetReasoningEffort()
	if asked == "none" {
		asked = ""
	}
	p.Fields.Effort = c.GetEffort()
	switch {
	case control == claude.NoThinking:
	case control != claude.ByBudget && asked != "":
		p.Fields.Thinking, p.Fields.Effort = &format.Thinking{Type: format.ThinkingAdaptive}, asked
		if c.ReasoningTokens != nil {
			p.unsent = append(p.unsent, provider.Unsent{Option: "reasoning_tokens", Why: "since reasoning_effort takes precedence"})
		}
		if c.Effort != nil {
			p.unsent = append(p.unsent, provider.Unsent{Option: "effort", Why: "since reasoning_effort takes precedence"})
		}
	case c.ReasoningTokens == nil:
	case control == claude.ByEffort:
		p.Fields.Thinking = &format.Thinking{Type: format.ThinkingAdaptive}
		p.Fields.Effort = cmp.Or(p.Fields.Effort, "high")
		p.warnings = append(p.warnings, fmt.Sprintf("%s does not think within a number of tokens; it thinks with the effort %s", m.name, p.Fields.Effort))
	default:
		p.Fields.Thinking = &format.Thinking{Type: format.ThinkingEnabled, BudgetTokens: c.GetReasoningTokens()}
	}
}

// sample sets the options of sampling. Models of Anthropic take none while they think, and newer ones take none at all.
func (m *model) sample(p *plan) {
	c := p.Config
	if m.family == anthropicFamily && (m.claude.Control() == claude.ByEffort || p.Fields.Thinking != nil) {
		for _, option := range provider.OptionsSet(c, []string{"temperature", "top_p", "top_k"}) {
			p.unsent = append(p.unsent, provider.Unsent{Option: option, Why: "which takes none while it thinks by effort, or at all"})
		}
		c.Temperature, c.TopP, c.TopK = nil, nil, nil
	}
	switch {
	case c.GetTopK() == 0:
	case m.family == novaFamily:
		p.Fields.NovaTopK = c.TopK
	default:
		p.Fields.TopK = c.TopK
	}
}

// choose adapts the tool choice to models that cannot be made to call a tool.
func (m *model) choose(p *plan) {
	forced := p.Choice.GetFunction() != "" || p.Choice.GetMode() == toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_ANY
	if forced && len(p.Tools) > 0 && m.family == anthropicFamily && m.claude.RefusesForce() {
		p.Choice = chat.ModeChoice(toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_AUTO)
		p.warnings = append(p.warnings, fmt.Sprintf("%s cannot be made to call a tool; the choice is left to it", m.name))
	}
}
