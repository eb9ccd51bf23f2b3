package openai

import (
	"github.com/evalfleet/evalfleet/pkg/chat"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// Words for the choices among tools that name none.
const (
	choiceAuto = "auto"
	choiceNone = "none"
	// ChoiceRequired is the word for any tool.
	ChoiceRequired = "required"
)

// ChoiceWord is the word for a choice among tools that names none.
func ChoiceWord(mode toolv1.ToolChoiceMode) string {
	switch mode {
	case toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_ANY:
		return ChoiceRequired
	case toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_NONE:
		return choiceNone
	default:
		return choiceAuto
	}
}

// ChoiceOf is the choice that a word stands for; ok is false for any other word.
func ChoiceOf(word string) (choice *toolv1.ToolChoice, ok bool) {
	switch word {
	case choiceAuto:
		return chat.ModeChoice(toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_AUTO), true
	case choiceNone:
		return chat.ModeChoice(toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_NONE), true
	case ChoiceRequired:
		return chat.ModeChoice(toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_ANY), true
	default:
		return nil, false
	}
}
