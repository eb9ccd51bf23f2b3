package openai

import (
	"slices"
	"strconv"
	"strings"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// name is a parsed model name. OpenAI's models differ in the options that they accept, and only their names identify
// them.
type name struct {
	id string
	// foreign means that the server is not known to be OpenAI's, so that no name is a code name of its newest models.
	foreign bool
}

// plainFragments are parts of names of models that are no frontier models under a code name.
// On Azure names are those of deployments, and Bedrock has a fixed list.
var plainFragments = []string{
	azurePrefix, bedrockPrefix, "gpt", "codex", "deep-research", "embedding", "whisper", "dall-e", "tts", "moderation", "image-1", "sora",
}

// isOSeries reports whether the model is one of o1, o3, o4-mini and so on.
func (n name) isOSeries() bool {
	for at, word := 0, n.id; len(word) > 0; word = n.id[at:] {
		if word[0] == 'o' && digits(word[1:]) != "" {
			return true
		}
		next := strings.IndexAny(word, "/:-")
		if next < 0 {
			return false
		}
		at += next + 1
	}
	return false
}

// generation returns the number after `gpt-`; 0 if there is none.
func (n name) generation() int {
	major, _ := n.version()
	return major
}

// version returns the two parts of the number after `gpt-`; 0 for missing ones.
func (n name) version() (major, minor int) {
	for _, rest, found := strings.Cut(n.id, "gpt-"); found; _, rest, found = strings.Cut(rest, "gpt-") {
		number := digits(rest)
		if number == "" {
			continue
		}
		major, _ = strconv.Atoi(number)
		if after, ok := strings.CutPrefix(rest[len(number):], "."); ok {
			minor, _ = strconv.Atoi(digits(after))
		}
		return major, minor
	}
	return 0, 0
}

// digits is the number at the beginning of a text.
func digits(text string) string {
	return text[:len(text)-len(strings.TrimLeft(text, "0123456789"))]
}

// isAtLeast reports whether the number after `gpt-` is this one or a later one.
func (n name) isAtLeast(major, minor int) bool {
	ownMajor, ownMinor := n.version()
	return ownMajor > major || ownMajor == major && ownMinor >= minor
}

// takesCacheMarks reports whether the model accepts marks for the boundaries of the prompt cache: gpt-5.6 and later.
func (n name) takesCacheMarks() bool { return n.isAtLeast(5, 6) }

// plainVariants are parts of names of models of those generations that have no computer of their own.
var plainVariants = []string{"nano", "instant", "chat"}

// controlsComputers reports whether the model has a form of its own for a computer: gpt-5.4 and later.
func (n name) controlsComputers() bool {
	plain := slices.ContainsFunc(plainVariants, func(part string) bool { return strings.Contains(n.id, part) })
	return n.isCodeName() || n.isAtLeast(5, 4) && !plain
}

// isNewest reports whether the model is of the generation that reasons with all efforts: gpt-5.6 and later.
func (n name) isNewest() bool { return n.isAtLeast(5, 6) || n.isCodeName() }

// samples reports whether the model takes options of sampling with this configuration: it does not while it reasons.
// The o series, the first codex and the first gpt-5 always reason. Models from gpt-5.5 on reason unless the effort is
// `none`; the models between them, and those with a code name, reason if an effort is set.
func (n name) samples(c *modelv1.GenerateConfig) bool {
	effort, pro := c.GetReasoningEffort(), c.GetReasoningMode() == "pro"
	switch {
	case !n.takesReasoning():
		return true
	case n.isOSeries(), n.isCodex() && n.generation() == 0, n.isAtLeast(5, 0) && !n.isAtLeast(5, 1):
		return false
	case n.isAtLeast(5, 5):
		return effort == "none" && !pro
	default:
		return (effort == "" || effort == "none") && !pro
	}
}

// isCodeName reports whether a model of OpenAI has none of the known names: it then counts as the newest generation.
func (n name) isCodeName() bool {
	plain := slices.ContainsFunc(plainFragments, func(part string) bool { return strings.Contains(n.id, part) })
	return !n.foreign && !n.isOSeries() && !plain
}

// reasons reports whether the model reasons before it answers.
func (n name) reasons() bool { return n.isOSeries() || n.generation() >= 5 || n.isCodeName() }

// takesReasoning reports whether the Responses API takes options of reasoning for the model.
func (n name) takesReasoning() bool {
	return (n.reasons() || n.isCodex()) && !strings.Contains(n.id, "gpt-5-chat")
}

// partialFragments are parts of names of models that take some efforts alone, or none, of which the least is not known.
var partialFragments = []string{"chat", "-pro", "deep-research", "codex-mini", "o1-mini", "o1-preview"}

// leastEffort is the effort with which the model reasons least; empty if that is not known, or if it does not reason:
// https://platform.openai.com/docs/guides/reasoning.
func (n name) leastEffort() string {
	partial := func(part string) bool { return strings.Contains(n.id, part) }
	switch {
	case !n.isOSeries() && n.generation() < 5, slices.ContainsFunc(partialFragments, partial):
		return ""
	case n.isOSeries(), n.isCodex():
		return "low"
	case n.isAtLeast(5, 1):
		return "none"
	default:
		return "minimal"
	}
}

func (n name) isCodex() bool { return strings.Contains(n.id, "codex") }

// takesEffort reports whether the model accepts a reasoning effort.
func (n name) takesEffort() bool { return n.reasons() || !strings.Contains(n.id, "gpt") }

// takesLong reports whether the model takes so long that it answers in the background.
func (n name) takesLong() bool {
	return strings.Contains(n.id, "deep-research") || n.generation() >= 5 && strings.Contains(n.id, "-pro")
}

// wantsResponses reports whether the Responses API is the model's own.
func (n name) wantsResponses() bool {
	return n.reasons() || n.isCodex() || strings.Contains(n.id, "deep-research")
}

// lacksChat reports whether OpenAI answers for the model by the Responses API alone.
func (n name) lacksChat() bool {
	return n.isCodex() || strings.Contains(n.id, "deep-research") || n.reasons() && strings.Contains(n.id, "-pro")
}

// sees reports whether the model is one of the first that accepted images, which stop early without a bound of their
// output.
func (n name) sees() bool { return strings.Contains(n.id, "vision") }
