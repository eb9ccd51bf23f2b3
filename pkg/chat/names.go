package chat

import (
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// The names of enum values in the JSON form.
var (
	roleNames = names[modelv1.Role]{
		modelv1.Role_ROLE_SYSTEM:    "system",
		modelv1.Role_ROLE_USER:      "user",
		modelv1.Role_ROLE_ASSISTANT: "assistant",
		modelv1.Role_ROLE_TOOL:      "tool",
	}
	sourceNames = names[modelv1.MessageSource]{
		modelv1.MessageSource_MESSAGE_SOURCE_INPUT:    "input",
		modelv1.MessageSource_MESSAGE_SOURCE_GENERATE: "generate",
		modelv1.MessageSource_MESSAGE_SOURCE_OPERATOR: "operator",
	}
	stopReasonNames = names[modelv1.StopReason]{
		modelv1.StopReason_STOP_REASON_STOP:           "stop",
		modelv1.StopReason_STOP_REASON_MAX_TOKENS:     "max_tokens",
		modelv1.StopReason_STOP_REASON_MODEL_LENGTH:   "model_length",
		modelv1.StopReason_STOP_REASON_TOOL_CALLS:     "tool_calls",
		modelv1.StopReason_STOP_REASON_CONTENT_FILTER: "content_filter",
		modelv1.StopReason_STOP_REASON_UNKNOWN:        "unknown",
	}
	toolErrorNames = names[toolv1.ToolErrorType]{
		toolv1.ToolErrorType_TOOL_ERROR_TYPE_PARSING:             "parsing",
		toolv1.ToolErrorType_TOOL_ERROR_TYPE_TIMEOUT:             "timeout",
		toolv1.ToolErrorType_TOOL_ERROR_TYPE_UNICODE_DECODE:      "unicode_decode",
		toolv1.ToolErrorType_TOOL_ERROR_TYPE_PERMISSION:          "permission",
		toolv1.ToolErrorType_TOOL_ERROR_TYPE_FILE_NOT_FOUND:      "file_not_found",
		toolv1.ToolErrorType_TOOL_ERROR_TYPE_IS_A_DIRECTORY:      "is_a_directory",
		toolv1.ToolErrorType_TOOL_ERROR_TYPE_LIMIT:               "limit",
		toolv1.ToolErrorType_TOOL_ERROR_TYPE_APPROVAL:            "approval",
		toolv1.ToolErrorType_TOOL_ERROR_TYPE_CANCELLED:           "cancelled",
		toolv1.ToolErrorType_TOOL_ERROR_TYPE_SANDBOX_UNAVAILABLE: "sandbox_unavailable",
		toolv1.ToolErrorType_TOOL_ERROR_TYPE_UNKNOWN:             "unknown",
		toolv1.ToolErrorType_TOOL_ERROR_TYPE_OUTPUT_LIMIT:        "output_limit",
	}
	callTypeNames = names[toolv1.ToolCallType]{
		toolv1.ToolCallType_TOOL_CALL_TYPE_FUNCTION: "function",
		toolv1.ToolCallType_TOOL_CALL_TYPE_CUSTOM:   "custom",
	}
	choiceModeNames = names[toolv1.ToolChoiceMode]{
		toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_AUTO: "auto",
		toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_ANY:  "any",
		toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_NONE: "none",
	}
	cachePromptNames = names[modelv1.CachePrompt]{
		modelv1.CachePrompt_CACHE_PROMPT_AUTO: `"auto"`,
		modelv1.CachePrompt_CACHE_PROMPT_ON:   "true",
		modelv1.CachePrompt_CACHE_PROMPT_OFF:  "false",
	}
)

// names maps an enum to the words of the JSON form.
type names[E ~int32] map[E]string

// value returns the enum of a word.
func (n names[E]) value(word string) (E, bool) {
	for value, name := range n {
		if name == word {
			return value, true
		}
	}
	return 0, false
}

// RoleName returns the word for a role, such as `user`; empty if the role has none.
func RoleName(role modelv1.Role) string { return roleNames[role] }

// StopReasonName returns the word for a stop reason; `unknown` if it is not set.
func StopReasonName(reason modelv1.StopReason) string {
	if name := stopReasonNames[reason]; name != "" {
		return name
	}
	return "unknown"
}

// ToolErrorName returns the word for the type of a tool's error; `unknown` if it is not set.
func ToolErrorName(t toolv1.ToolErrorType) string {
	if name := toolErrorNames[t]; name != "" {
		return name
	}
	return "unknown"
}

// ToolErrorType reads the word for the type of a tool's error; UNKNOWN for any other word.
func ToolErrorType(word string) toolv1.ToolErrorType {
	if t, ok := toolErrorNames.value(word); ok {
		return t
	}
	return toolv1.ToolErrorType_TOOL_ERROR_TYPE_UNKNOWN
}

// ProviderStopReason reads the stop reason of a provider in the vocabulary that most share.
func ProviderStopReason(word string) modelv1.StopReason {
	switch word {
	case "eos":
		return modelv1.StopReason_STOP_REASON_STOP
	case "length":
		return modelv1.StopReason_STOP_REASON_MAX_TOKENS
	case "function_call":
		return modelv1.StopReason_STOP_REASON_TOOL_CALLS
	}
	if reason, ok := stopReasonNames.value(word); ok {
		return reason
	}
	return modelv1.StopReason_STOP_REASON_UNKNOWN
}
