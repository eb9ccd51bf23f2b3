package openaicompat

import (
	"regexp"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/chatapi"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/responsesapi"
)

const (
	choiceAuto = toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_AUTO
	choiceAny  = toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_ANY

	effortNone = "none"

	notForced = "the model is not forced to call a tool: the service does not allow it while the model thinks; "
)

// isForced reports whether a choice forces the model to call a tool.
func isForced(choice *toolv1.ToolChoice) bool {
	return choice.GetFunction() != "" || choice.GetMode() == choiceAny
}

// adapterName is the name of the adapter of `model:adapter`, which a server knows by its own name.
func adapterName(name string) (string, error) {
	if _, adapter, ok := strings.Cut(name, ":"); ok && adapter != "" {
		return adapter, nil
	}
	return name, nil
}

// bareName is a name without the organization before it.
func bareName(name string) (string, error) {
	if _, bare, ok := strings.Cut(name, "/"); ok && bare != "" {
		return bare, nil
	}
	return name, nil
}

// adaptDeepSeek says in DeepSeek's terms that the model is not to think, and asks for JSON without its schema. Models
// that think cannot be forced to call a tool.
func adaptDeepSeek(r *dialect.Request) (warnings []string) {
	thinks := !thinkingDisabled(r.Config)
	if r.Config.GetReasoningEffort() == effortNone {
		thinks = false
		r.Config.ReasoningEffort = nil
		r.Members = append(r.Members, dialect.Member{Name: "thinking", JSON: `{"type":"disabled"}`})
	}
	if thinks && isForced(r.Choice) && len(r.Tools) > 0 {
		r.Choice = chat.ModeChoice(choiceAuto)
		warnings = append(warnings, notForced+"reasoning_effort none switches thinking off")
	}
	if schema := r.Config.GetResponseSchema(); schema != nil && !dialect.IsAnyJSON(schema) {
		r.Config.ResponseSchema = dialect.AnyJSON()
		warnings = append(warnings, "the answer is to be JSON, of any schema: DeepSeek takes none; describe it in the prompt")
	}
	return warnings
}

var (
	kimi   = regexp.MustCompile(`^(?i:kimi)`)
	kimiK3 = regexp.MustCompile(`^(?i:kimi-k3)`)
)

// adaptMoonshot weakens choices that Kimi models refuse while they think: K3 cannot be forced to call one tool, and the
// others cannot be forced to call any.
func adaptMoonshot(r *dialect.Request) []string {
	if !kimi.MatchString(r.Model) || thinkingDisabled(r.Config) || !isForced(r.Choice) || len(r.Tools) == 0 {
		return nil
	}
	switch isNamed, isK3 := r.Choice.GetFunction() != "", kimiK3.MatchString(r.Model); {
	case isK3 && isNamed:
		r.Choice = chat.ModeChoice(choiceAny)
		return []string{"the model is forced to call some tool, and not the named one: the service does not allow it while the model thinks"}
	case isK3:
		return nil
	default:
		r.Choice = chat.ModeChoice(choiceAuto)
		return []string{notForced + `extra_body {"thinking": {"type": "disabled"}} switches thinking off`}
	}
}

// thinkingDisabled reports whether extra_body switches thinking off, in the form that DeepSeek and Moonshot share.
func thinkingDisabled(c *modelv1.GenerateConfig) bool {
	thinking, _ := responsesapi.ExtraBodyOf(c).Get("thinking")
	object, ok := thinking.(*orderedjson.Object)
	if !ok {
		return false
	}
	kind, _ := object.Get("type")
	return kind == "disabled"
}

// adaptTogether sets the temperature, without which Together refuses several choices.
func adaptTogether(r *dialect.Request) []string {
	if r.Config.NumChoices != nil && r.Config.Temperature == nil {
		r.Config.Temperature = new(1.0)
	}
	return nil
}

// continueFinal asks a server to continue the last message, if it is the assistant's, unless extra_body decides.
func continueFinal(r *dialect.Request) []string {
	members, extra := chatapi.ContinueFinal(r.Messages), responsesapi.ExtraBodyOf(r.Config)
	for _, member := range members {
		if _, decides := extra.Get(member.Name); decides {
			return nil
		}
	}
	r.Members = append(r.Members, members...)
	return nil
}

// adaptMeta leaves the choice among tools to the model: Meta's API takes no other.
func adaptMeta(r *dialect.Request) []string {
	if !isForced(r.Choice) || len(r.Tools) == 0 {
		return nil
	}
	r.Choice = chat.ModeChoice(choiceAuto)
	return []string{"the model is not forced to call a tool: the service does not allow it"}
}
