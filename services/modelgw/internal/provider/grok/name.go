package grok

import (
	"strings"

	"github.com/evalfleet/evalfleet/services/modelgw/internal/xai"
)

// name is a model's name. xAI's models differ in the options that they accept, and only their names identify them. An
// unknown name is assumed to be the newest model.
type name string

func (n name) has(part string) bool { return strings.Contains(string(n), part) }

// isMini reports whether the model is the first one whose reasoning can be controlled.
func (n name) isMini() bool { return n.has("grok-3-mini") }

// isRecent reports whether the model is of the fourth generation, or later.
func (n name) isRecent() bool { return !n.has("grok-2") && !n.has("grok-3") }

// isFirstOfFourth reports whether the model is the original Grok 4, which reasons but refuses an effort:
// https://docs.x.ai/docs/guides/reasoning.
func (n name) isFirstOfFourth() bool {
	return n == "grok-4" || n == "grok-4-latest" || strings.HasPrefix(string(n), "grok-4-0709")
}

// reasons reports whether the model reasons before it answers.
func (n name) reasons() bool { return n.isMini() || n.isRecent() && !n.has("non-reasoning") }

// takesEffort reports whether the model takes an effort.
func (n name) takesEffort() bool { return n.isMini() || n.isRecent() && !n.isFirstOfFourth() }

// leastEffort is the effort with which the model reasons least; empty if that is not known.
func (n name) leastEffort() string {
	if n.isMini() {
		return "low"
	}
	return ""
}

// takesPenalties reports whether the model takes stop sequences, and penalties for repetition: those that reason do
// not.
func (n name) takesPenalties() bool { return n.has("grok-2") }

// searches reports whether the model may be offered the server's search of the web.
func (n name) searches() bool { return n.isRecent() }

// efforts are the efforts of reasoning by their names; `none` has no counterpart.
var efforts = map[string]xai.ReasoningEffort{
	"minimal": xai.ReasoningEffort_EFFORT_LOW,
	"low":     xai.ReasoningEffort_EFFORT_LOW,
	"medium":  xai.ReasoningEffort_EFFORT_MEDIUM,
	"high":    xai.ReasoningEffort_EFFORT_HIGH,
	"xhigh":   xai.ReasoningEffort_EFFORT_XHIGH,
	"max":     xai.ReasoningEffort_EFFORT_XHIGH,
}

// effort is what an effort is sent as; nil if it is not sent.
func (n name) effort(asked string) *xai.ReasoningEffort {
	effort, known := efforts[asked]
	switch {
	case !known || !n.takesEffort():
		return nil
	case effort == xai.ReasoningEffort_EFFORT_XHIGH && n.isMini():
		return xai.ReasoningEffort_EFFORT_HIGH.Enum() // the greatest that it has
	default:
		return effort.Enum()
	}
}
