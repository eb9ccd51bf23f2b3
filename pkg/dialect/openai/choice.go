package openai

import "github.com/evalfleet/evalfleet/pkg/dialect"

// ChoiceRequired is the word for a choice of any tool.
const ChoiceRequired = "required"

// Choices are the words for the choices among tools that name none.
var Choices = dialect.ChoiceWords{Auto: "auto", Any: ChoiceRequired, None: "none"}
