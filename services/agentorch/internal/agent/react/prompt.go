package react

import (
	"cmp"
	"strings"
)

// The default texts. {submit} is the name of the submit tool.
const (
	assistantPrompt = `You are an assistant who works on a task step by step, and your aim is the best answer that you can give. You have several tools for it; the result of a call reaches you right after you make it. Where calls do not depend on each other, make them in one go, side by side. Think before you act: say in a sentence or two what you know, what you need next, and how the calls that you are about to make serve your plan.`

	submitPrompt = `Once the task is done and you are sure of your answer, call {submit}() with it.`

	handoffPrompt = `You are one of several agents that work together. Each agent has instructions and tools of its own, and can hand the conversation over to another by calling a function named transfer_to_<agent_name>. Such transfers are made behind the scenes; do not speak of them.`

	continuePrompt = `Please go on with the next step, as you judge best. If the task is done, call {submit}() with your answer.`

	continueShort = `Please go on with the next step, as you judge best.`

	incorrectMessage = `That submission was not right. Look at the task again and keep trying, until you can submit a better answer.`

	submitDescription = `Submit your final answer to the task.`
	answerDescription = `The answer.`
)

// defaultSubmit is the default name of a submit tool; texts use it even if there is no such tool.
const defaultSubmit = "submit"

// fill puts the submit tool's name in place of {submit}; other braces stay.
func fill(text, submit string) string { return strings.ReplaceAll(text, "{submit}", submit) }

// system joins the parts of the system message.
func (p promptParam) system(submit string, handoffs bool) string {
	var parts []string
	add := func(part *string) {
		if part != nil && *part != "" {
			parts = append(parts, *part)
		}
	}
	add(p.Instructions.Text)
	if handoffs {
		add(p.Handoff.Text)
	}
	if p.Assistant.Text != nil && *p.Assistant.Text != "" { // The submit part is a part of it.
		text := *p.Assistant.Text
		if submit != "" && p.Submit.Text != nil && *p.Submit.Text != "" && !strings.Contains(text, "{submit}") {
			text += "\n" + *p.Submit.Text
		}
		add(new(fill(text, cmp.Or(submit, defaultSubmit))))
	}
	return strings.Join(parts, "\n\n")
}
