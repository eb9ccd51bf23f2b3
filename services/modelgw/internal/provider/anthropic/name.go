package anthropic

import (
	"strings"

	format "github.com/evalfleet/evalfleet/pkg/dialect/anthropic"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/claude"
)

// name is a parsed model name.
type name string

// generation is the content of a name, with the quirks of Anthropic's own API.
type generation struct{ claude.Generation }

func (n name) generation() generation { return generation{claude.GenerationOf(string(n))} }

// binds reports whether the model thinks by default, with thinking that is bound to the preceding messages.
func (g generation) binds() bool {
	return g.Is(claude.Opus, 55, 60) || g.Is(claude.Sonnet, 55, 60) || g.Is(claude.Haiku, 55, 60) || g.Is(claude.Fable, 51, 60)
}

// off is the setting that disables thinking; empty if thinking cannot be disabled, or is off by default.
func (g generation) off() string {
	switch {
	case g.Version < 47, g.Is(claude.Opus, 55, 60), g.Is(claude.Haiku, 50, 55), g.Is(claude.Fable, 50, 60), g.Is(claude.Mythos, 50, 60):
		return ""
	case g.Is(claude.Sonnet, 55, 60):
		return "between_tools"
	default:
		return format.ThinkingDisabled
	}
}

// thinksAlways reports whether the model thinks, and cannot be configured not to.
func (g generation) thinksAlways() bool { return g.Control() == claude.ByEffort && g.off() == "" }

// leastEffort is the effort with which the model thinks least; empty if it always thinks, or never.
func (g generation) leastEffort() string {
	if g.Control() == claude.NoThinking || g.thinksAlways() {
		return ""
	}
	return "none"
}

// refusesFallback reports whether the model does not support a fallback to other models.
func (g generation) refusesFallback() bool { return g.Is(claude.Haiku, 55, 60) }

// window is how many tokens of input the model takes.
func (g generation) window() int64 {
	if g.Version < 46 {
		return 200_000
	}
	return 1_000_000
}

// compacts reports whether the server compacts conversations with the model:
// https://platform.claude.com/docs/en/build-with-claude/compaction.
func (g generation) compacts() bool { return g.Version >= 46 }

// calmWhenOff reports whether the model accepts at most high effort while it does not think.
func (g generation) calmWhenOff() bool {
	return g.Is(claude.Opus, 50, 55) || g.Is(claude.Sonnet, 55, 60) || g.Is(claude.Haiku, 55, 60)
}

// takesSystemTurns reports whether the model accepts system messages within the conversation.
func (g generation) takesSystemTurns() bool {
	return g.Version >= 48 && g != generation{claude.Generation{Family: claude.Mythos, Version: claude.Frontier}}
}

// caches reports whether the model's prompts are cached.
func (n name) caches() bool {
	for _, old := range []string{"claude-3-sonnet", "claude-2", "claude-instant"} {
		if strings.Contains(string(n), old) {
			return false
		}
	}
	return true
}

// Bounds of output tokens.
const (
	baseTokensOld = 4096
	baseTokens    = 32000
	// hardTokens is the least bound for output with great effort.
	hardTokens = 64000
)

// base is the default bound of output tokens.
func (g generation) base() int64 {
	if g.Version < 37 {
		return baseTokensOld
	}
	return baseTokens
}

// room is the addition of reasoning to base.
func (g generation) room() *provider.ReasoningHeadroom {
	room := &provider.ReasoningHeadroom{Most: g.most(), Least: map[string]int64{"xhigh": hardTokens, "max": hardTokens}}
	switch g.Control() {
	case claude.NoThinking:
	case claude.ByBudget:
		room.Efforts, room.Budget = provider.EffortTokens, true
	default:
		room.Budget, room.EffortFirst = true, true
		room.Efforts = map[string]int64{}
		for effort := range provider.EffortTokens {
			room.Efforts[effort] = provider.EffortTokens[g.Effort(effort)]
		}
	}
	return room
}

// most is the greatest bound that is chosen for the model.
func (g generation) most() int64 {
	switch {
	case g.Family == claude.Opus && g.Version >= 46, g.Version >= 50, g.Version == 37:
		return 128000
	case g.Is(claude.Opus, 40, 45):
		return 32000
	default:
		return 64000
	}
}
