package openaicompat

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/openaichat"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
)

// openRouter routes requests to the services of others, so that the name of a model decides more than elsewhere.
// https://openrouter.ai/docs/api-reference/overview
var openRouter = Service{
	Name: "openrouter", Description: "OpenRouter", Address: "https://openrouter.ai/api/v1",
	MergeSystem: true, // Some services behind it take one message of the system.
	Models: []Models{
		{Named: regexp.MustCompile(`^anthropic/claude-(2|instant|3-sonnet)`), Efforts: openRouterEfforts, Replay: replayDetails},
		{Named: regexp.MustCompile(`^anthropic/`), Efforts: openRouterEfforts, Replay: replayDetails, Marks: true},
		{Named: regexp.MustCompile(`^deepseek/deepseek-v4`), Efforts: openRouterEfforts, Replay: replayContent},
		{Efforts: openRouterEfforts, Replay: replayDetails},
	},
	ReasoningObject: true, ReasoningTokens: true, Arguments: openRouterArguments,
	ConversationHeader: "x-session-id", // https://openrouter.ai/docs/guides/best-practices/prompt-caching
	RetryMalformed:     true,           // Its answers are cut at times, and have no choices while a model starts.
	Full:               map[int][]string{http.StatusBadRequest: {"input length"}},
}

// openRouterEfforts are the words that OpenRouter has other ones for.
var openRouterEfforts = map[string]string{"max": "xhigh"}

// openRouterArguments takes the arguments of OpenRouter out of a model's, and returns the members of requests for them.
func openRouterArguments(all *orderedjson.Object) ([]dialect.Member, error) {
	var members []dialect.Member
	for _, argument := range []struct {
		name, member, kind string
		is                 func(any) bool
	}{
		{"models", "models", "a list of texts", isTexts},
		{"provider", "provider", "an object", func(v any) bool { _, ok := v.(*orderedjson.Object); return ok }},
		{"transforms", "transforms", "a list of texts", isTexts},
		{"reasoning_enabled", reasoningEnabled, "true or false", func(v any) bool { _, ok := v.(bool); return ok }},
	} {
		value, given := all.Get(argument.name)
		all.Delete(argument.name)
		switch {
		case !given || value == nil:
		case !argument.is(value):
			return nil, fmt.Errorf("%s must be %s", argument.name, argument.kind)
		default:
			members = append(members, dialect.Member{Name: argument.member, JSON: string(orderedjson.Append(nil, value))})
		}
	}
	return members, nil
}

func isTexts(value any) bool {
	list, ok := value.([]any)
	for _, v := range list {
		if _, text := v.(string); !text {
			return false
		}
	}
	return ok
}

// replayDetails sends reasoning back as the details that OpenRouter sent. Of other reasoning what can be read is a
// text: a seal or a signature means nothing to another vendor's model, and some models repeat it.
func replayDetails(part *contentv1.Content) (string, []dialect.Member) {
	if list, ok := openaichat.Details(part); ok {
		if kept, err := verifiable(list); err == nil {
			return "", []dialect.Member{{Name: "reasoning_details", JSON: kept}}
		}
	}
	r := part.GetReasoning()
	readable := r.GetReasoning()
	if r.GetRedacted() {
		readable = r.GetSummary()
	}
	if strings.TrimSpace(readable) == "" {
		return "", nil
	}
	return "<think>\n" + readable + "\n</think>", nil
}

// replayContent sends reasoning back in a member of its own, beside its details, if it has some.
func replayContent(part *contentv1.Content) (string, []dialect.Member) {
	content := dialect.TextMember("reasoning_content", part.GetReasoning().GetReasoning())
	if _, ok := openaichat.Details(part); ok {
		_, members := replayDetails(part)
		return "", append(members, content)
	}
	return "", []dialect.Member{content}
}

// signedFormats are the formats of details whose texts are refused without their signature.
var signedFormats = map[string]bool{"anthropic-claude-v1": true, "google-gemini-v1": true}

// verifiable returns a list of details without the texts that the vendor cannot verify. A detail without a format has
// Anthropic's.
func verifiable(list string) (string, error) {
	decoded, err := orderedjson.Decode([]byte(list))
	details, ok := decoded.([]any)
	if err != nil || !ok {
		return "", errors.New("the details of reasoning are no list")
	}
	kept := []any{}
	for _, d := range details {
		detail, _ := d.(*orderedjson.Object)
		member := func(name string) string {
			if detail == nil {
				return ""
			}
			value, _ := detail.Get(name)
			text, _ := value.(string)
			return text
		}
		if member("type") == "reasoning.text" && member("signature") == "" && signedFormats[cmp.Or(member("format"), "anthropic-claude-v1")] {
			continue
		}
		kept = append(kept, d)
	}
	return string(orderedjson.Append(nil, kept)), nil
}
