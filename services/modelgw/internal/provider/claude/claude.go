// Package claude knows Anthropic's models by their names, wherever they are served. Models differ in the options that
// they accept, and only their names identify them.
package claude

import (
	"regexp"
	"strconv"
	"strings"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

var (
	// newNames are those since Claude 4: family, then version. A date is no minor version.
	newNames = regexp.MustCompile(`claude-(opus|sonnet|haiku|fable|mythos)-(\d)(?:-(\d))?(?:\D|$)`)
	// oldNames are those of Claude 3: version, then family.
	oldNames = regexp.MustCompile(`claude-(3)(?:-(\d))?-(opus|sonnet|haiku)`)
)

// Families.
const (
	Opus   = "opus"
	Sonnet = "sonnet"
	Haiku  = "haiku"
	Fable  = "fable"
	Mythos = "mythos"
)

// Generation is the content of a name: a family, and a version as ten times the major number plus the minor one.
type Generation struct {
	Family  string
	Version int
}

// Frontier is the version of unknown names, which are assumed to be future models.
const Frontier = 1000

// GenerationOf returns the generation of a model by its name, which may have more around it.
func GenerationOf(name string) Generation {
	if m := oldNames.FindStringSubmatch(name); m != nil {
		return Generation{Family: m[3], Version: version(m[1], m[2])}
	}
	if m := newNames.FindStringSubmatch(name); m != nil {
		return Generation{Family: m[1], Version: version(m[2], m[3])}
	}
	if strings.Contains(name, "claude-mythos-preview") {
		return Generation{Family: Mythos, Version: Frontier}
	}
	return Generation{Version: Frontier}
}

func version(major, minor string) int {
	a, _ := strconv.Atoi(major)
	b, _ := strconv.Atoi(minor)
	return 10*a + b
}

// Is reports whether the model is one of a family from a version on and before another.
func (g Generation) Is(family string, from, before int) bool {
	return g.Family == family && g.Version >= from && g.Version < before
}

// Control is the way to control a model's thinking.
type Control int

const (
	// NoThinking models cannot think.
	NoThinking Control = iota
	// ByBudget models think within a number of tokens.
	ByBudget
	// ByEither models think by effort, or within a number of tokens.
	ByEither
	// ByEffort models think according to an effort.
	ByEffort
)

// Control returns the way to control the model's thinking.
func (g Generation) Control() Control {
	switch {
	case g.Version < 37:
		return NoThinking
	case g.Version < 46:
		return ByBudget
	case g.Version < 47:
		return ByEither
	default:
		return ByEffort
	}
}

// RefusesForce reports whether the model cannot be made to call a tool.
func (g Generation) RefusesForce() bool {
	return g.Is(Opus, 55, 60) || g.Is(Sonnet, 55, 60) || g.Is(Mythos, 55, 60) || g.Is(Fable, 51, 60)
}

// Effort is the nearest effort that the model knows.
func (g Generation) Effort(asked string) string {
	switch {
	case asked == "minimal":
		return "low"
	case asked == "max" && g.Version < 46, asked == "xhigh" && g.Version < 47:
		return "high"
	default:
		return asked
	}
}

// Changed are the options of a configuration that the model takes with the nearest efforts that it knows. Within a
// number of tokens it is sent no word for reasoning_effort.
func (g Generation) Changed(c *modelv1.GenerateConfig) []*modelv1.ChangedOption {
	all := provider.Change("effort", c.GetEffort(), g.Effort(c.GetEffort()))
	if control := g.Control(); control == ByEither || control == ByEffort {
		all = append(all, provider.ChangeEffort(c, g.Effort(c.GetReasoningEffort()))...)
	}
	return all
}
