package anthropic

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// name is a parsed model name. Anthropic's models differ in the options that they accept, and only their names identify
// them.
type name string

var (
	// newNames are those since Claude 4: family, then version. A date is no minor version.
	newNames = regexp.MustCompile(`claude-(opus|sonnet|haiku|fable|mythos)-(\d)(?:-(\d))?(?:\D|$)`)
	// oldNames are those of Claude 3: version, then family.
	oldNames = regexp.MustCompile(`claude-(3)(?:-(\d))?-(opus|sonnet|haiku)`)
)

// Families.
const (
	opus   = "opus"
	sonnet = "sonnet"
	haiku  = "haiku"
	fable  = "fable"
	mythos = "mythos"
)

// generation is the content of a name: a family, and a version as ten times the major number plus the minor one.
type generation struct {
	family  string
	version int
}

// frontier is the version of unknown names, which are assumed to be future models.
const frontier = 1000

func (n name) generation() generation {
	if m := oldNames.FindStringSubmatch(string(n)); m != nil {
		return generation{family: m[3], version: version(m[1], m[2])}
	}
	if m := newNames.FindStringSubmatch(string(n)); m != nil {
		return generation{family: m[1], version: version(m[2], m[3])}
	}
	if strings.Contains(string(n), "claude-mythos-preview") {
		return generation{family: mythos, version: frontier}
	}
	return generation{version: frontier}
}

func version(major, minor string) int {
	a, _ := strconv.Atoi(major)
	b, _ := strconv.Atoi(minor)
	return 10*a + b
}

// is reports whether the model is one of a family from a version on and before another.
func (g generation) is(family string, from, before int) bool {
	return g.family == family && g.version >= from && g.version < before
}

// control is the way to control a model's thinking.
type control int

const (
	// noThinking models cannot think.
	noThinking control = iota
	// byBudget models think within a number of tokens.
	byBudget
	// byEither models think by effort, or within a number of tokens.
	byEither
	// byEffort models think according to an effort.
	byEffort
)

func (g generation) control() control {
	switch {
	case g.version < 37:
		return noThinking
	case g.version < 46:
		return byBudget
	case g.version < 47:
		return byEither
	default:
		return byEffort
	}
}

// binds reports whether the model thinks by default, with thinking that is bound to the preceding messages.
func (g generation) binds() bool {
	return g.is(opus, 55, 60) || g.is(sonnet, 55, 60) || g.is(haiku, 55, 60) || g.is(fable, 51, 60)
}

// refusesForce reports whether the model cannot be made to call a tool.
func (g generation) refusesForce() bool {
	return g.is(opus, 55, 60) || g.is(sonnet, 55, 60) || g.is(mythos, 55, 60) || g.is(fable, 51, 60)
}

// off is the setting that disables thinking; empty if thinking cannot be disabled, or is off by default.
func (g generation) off() string {
	switch {
	case g.version < 47, g.is(opus, 55, 60), g.is(haiku, 50, 55), g.is(fable, 50, 60), g.is(mythos, 50, 60):
		return ""
	case g.is(sonnet, 55, 60):
		return "between_tools"
	default:
		return "disabled"
	}
}

// thinksAlways reports whether the model thinks, and cannot be configured not to.
func (g generation) thinksAlways() bool { return g.control() == byEffort && g.off() == "" }

// refusesFallback reports whether the model does not support a fallback to other models.
func (g generation) refusesFallback() bool { return g.is(haiku, 55, 60) }

// window is how many tokens of input the model takes.
func (g generation) window() int64 {
	if g.version < 46 {
		return 200_000
	}
	return 1_000_000
}

// calmWhenOff reports whether the model accepts at most high effort while it does not think.
func (g generation) calmWhenOff() bool {
	return g.is(opus, 50, 55) || g.is(sonnet, 55, 60) || g.is(haiku, 55, 60)
}

// effort is the nearest effort that the model knows.
func (g generation) effort(asked string) string {
	switch {
	case asked == "minimal":
		return "low"
	case asked == "max" && g.version < 46, asked == "xhigh" && g.version < 47:
		return "high"
	default:
		return asked
	}
}

// takesSystemTurns reports whether the model accepts system messages within the conversation.
func (g generation) takesSystemTurns() bool {
	return g.version >= 48 && g != generation{family: mythos, version: frontier}
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
	if g.version < 37 {
		return baseTokensOld
	}
	return baseTokens
}

// budgets are the tokens that each effort of reasoning is worth.
var budgets = map[string]int64{"minimal": 2048, "low": 4096, "medium": 10000, "high": 16000, "xhigh": 32000, "max": 32000}

// room is the addition of reasoning to base.
func (g generation) room() *provider.ReasoningHeadroom {
	room := &provider.ReasoningHeadroom{Most: g.most(), Least: map[string]int64{"xhigh": hardTokens, "max": hardTokens}}
	switch g.control() {
	case noThinking:
	case byBudget:
		room.Efforts, room.Budget = budgets, true
	default:
		room.Budget, room.EffortFirst = true, true
		room.Efforts = map[string]int64{}
		for effort := range budgets {
			room.Efforts[effort] = budgets[g.effort(effort)]
		}
	}
	return room
}

// most is the greatest bound that is chosen for the model.
func (g generation) most() int64 {
	switch {
	case g.family == opus && g.version >= 46, g.version >= 50, g.version == 37:
		return 128000
	case g.is(opus, 40, 45):
		return 32000
	default:
		return 64000
	}
}
