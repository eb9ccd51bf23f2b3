package choice

import (
	"errors"
	"fmt"
	"strings"

	"github.com/evalfleet/evalfleet/services/agentorch/internal/task/template"
)

// The parts of the default prompts. Each of them requests a line that Parse reads.
const (
	askWhole    = "Reply with one line and nothing else, in this form: 'ANSWER: %s' (without quotes), where %s."
	askLastLine = "Reason step by step first. End your reply with one line in this form: 'ANSWER: %s' (without quotes), where %s."
)

// DefaultTemplate is the prompt template of multiple choice. With reasoning the model is asked to think before its last
// line; with multiple it may name several options.
func DefaultTemplate(reasoning, multiple bool) string {
	ask := askWhole
	if reasoning {
		ask = askLastLine
	}
	head, form, meaning := "Pick the right option for the question below.", "$LETTER", "LETTER is one of {letters}"
	if multiple {
		head, form, meaning = "Pick every right option for the question below; more than one may be right.", "$LETTERS", "LETTERS is one or more of {letters}"
	}
	return head + " " + fmt.Sprintf(ask, form, meaning) + "\n\n{question}\n\n{choices}"
}

// CheckTemplate reports a template that lacks `{question}` or `{choices}`.
func CheckTemplate(template string) error {
	if !strings.Contains(template, "{question}") || !strings.Contains(template, "{choices}") {
		return errors.New("a multiple-choice template needs the placeholders {question} and {choices}, and may have {letters}")
	}
	return nil
}

// The placeholders of a template.
const (
	questionName = "question"
	choicesName  = "choices"
	lettersName  = "letters"
)

// TemplateWarning says which placeholders of a template stay in the text; empty if none do. Whose names the template.
func TemplateWarning(whose, text string) string {
	values := template.Map(map[string]string{questionName: "", choicesName: "", lettersName: ""})
	return template.Warning(whose, text, values, []string{questionName, choicesName, lettersName})
}

// Prompt fills a template: `{question}`, `{choices}` with the options one per line, `{letters}` with `A,B,C`. `{{` and
// `}}` are single braces. Inserted text is not expanded again. It fails with REQUEST_TOO_LARGE if the prompt is over
// bound.TemplateBytes.
func (c Choices) Prompt(text, question string) (string, error) {
	return template.NewRoom().Prompt(text, template.Map(map[string]string{
		questionName: question, choicesName: c.List(), lettersName: strings.Join(c.Letters(), ","),
	}))
}
