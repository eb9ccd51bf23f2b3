package provider

import modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"

// ReasoningHeadroom is what a configuration adds to a provider's default bound of output tokens, if reasoning counts as
// output.
type ReasoningHeadroom struct {
	// Efforts are the tokens that each reasoning_effort adds.
	Efforts map[string]int64
	// Budget adds reasoning_tokens, also none, instead of the effort's addition.
	Budget bool
	// EffortFirst keeps to the effort where both are set.
	EffortFirst bool
	// Least are the least bounds by effort.
	Least map[string]int64
	// Most bounds the result; zero is no bound.
	Most int64
}

// EffortTokens are the tokens that each reasoning_effort is worth, of models that reason within a number of tokens. It
// must not be modified.
var EffortTokens = map[string]int64{"minimal": 2048, "low": 4096, "medium": 10000, "high": 16000, "xhigh": 32000, "max": 32000}

// MaxTokensFor is the default bound of output tokens with a configuration; zero leaves it to the server.
func (c Capabilities) MaxTokensFor(config *modelv1.GenerateConfig) int64 {
	tokens := c.MaxTokens
	if tokens == 0 || c.ReasoningHeadroom == nil {
		return tokens
	}
	added := c.ReasoningHeadroom.Efforts[config.GetReasoningEffort()]
	budget := c.ReasoningHeadroom.Budget && config != nil && config.ReasoningTokens != nil
	if budget && (added == 0 || !c.ReasoningHeadroom.EffortFirst) {
		added = max(0, config.GetReasoningTokens())
	}
	tokens += added
	tokens = max(tokens, c.ReasoningHeadroom.Least[config.GetEffort()])
	if c.ReasoningHeadroom.Most > 0 {
		tokens = min(tokens, c.ReasoningHeadroom.Most)
	}
	return tokens
}
