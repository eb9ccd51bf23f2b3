package dialect

import (
	"slices"

	"github.com/evalfleet/evalfleet/pkg/chat"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// Chosen is the choice of a function by its name. One that is not among the tools on offer leaves the choice to the
// model.
func Chosen(name string, tools []*toolv1.ToolInfo) *toolv1.ToolChoice {
	if len(tools) > 0 && !slices.ContainsFunc(tools, func(t *toolv1.ToolInfo) bool { return t.GetName() == name }) {
		return chat.ModeChoice(toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_AUTO)
	}
	return chat.FunctionChoice(name)
}

// ChoiceWords are the words of a format for the choices among tools that name none.
type ChoiceWords struct{ Auto, Any, None string }

// Word returns the word for a choice; without a mode it is Auto.
func (w ChoiceWords) Word(choice *toolv1.ToolChoice) string {
	switch choice.GetMode() {
	case toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_ANY:
		return w.Any
	case toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_NONE:
		return w.None
	default:
		return w.Auto
	}
}

// Choice returns the choice that a word means; ok is false for any other word.
func (w ChoiceWords) Choice(word string) (choice *toolv1.ToolChoice, ok bool) {
	switch word {
	case w.Auto:
		return chat.ModeChoice(toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_AUTO), true
	case w.Any:
		return chat.ModeChoice(toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_ANY), true
	case w.None:
		return chat.ModeChoice(toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_NONE), true
	default:
		return nil, false
	}
}
