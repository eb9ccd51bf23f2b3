package endpoint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/chat/chattest"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/goldentest"
	"github.com/evalfleet/evalfleet/pkg/goldentest/match"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/prepare"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// The recorded cases are of the bridge of sandboxed agents, which translates as the endpoints do. What the bridge does
// beyond that (its rules for models, generation parameters that it withholds, remote media that it refuses) is left to
// it.

// formats are those whose cases are replayed, by the names of their dialects in the record.
var formats = map[string]*format{"openai-chat": chatCompletions, "openai-responses": responses, "anthropic": messages, "google": generateContent}

// target is the model that serves all cases.
const target = "target"

func TestGoldenVendorRequests(t *testing.T) {
	t.Parallel()
	for name, format := range formats {
		goldentest.Run(t, name+"-requests", goldentest.Load(t, "bridge/"+name+"-requests.jsonl"), func(t *goldentest.T, c goldentest.Case) {
			if c.Op() != "bridge_request" {
				t.Skipf("no driver for %q", c.Op())
			}
			format.replay(t, c)
			compareAnswer(t, format, c)
		})
	}
}

// A client sends back what it got, and the model sees its own words again.
func TestGoldenVendorReplies(t *testing.T) {
	t.Parallel()
	goldentest.Run(t, "replay", goldentest.Load(t, "bridge/replay.jsonl"), func(t *goldentest.T, c goldentest.Case) {
		format := formats[fmt.Sprint(c.At("input", "dialect"))]
		if format == nil || c.Op() != "bridge_replay" {
			t.Skipf("no driver for %q of %v", c.Op(), c.At("input", "dialect"))
		}
		format.replay(t, c)
	})
}

func TestGoldenVendorOutputs(t *testing.T) {
	t.Parallel()
	for name, format := range formats {
		goldentest.Run(t, name+"-outputs", goldentest.Load(t, "bridge/"+name+"-outputs.jsonl"), func(t *goldentest.T, c goldentest.Case) {
			if c.Op() != "bridge_output" {
				t.Skipf("no driver for %q", c.Op())
			}
			compareAnswer(t, format, c)
		})
	}
}

// Over HTTP, as the bridge's own proxy is asked.
func TestGoldenProxy(t *testing.T) {
	t.Parallel()
	goldentest.Run(t, "proxy-http", goldentest.Load(t, "bridge/proxy-http.jsonl"), func(t *goldentest.T, c goldentest.Case) {
		if c.Op() != "proxy" {
			t.Skipf("no driver for %q", c.Op())
		}
		answer := newBridged(t, c).ask(t, c)
		assert.Equal(t, fmt.Sprint(c.At("expect", "status")), fmt.Sprint(answer.Code), answer.Body.String())
		kind, _, err := mime.ParseMediaType(answer.Header().Get("Content-Type"))
		require.NoError(t, err)
		want, _, err := mime.ParseMediaType(fmt.Sprint(c.At("expect", "content_type")))
		require.NoError(t, err)
		assert.Equal(t, want, kind)
		if c.At("expect", "events") != nil {
			t.Equal(plain(folded(t, recordedEvents(t, c))), plain(folded(t, sentEvents(t, answer.Body.Bytes()))))
			return
		}
		got, _ := plain(decoded(t, answer.Body.Bytes())).(map[string]any)
		// Of a member at fault the bridge says nothing but the message, where clients look for its name.
		if failure, failed := got["error"].(map[string]any); failed && c.At("expect", "body", "error", "param") == nil && failure["param"] != nil {
			failure["param"], failure["code"] = nil, nil
		}
		t.Equal(plain(c.At("expect", "body")), any(got))
	})
}

// A name that is a model's own is served by it, and the answer says so.
func TestGoldenModelNames(t *testing.T) {
	t.Parallel()
	goldentest.Run(t, "model-names", goldentest.Load(t, "bridge/model-names.jsonl"), func(t *goldentest.T, c goldentest.Case) {
		format := formats[fmt.Sprint(c.At("input", "dialect"))]
		if format == nil || c.Op() != "bridge_model" {
			t.Skipf("no driver for %q of %v", c.Op(), c.At("input", "dialect"))
		}
		b := newBridged(t, c)
		b.output = chattest.Says("scripted", "hello")
		requested := strings.Replace(fmt.Sprint(c.At("input", "requested")), "mockllm/", bridge+"/", 1)
		answer := b.post(t, format, map[string]any{"model": requested, "max_tokens": 5, "messages": []any{map[string]any{"role": "user", "content": "hi"}}})
		if c.At("expect", "error") != nil {
			assert.GreaterOrEqual(t, answer.Code, http.StatusBadRequest)
			return
		}
		require.Equal(t, http.StatusOK, answer.Code, answer.Body.String())
		said, _ := decoded(t, answer.Body.Bytes()).(map[string]any)
		assert.Equal(t, bridge+"/"+fmt.Sprint(c.At("expect", "response_model")), said["model"])
	})
}

// replay reads the request of a case, and compares what reaches the model.
func (f *format) replay(t *goldentest.T, c goldentest.Case) {
	t.Helper()
	seen, err := f.saw(t, c)
	if refused, _ := c.At("expect", "error").(map[string]any); refused != nil {
		require.Error(t, err)
		return
	}
	require.NoError(t, err)
	want, _ := c.At("expect", "model_saw").(map[string]any)
	messages, _ := want["messages"].([]any)
	for _, m := range messages {
		if message, _ := m.(map[string]any); message["function"] == "" {
			delete(message, "function") // An orphan's tool has no name.
		}
	}
	if f == responses || f == generateContent {
		want, seen = asContent(want).(map[string]any), asContent(seen).(map[string]any)
	}
	t.Equal(want, seen, match.EmptyAsAbsent("*"))
}

// asContent is what reaches the model without what is the same in another form: a text and a list of this text alone,
// data by which a client's own vendor knows a message or a tool again, and that a model made a message.
func asContent(value any) any {
	switch value := value.(type) {
	case map[string]any:
		fixed := map[string]any{}
		for name, member := range value {
			list, _ := member.([]any)
			switch {
			case name == "source", name == "options", name == "internal" && strings.HasPrefix(fmt.Sprint(member), "map[message_"):
			case name == "content" && (member == "" || list != nil && len(list) == 0):
			case name == "content" && len(list) == 1 && isPlainText(asContent(list[0])):
				if text := list[0].(map[string]any)["text"]; text != "" {
					fixed[name] = text
				}
			default:
				fixed[name] = asContent(member)
			}
		}
		return fixed
	case []any:
		fixed := make([]any, len(value))
		for i, item := range value {
			fixed[i] = asContent(item)
		}
		return fixed
	default:
		return value
	}
}

func isPlainText(part any) bool {
	p, _ := part.(map[string]any)
	return p["type"] == "text" && len(p) == 2
}

// compareAnswer writes the scripted output of a case in the client's format.
func compareAnswer(t *goldentest.T, format *format, c goldentest.Case) {
	t.Helper()
	if refused, _ := c.At("expect", "error").(map[string]any); refused != nil && c.At("expect", "response") == nil && c.Op() == "bridge_request" {
		return // The request has no answer.
	}
	output, err := chat.ParseOutput(written(t, c, "output"))
	require.NoError(t, err)
	want, _ := c.At("expect", "response").(map[string]any)
	asked, _ := format.ParseRequest(written(t, c, "request")) // A refused request is repeated as none.
	answer, err := format.AppendResponse(nil, output, dialect.ResponseMeta{ID: fmt.Sprint(want["id"]), Model: fmt.Sprint(want["model"]), Created: 1, Request: asked})
	if refused, _ := c.At("expect", "error").(map[string]any); refused != nil {
		require.Error(t, err)
		return
	}
	require.NoError(t, err)
	t.Equal(plain(want), plain(decoded(t, answer)))
}

// withheld are the options that the bridge does not send to the model, unless configured otherwise.
func withheld(c *modelv1.GenerateConfig) *modelv1.GenerateConfig {
	return &modelv1.GenerateConfig{StopSeqs: c.StopSeqs, ResponseSchema: c.ResponseSchema, ParallelToolCalls: c.ParallelToolCalls, Seed: c.Seed, ExtraBodyJson: c.ExtraBodyJson}
}

// saw is what reaches the model, in the recorded form.
func (f *format) saw(t *goldentest.T, c goldentest.Case) (map[string]any, error) {
	t.Helper()
	a, err := f.ParseRequest(written(t, c, "request"))
	if err != nil {
		return nil, err
	}
	if c.At("input", "options", "forward_generation_config") != true {
		a.Config = withheld(a.Config)
	}
	if err := chat.CheckConfig(a.Config); err != nil {
		return nil, err
	}
	for _, m := range a.Messages {
		if (f == chatCompletions || f == responses) && m.GetRole() == modelv1.Role_ROLE_ASSISTANT {
			m.Model = target
		}
	}
	if options := c.At("input", "options"); options != nil && c.At("input", "options", "web_search") != true && c.At("input", "options", "mode") != "in-process" {
		withhold(a)
	}
	all := provider.Hosted{Kinds: []string{provider.WebSearch, provider.CodeExecution, provider.MCPServer}}
	prepared, err := prepare.Prepare(prepare.Conversation{Messages: a.Messages, Tools: a.Tools, Choice: a.Choice, Config: a.Config}, provider.Capabilities{Hosted: all})
	if err != nil {
		return nil, err
	}
	return map[string]any{
		"messages": decoded(t, chat.MessagesJSON(prepared.Messages)), "tools": asRecorded(decoded(t, chat.ToolsJSON(prepared.Tools))),
		"tool_choice": decoded(t, chat.ToolChoiceJSON(prepared.Choice)), "config": decoded(t, chat.ConfigJSON(a.Config)), "calls": 1.0,
	}, nil
}

// asRecorded fills in what the record says of each tool's parameters, where the client leaves it out: the platform
// keeps schemas byte for byte. What the platform keeps of a client's offer is not in the record.
func asRecorded(tools any) any {
	list, _ := tools.([]any)
	for _, tool := range list {
		if options, _ := tool.(map[string]any)["options"].(map[string]any); options != nil {
			delete(options, "hosted")
			if anthropic, _ := options["anthropic"].(map[string]any); anthropic != nil {
				delete(anthropic, "no_fetch")
			}
		}
		parameters, _ := tool.(map[string]any)["parameters"].(map[string]any)
		for member, usual := range map[string]any{"type": "object", "additionalProperties": false, "properties": map[string]any{}, "required": []any{}} {
			if _, there := parameters[member]; !there && parameters != nil {
				parameters[member] = usual
			}
		}
	}
	return tools
}

// plain is an answer without what differs by design in every one: ids and the model, which the endpoints take from the
// request, members about the request and the state of an answer, which the bridge leaves out or repeats, Gemini's
// ratings and the text that its client library adds, the blanks in arguments, counts of caches that are zero, and
// content without a word, which the vendor writes as null. A line break that the record has before the texts of a list
// is a quirk of the bridge.
func plain(value any) any {
	switch value := value.(type) {
	case map[string]any:
		fixed := map[string]any{}
		for name, member := range value {
			text, isText := member.(string)
			switch {
			case name == "model", name == "caller", name == "request_id", name == "id" && (value["object"] != nil || value["type"] != nil || value["args"] != nil):
			case name == "status" && value["code"] == nil, name == "metadata" && value["object"] == "response", name == "tools" && value["object"] == "response":
			case name == "modelVersion", name == "responseId", name == "safetyRatings", name == "text" && value["candidates"] != nil:
			case strings.HasPrefix(name, "cache_") && fmt.Sprint(member) == "0":
			case (name == "arguments" || name == "partial_json") && isText && json.Valid([]byte(text)):
				var arguments bytes.Buffer
				_ = json.Compact(&arguments, []byte(text))
				fixed[name] = arguments.String()
			case name == "content" && isText && strings.TrimPrefix(text, "\n") == "":
			case name == "content" && isText:
				fixed[name] = strings.TrimPrefix(text, "\n")
			case name == "message" && isText && strings.HasSuffix(text, ": upstream said no"):
				fixed[name] = "upstream said no"
			default:
				fixed[name] = plain(member)
			}
		}
		return fixed
	case []any:
		fixed := make([]any, len(value))
		for i, item := range value {
			fixed[i] = plain(item)
		}
		return fixed
	default:
		return value
	}
}

// written is a member of a case's input as it was recorded, its members in their order.
func written(t *goldentest.T, c goldentest.Case, member string) json.RawMessage {
	t.Helper()
	var form struct {
		Input map[string]json.RawMessage `json:"input"`
	}
	require.NoError(t, c.Decode(&form))
	return form.Input[member]
}

func encoded(t *goldentest.T, value any) []byte {
	t.Helper()
	document, err := json.Marshal(value)
	require.NoError(t, err)
	return document
}

func decoded(t *goldentest.T, document []byte) any {
	t.Helper()
	var value any
	require.NoError(t, json.Unmarshal(document, &value))
	return value
}
