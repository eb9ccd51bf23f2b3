package google

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// name is a parsed model name. Google's models differ in the options that they accept, and only their names identify
// them.
type name string

var versionNumber = regexp.MustCompile(`gemini-(\d+)(?:\.(\d+))?`)

// otherFragments are parts of names of models that are no Gemini models which think.
var otherFragments = []string{"embedding", "imagen", "veo", "gemma", "aqa", "learnlm", "tts"}

// frontier is the version of names without one, which are assumed to be the newest models.
const frontier = 1000

// version is ten times the major number plus the minor one; 0 for models that are no Gemini models.
func (n name) version() int {
	if slices.ContainsFunc(otherFragments, func(part string) bool { return strings.Contains(string(n), part) }) {
		return 0
	}
	match := versionNumber.FindStringSubmatch(string(n))
	if match == nil {
		return frontier
	}
	major, _ := strconv.Atoi(match[1])
	minor, _ := strconv.Atoi(match[2])
	return 10*major + minor
}

// thinks reports whether the model thinks before it answers. Of those that draw, only the newer ones do.
func (n name) thinks() bool {
	return n.version() >= 30 || n.version() >= 25 && !strings.Contains(string(n), "-image")
}

// isOld reports whether the model is of a generation that knew no thoughts.
func (n name) isOld() bool { return n.version() > 0 && n.version() < 25 }

// takesLevel reports whether the model's thinking has a level, beside a budget.
func (n name) takesLevel() bool { return n.version() >= 30 }

// wantsSignatures reports whether the server refuses calls without a signature.
func (n name) wantsSignatures() bool { return n.version() >= 30 }

// runsTools reports whether the model may be offered tools that the server runs.
func (n name) runsTools() bool { return n.version() >= 20 }

// controlsComputers reports whether the server has functions of its own for a computer with the model.
func (n name) controlsComputers() bool {
	return strings.Contains(string(n), "gemini-2.5-computer-use-preview") || strings.Contains(string(n), "gemini-3-flash-preview")
}

// mixesTools reports whether the model may be offered functions beside tools that the server runs.
func (n name) mixesTools() bool { return n.version() >= 30 }

// thinksAlways reports whether the model thinks, and cannot be configured not to.
func (n name) thinksAlways() bool { return n.thinks() && n.isPro() }

// leastEffort is the effort with which the model thinks least: https://ai.google.dev/gemini-api/docs/thinking. It is
// empty if that is not known, or if the model does not think.
func (n name) leastEffort() string {
	switch {
	case !n.thinks(), strings.Contains(string(n), "-image"), !n.isPro() && !n.isFlash():
		return ""
	case n.takesLevel() && n.isPro():
		return "low"
	case n.takesLevel(), n.isPro():
		return "minimal"
	default:
		return off
	}
}

func (n name) isPro() bool { return strings.Contains(string(n), "-pro") }

func (n name) isFlash() bool { return strings.Contains(string(n), "flash") }

// mostBudget is the greatest budget of models other than the large ones:
// https://ai.google.dev/gemini-api/docs/thinking.
const mostBudget = 24576

// budget is the budget of an effort.
func (n name) budget(effort string) int64 {
	if n.isPro() {
		return provider.EffortTokens[effort]
	}
	return min(provider.EffortTokens[effort], mostBudget)
}

// level is the level of an effort.
func (n name) level(effort string) string {
	switch {
	case effort == "minimal" && n.isFlash():
		return "MINIMAL"
	case effort == "minimal", effort == "low":
		return "LOW"
	case effort == "medium":
		return "MEDIUM"
	default:
		return "HIGH"
	}
}
