package chat

import (
	"strings"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// MessageOutput returns an output whose one choice is message. It sets the message's model and source if they are
// unset.
func MessageOutput(model string, message *modelv1.ChatMessage, reason modelv1.StopReason) *modelv1.ModelOutput {
	if message.GetModel() == "" {
		message.Model = model
	}
	if message.GetSource() == modelv1.MessageSource_MESSAGE_SOURCE_UNSPECIFIED {
		message.Source = modelv1.MessageSource_MESSAGE_SOURCE_GENERATE
	}
	output := &modelv1.ModelOutput{Model: model, Choices: []*modelv1.Choice{{Message: message, StopReason: reason}}}
	CompleteOutput(output)
	return output
}

// CompleteOutput sets an empty completion from the first choice.
func CompleteOutput(output *modelv1.ModelOutput) {
	if output.GetCompletion() == "" {
		output.Completion = Completion(output)
	}
}

// Completion returns the completion of an output; if that is empty, the text of its first choice.
func Completion(output *modelv1.ModelOutput) string {
	if output.GetCompletion() != "" || len(output.GetChoices()) == 0 {
		return output.GetCompletion()
	}
	return Text(output.GetChoices()[0].GetMessage())
}

// FirstMessage returns the message of the first choice, or nil when the output is empty.
func FirstMessage(output *modelv1.ModelOutput) *modelv1.ChatMessage {
	if len(output.GetChoices()) == 0 {
		return nil
	}
	return output.GetChoices()[0].GetMessage()
}

// StopReason returns why the first choice stopped; unset when the output is empty.
func StopReason(output *modelv1.ModelOutput) modelv1.StopReason {
	if len(output.GetChoices()) == 0 {
		return modelv1.StopReason_STOP_REASON_UNSPECIFIED
	}
	return output.GetChoices()[0].GetStopReason()
}

// Overflow returns a provider's message that a conversation is too long, which is also an output: one that ended for a
// full context before any usage. ok is false for all others.
func Overflow(output *modelv1.ModelOutput) (said string, ok bool) {
	if StopReason(output) != modelv1.StopReason_STOP_REASON_MODEL_LENGTH || output.GetUsage() != nil {
		return "", false
	}
	return Completion(output), true
}

// NewStopDetails returns details of a stop, or nil when they hold neither a category list nor an explanation. The
// category defaults to the first of the list, and the explanation to one that names them all.
func NewStopDetails(kind, category, explanation string, categories ...*modelv1.StopCategory) *modelv1.StopDetails {
	if len(categories) == 0 && explanation == "" {
		return nil
	}
	if category == "" && len(categories) > 0 {
		category = categories[0].GetCategory()
	}
	if explanation == "" {
		var listed []string
		for _, c := range categories {
			text := c.GetCategory()
			if c.GetLevel() != "" {
				text += " (" + c.GetLevel() + ")"
			}
			listed = append(listed, text)
		}
		explanation = "filtered for: " + strings.Join(listed, ", ")
	}
	return &modelv1.StopDetails{Type: kind, Category: category, Explanation: explanation, Categories: categories}
}
