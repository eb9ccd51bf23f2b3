package transcript

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/scorewire"
)

// rawJSON is JSON text as it is; nil if it is empty, and a string if it is not JSON.
func rawJSON(text string) json.RawMessage {
	switch {
	case text == "":
		return nil
	case !json.Valid([]byte(text)):
		return jsonwrite.Marshal(text)
	}
	return json.RawMessage(text)
}

// exchangeJSON is an exchange with a provider; nil if there is none.
func exchangeJSON(c *modelv1.ModelCall) json.RawMessage {
	if c == nil {
		return nil
	}
	return jsonwrite.Marshal(map[string]any{
		"request": rawJSON(c.GetRequestJson()), "response": rawJSON(c.GetResponseJson()), "error": c.GetError(), "time": c.Time,
	})
}

// pointer escapes a key for a JSON pointer (RFC 6901).
func pointer(key string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(key) }

// shell quotes a command for a shell, for people.
func shell(argv []string) string {
	quoted := make([]string, len(argv))
	for i, word := range argv {
		if word == "" || strings.ContainsAny(word, " \t\n'\"\\$`&|;<>()*?[]{}~#!") {
			word = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
		quoted[i] = word
	}
	return strings.Join(quoted, " ")
}

func contentJSON(c *contentv1.MessageContent) json.RawMessage {
	if c.GetList() == nil {
		return jsonwrite.Marshal(c.GetText())
	}
	var message struct {
		Content json.RawMessage `json:"content"`
	}
	_ = json.Unmarshal(chat.MessageJSON(&modelv1.ChatMessage{Role: modelv1.Role_ROLE_USER, Content: c}), &message) // we have just written it
	return message.Content
}

func callJSON(c *toolv1.ToolCall) json.RawMessage {
	if c == nil {
		return nil
	}
	arguments := rawJSON(c.GetArgumentsJson())
	if arguments == nil {
		arguments = json.RawMessage(`{}`)
	}
	return jsonwrite.Marshal(map[string]any{"id": c.GetId(), "function": c.GetFunction(), "arguments": arguments, "type": "function"})
}

// viewJSON is a tool's view of its call, or what its provider says of it; nil if there is neither.
func viewJSON(v *toolv1.ToolCallView) json.RawMessage {
	shown := cmp.Or(v.GetCall(), v.GetContext())
	if shown == nil {
		return nil
	}
	view := map[string]string{"format": "text", "content": shown.GetContent()}
	if shown.GetFormat() == toolv1.ViewFormat_VIEW_FORMAT_MARKDOWN {
		view["format"] = "markdown"
	}
	if shown.GetTitle() != "" {
		view["title"] = shown.GetTitle()
	}
	return jsonwrite.Marshal(view)
}

func scoreOf(s *agentv1.Score) *score.Score {
	if s == nil {
		return nil
	}
	return new(scorewire.ToScore(s))
}

// targetJSON is a text, or a list if it was given as a list.
func targetJSON(t *agentv1.Target) json.RawMessage {
	if !t.GetList() && len(t.GetValues()) == 1 {
		return jsonwrite.Marshal(t.GetValues()[0])
	}
	return jsonwrite.Marshal(append([]string{}, t.GetValues()...))
}

func sampleJSON(spec *agentv1.RunSpec) json.RawMessage {
	sample := map[string]any{"input": chat.MessagesJSON(spec.GetInput()), "target": targetJSON(spec.GetTarget()), "id": spec.GetAttribution().GetSample()}
	if len(spec.GetChoices()) > 0 {
		sample["choices"] = spec.GetChoices()
	}
	if metadata := rawJSON(spec.GetMetadataJson()); metadata != nil {
		sample["metadata"] = metadata
	}
	return jsonwrite.Marshal(sample)
}

func stateJSON(messages []*modelv1.ChatMessage, spec *agentv1.RunSpec) json.RawMessage {
	store := map[string]json.RawMessage{}
	for key, value := range spec.GetStore() {
		store[key] = rawJSON(value)
	}
	return jsonwrite.Marshal(map[string]any{"messages": chat.MessagesJSON(messages), "store": store, "model": spec.GetModel().GetModel()})
}
