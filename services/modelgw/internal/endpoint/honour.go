package endpoint

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// fit fits a request to a model, or fails.
func (e *Endpoints) fit(ctx context.Context, x *exchange, a *dialect.Request, m *provider.Model) error {
	caps := provider.CapabilitiesOf(m.Provider, a.Config)
	if fitEffort(a.Config, caps) {
		caps = provider.CapabilitiesOf(m.Provider, a.Config)
	}
	if err := e.honour(x, a, m, caps.Ignored); err != nil {
		return err
	}
	if a.OneCall { // A wish of ours: where an API has no such option, the request is not at fault.
		a.Config.ParallelToolCalls = new(false)
	}
	fitReasoning(a.Config, m, caps.ReasoningHeadroom)
	if err := e.fitHosted(ctx, x, a, m, caps.Hosted); err != nil {
		return err
	}
	return e.inline(ctx, x, a, caps.Fetches)
}

// wishes are the options that say how an answer is to be written, without which it is an answer all the same.
var wishes = []string{"temperature", "top_p", "top_k", "frequency_penalty", "presence_penalty", "logit_bias", "verbosity"}

// honour fails if a request has options that the model's provider would ignore. The platform's own API reports them
// beside the answer, for which no vendor's format has a place. The format's habits and the options of
// Config.LeaveOut are left out instead, and a header of the answer names them.
func (e *Endpoints) honour(x *exchange, a *dialect.Request, m *provider.Model, ignored []string) error {
	var left, members []string
	for _, option := range provider.OptionsSet(a.Config, ignored) {
		if !slices.Contains(x.habits, option) && !slices.Contains(e.cfg.LeaveOut, option) {
			return dialect.NotSupported(x.member(option), "is not supported by %s; leave it out", m.FullName())
		}
		left, members = append(left, option), append(members, x.member(option))
	}
	if len(left) > 0 {
		a.Config = chat.Without(a.Config, left)
		x.out.Header().Set(unsentHeader, strings.Join(members, ", "))
	}
	return nil
}

// member is the member of a request that has an option of a configuration.
func (f *format) member(option string) string { return cmp.Or(f.about.Options[option], option) }

// blamed returns a failure that an option of the configuration causes, since it is wrong or the model's API has no
// place for it, as one of the client's member; others as they are.
func (f *format) blamed(err error) error {
	e, ok := rpcerr.As(err)
	if !ok || len(e.Fields) == 0 {
		return err
	}
	option, ok := strings.CutPrefix(e.Fields[0].Path, "config.")
	switch {
	case ok && e.Reason == errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST:
		return dialect.Invalid(f.member(option), "%s", e.Fields[0].Description)
	case ok && e.Reason == errorsv1.ErrorReason_ERROR_REASON_CAPABILITY_UNSUPPORTED:
		option, _, _ = strings.Cut(option, ".")
		return dialect.NotSupported(f.member(option), "%s", e.Fields[0].Description)
	default:
		return err
	}
}

// efforts are Anthropic's efforts in words of reasoning that all models know: those have none above `high`.
var efforts = map[string]string{"low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high"}

// fitEffort makes Anthropic's effort an effort of reasoning, for a model that takes only that. It reports whether it
// did. Where a model takes a number of tokens, and the client gives one, that counts.
func fitEffort(c *modelv1.GenerateConfig, caps provider.Capabilities) (changed bool) {
	takes := func(option string) bool {
		return !slices.Contains(caps.Ignored, option) && !slices.Contains(caps.Dropped, option)
	}
	word, known := efforts[c.GetEffort()]
	if !known || takes("effort") || !takes("reasoning_effort") || c.ReasoningTokens != nil && takes("reasoning_tokens") {
		return false
	}
	c.Effort, c.ReasoningEffort = nil, &word
	return true
}

// leastBudget is the least number of tokens within which models think.
const leastBudget = 1024

// fitReasoning makes how long a model is to think, which is a wish, what a model that thinks within a number of tokens
// takes: fewer tokens than the bound of its answer, of which they are a part. It is left out where the bound leaves no
// room, and where the model takes no such number.
func fitReasoning(c *modelv1.GenerateConfig, m *provider.Model, room *provider.ReasoningHeadroom) {
	if room == nil || !room.Budget {
		return
	}
	tokens, effort := c.GetReasoningTokens(), c.GetReasoningEffort()
	switch {
	case c.ReasoningTokens != nil && tokens <= 0:
		c.ReasoningTokens, c.ReasoningEffort = nil, new("none")
		return
	case c.ReasoningTokens != nil && m.Provider.Check(&modelv1.GenerateConfig{ReasoningTokens: c.ReasoningTokens}) != nil:
		c.ReasoningTokens = nil
		return
	case c.ReasoningTokens == nil && !room.EffortFirst:
		tokens = room.Efforts[effort]
	}
	if tokens == 0 || c.MaxTokens == nil || tokens < c.GetMaxTokens() {
		return
	}
	c.ReasoningTokens, c.ReasoningEffort = nil, nil
	if half := c.GetMaxTokens() / 2; half >= leastBudget {
		c.ReasoningTokens = &half
	}
}
