package bedrock

import (
	"regexp"
	"strings"

	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/claude"
)

// name is a model's id, or the id or the ARN of a profile that contains it, such as
// `us.anthropic.claude-opus-4-7-v1`. Models differ in the options that they accept, and only their names identify them.
type name string

// family is whose model it is, as far as options depend on that.
type family int

const (
	otherFamily family = iota
	// anthropicFamily is Claude.
	anthropicFamily
	// novaFamily are Amazon's models.
	novaFamily
	// gptFamily are OpenAI's models with open weights.
	gptFamily
)

func (n name) has(part string) bool { return strings.Contains(strings.ToLower(string(n)), part) }

func (n name) hasAny(parts []string) bool {
	for _, part := range parts {
		if n.has(part) {
			return true
		}
	}
	return false
}

func (n name) family() family {
	switch {
	case n.has("gpt-oss"):
		return gptFamily
	case n.has("claude"):
		return anthropicFamily
	case n.has("nova"):
		return novaFamily
	default:
		return otherFamily
	}
}

// before3 are parts of the names of Claude before version 3.
var before3 = []string{"claude-v", "claude-2", "claude-instant"}

// claude is the generation of a model of Anthropic.
func (n name) claude() claude.Generation {
	if n.hasAny(before3) {
		return claude.Generation{Version: 20}
	}
	return claude.GenerationOf(strings.ToLower(string(n)))
}

// uncached are parts of the names of Claude that Bedrock does not cache:
// https://docs.aws.amazon.com/bedrock/latest/userguide/prompt-caching.html.
var uncached = append([]string{"claude-3-sonnet", "claude-3-haiku", "claude-3-opus", "claude-3-5-sonnet-20240620"}, before3...)

// firstNova matches Amazon's models that do not reason.
var firstNova = regexp.MustCompile(`(?:^|[./])amazon\.nova-(?:micro|lite|pro|premier)-v1(?::|$)`)

// bounds are the default bounds of output tokens by a part of the name, the first that fits.
var bounds = []struct {
	part   string
	tokens int64
}{
	{"llama3-70", 2048},
	{"llama3-8", 2048},
	{"llama-3-70", 2048},
	{"llama-3-8", 2048},
	{"llama3", 4096},
	{"llama-3", 4096},
	{"claude3", 4096},
	{"claude-3", 4096},
	{"mistral-large", 8192},
}

const defaultBound = 2048

// bound is the default bound of output tokens.
func (n name) bound() int64 {
	for _, b := range bounds {
		if n.has(b.part) {
			return b.tokens
		}
	}
	return defaultBound
}
