package dialect

import (
	"github.com/evalfleet/evalfleet/pkg/chat"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// NewOutput returns the output that a decoded answer is. An id that is empty is none.
func NewOutput(id, model string, usage *modelv1.ModelUsage, choices ...*modelv1.Choice) *modelv1.ModelOutput {
	output := &modelv1.ModelOutput{Model: model, Usage: usage, Choices: choices}
	if id != "" {
		output.ResponseId = &id
	}
	chat.CompleteOutput(output)
	return output
}

// CacheApart is the usage of an API that counts cached tokens in the input, in the canonical form, which has them
// apart. Impossible usage is nil.
func CacheApart(u *modelv1.ModelUsage) *modelv1.ModelUsage {
	m := chat.KnownUsage(u)
	if m == nil {
		return nil
	}
	if m.GetTotalTokens() == 0 {
		m.TotalTokens = chat.SumTokens(m.GetInputTokens(), m.GetOutputTokens())
	}
	m.InputTokens = max(0, m.InputTokens-m.GetInputTokensCacheRead()-m.GetInputTokensCacheWrite())
	return m
}

// AnswerParts are the parts of a model's message. An empty text beside calls is none: the model has said nothing.
func AnswerParts(m *modelv1.ChatMessage) []*contentv1.Content {
	if m.GetContent().GetList() == nil && m.GetContent().GetText() == "" && len(m.GetToolCalls()) > 0 {
		return nil
	}
	return chat.Parts(m.GetContent())
}

// Stops are the texts that end an answer; nil is unset.
func Stops(texts []string) *modelv1.StringList {
	if texts == nil {
		return nil
	}
	return &modelv1.StringList{Values: texts}
}
