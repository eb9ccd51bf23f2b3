package endpoint

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/auth"
	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/goldentest"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/prepare"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// bridged are the endpoints with one provider, whose models a case scripts: `out-…` answer with its output, `err-N`
// fail with the status N, or without one where N is 0.
type bridged struct {
	handler http.Handler
	output  *modelv1.ModelOutput
}

// bridge is the name of the provider.
const bridge = "bridge"

func newBridged(t *goldentest.T, c goldentest.Case) *bridged {
	t.Helper()
	b := &bridged{}
	if c.At("input", "output") != nil {
		output, err := chat.ParseOutput(written(t, c, "output"))
		require.NoError(t, err)
		b.output = output
	}
	registry := &provider.Registry{}
	require.NoError(t, registry.Register(provider.Kind{Name: bridge, Open: func(provider.Spec) (provider.Provider, error) { return silent{}, nil }}))
	cfg := Config{}
	cfg.SetDefaults()
	cfg.WriteTimeout = 0 // What records an answer has no deadlines.
	b.handler = New(cfg, Deps{Auth: anybody{}, Registry: registry, Models: b, Logger: slog.New(slog.DiscardHandler)})
	return b
}

// anybody lets everybody in.
type anybody struct{}

func (anybody) Authenticate(context.Context, string) (auth.Principal, error) {
	return auth.Principal{}, nil
}

// silent is a model that is never asked: what it would say is in the case.
type silent struct{}

func (silent) Capabilities() provider.Capabilities { return provider.Capabilities{} }

func (silent) Generate(context.Context, *provider.Request) (*provider.Response, error) {
	return nil, errors.New("a scripted model is not asked")
}

func (silent) Check(*modelv1.GenerateConfig) error { return nil }

func (silent) Close() error { return nil }

// Answer implements Models.
func (b *bridged) Answer(_ context.Context, r *modelv1.GenerateRequest, _ time.Duration) (*modelv1.GenerateResponse, error) {
	_, name, _ := strings.Cut(r.GetModel(), "/")
	if status, fails := strings.CutPrefix(name, "err-"); fails {
		n, err := strconv.Atoi(status)
		if err != nil || n == 0 {
			return nil, errors.New("translation broke")
		}
		return nil, provider.RPC(&provider.Error{Provider: bridge, Status: n, Class: provider.ClassOf(n), Auth: n == http.StatusUnauthorized, Message: "upstream said no"})
	}
	_, err := prepare.Prepare(prepare.Conversation{Messages: r.GetMessages(), Tools: r.GetTools(), Choice: r.GetToolChoice(), Config: r.GetConfig()}, provider.Capabilities{})
	return &modelv1.GenerateResponse{Output: b.output}, err
}

// Follow implements Models: all of the answer is in its end.
func (b *bridged) Follow(ctx context.Context, r *modelv1.GenerateRequest, maxWait time.Duration, emit func(*modelv1.StreamGenerateResponse) error) error {
	answer, err := b.Answer(ctx, r, maxWait)
	if err != nil {
		return err
	}
	return emit(&modelv1.StreamGenerateResponse{Event: &modelv1.StreamGenerateResponse_Completed{Completed: answer}})
}

// CountTokens implements Models.
func (b *bridged) CountTokens(context.Context, *modelv1.CountTokensRequest) (*modelv1.CountTokensResponse, error) {
	return &modelv1.CountTokensResponse{}, nil
}

// ask sends a request of the record, whose model is named as those of the platform are.
func (b *bridged) ask(t *goldentest.T, c goldentest.Case) *httptest.ResponseRecorder {
	t.Helper()
	sent, raw := c.At("input", "raw").(string)
	if body, ok := c.At("input", "body").(map[string]any); ok && !raw {
		if name, named := body["model"].(string); named {
			body["model"] = bridge + "/" + name
		}
		sent = string(encoded(t, body))
	}
	headers := http.Header{}
	if given, ok := c.At("input", "headers").(map[string]any); ok {
		for name, value := range given {
			headers.Set(name, fmt.Sprint(value))
		}
	}
	path := fmt.Sprint(c.At("input", "path"))
	if prefix, call, ok := strings.Cut(path, "/models/"); ok { // Gemini's format names the model there.
		path = prefix + "/models/" + bridge + "/" + call
	}
	return b.do(t, fmt.Sprint(c.At("input", "method")), path, headers, sent)
}

// post asks for an answer in a format.
func (b *bridged) post(t *goldentest.T, f *format, body any) *httptest.ResponseRecorder {
	t.Helper()
	path := map[*format]string{chatCompletions: "/v1/chat/completions", messages: "/v1/messages"}[f]
	return b.do(t, http.MethodPost, path, nil, string(encoded(t, body)))
}

func (b *bridged) do(t *goldentest.T, method, path string, headers http.Header, body string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	maps.Copy(r.Header, headers)
	answer := httptest.NewRecorder()
	b.handler.ServeHTTP(answer, r)
	return answer
}

// folded is a stream as the one answer that it makes, so that streams are alike which cut it in other places.
func folded(t *goldentest.T, events []event) any {
	t.Helper()
	require.NotEmpty(t, events)
	first, _ := events[0].data.(map[string]any)
	switch {
	case first["candidates"] != nil:
		return foldCandidates(events)
	case events[0].name == "":
		return foldChunks(t, events)
	case first["response"] != nil:
		return foldResponse(t, events)
	default:
		return foldMessage(t, events)
	}
}

// foldResponse makes one answer of the events of the Responses API: the answer of the last one, and the order of all.
func foldResponse(t *goldentest.T, events []event) any {
	t.Helper()
	var order []string
	before := -1.0
	for _, e := range events {
		data, ok := e.data.(map[string]any)
		require.True(t, ok)
		require.Equal(t, e.name, data["type"], "the event's name is the type of its data")
		number, err := strconv.ParseFloat(fmt.Sprint(data["sequence_number"]), 64)
		require.NoError(t, err)
		require.Greater(t, number, before, "the number of an event rises")
		before = number
		if len(order) == 0 || order[len(order)-1] != e.name {
			order = append(order, e.name)
		}
	}
	last, _ := events[len(events)-1].data.(map[string]any)
	return map[string]any{"response": last["response"], "order": order}
}

// foldCandidates makes one answer of the events of Gemini's API: the last one, with the parts of all.
func foldCandidates(events []event) any {
	var parts []any
	for _, e := range events {
		data, _ := e.data.(map[string]any)
		if candidates, _ := data["candidates"].([]any); len(candidates) > 0 {
			content, _ := candidates[0].(map[string]any)["content"].(map[string]any)
			more, _ := content["parts"].([]any)
			parts = append(parts, more...)
			content["parts"] = parts
		}
	}
	return events[len(events)-1].data
}

// event is one event of a stream. Its data is a JSON value, or the text at the end of a stream of chunks.
type event struct {
	name string
	data any
}

func recordedEvents(t *goldentest.T, c goldentest.Case) []event {
	t.Helper()
	list, ok := c.At("expect", "events").([]any)
	require.True(t, ok)
	var events []event
	for _, item := range list {
		e, ok := item.(map[string]any)
		require.True(t, ok)
		name, _ := e["event"].(string)
		events = append(events, event{name, e["data"]})
	}
	return events
}

func sentEvents(t *goldentest.T, body []byte) []event {
	t.Helper()
	var events []event
	for e, err := range dialect.Events(bytes.NewReader(body)) {
		require.NoError(t, err)
		var data any = string(e.Data)
		if json.Valid(e.Data) {
			data = decoded(t, e.Data)
		}
		events = append(events, event{e.Type, data})
	}
	return events
}

// foldChunks makes one answer of chunks of chat completions.
func foldChunks(t *goldentest.T, events []event) any {
	t.Helper()
	require.Equal(t, "[DONE]", events[len(events)-1].data)
	choices, whole := map[string]map[string]any{}, map[string]any{}
	for _, e := range events[:len(events)-1] {
		chunk, ok := e.data.(map[string]any)
		require.True(t, ok)
		require.Equal(t, "chat.completion.chunk", chunk["object"])
		whole["model"], whole["usage"] = chunk["model"], chunk["usage"]
		list, _ := chunk["choices"].([]any)
		for _, item := range list {
			part, _ := item.(map[string]any)
			index := fmt.Sprint(part["index"])
			if choices[index] == nil {
				delta, _ := part["delta"].(map[string]any)
				require.Equal(t, "assistant", delta["role"], "a choice begins with its role")
				choices[index] = map[string]any{}
			}
			fold(choices[index], part["delta"])
			if part["finish_reason"] != nil {
				choices[index]["finish_reason"] = part["finish_reason"]
			}
		}
	}
	all := map[string]any{}
	for index, choice := range choices {
		all[index] = choice
	}
	whole["choices"] = all
	return whole
}

// fold adds a piece: texts grow, calls are distinguished by their index.
func fold(into map[string]any, piece any) {
	delta, _ := piece.(map[string]any)
	for name, value := range delta {
		switch value := value.(type) {
		case string:
			text, _ := into[name].(string)
			if name == "role" || name == "type" || name == "id" {
				text = ""
			}
			into[name] = text + value
		case map[string]any:
			inner, _ := into[name].(map[string]any)
			if inner == nil {
				inner = map[string]any{}
				into[name] = inner
			}
			fold(inner, value)
		case []any:
			inner, _ := into[name].(map[string]any)
			if inner == nil {
				inner = map[string]any{}
				into[name] = inner
			}
			for _, item := range value {
				member, _ := item.(map[string]any)
				fold(inner, map[string]any{fmt.Sprint(member["index"]): item})
			}
		}
	}
}

// foldMessage makes one answer of the events of a message.
func foldMessage(t *goldentest.T, events []event) any {
	t.Helper()
	whole := map[string]any{}
	blocks := []map[string]any{}
	order := []string{}
	for _, e := range events {
		data, ok := e.data.(map[string]any)
		require.True(t, ok)
		require.Equal(t, e.name, data["type"], "the event's name is the type of its data")
		switch e.name {
		case "ping":
			continue
		case "message_start":
			whole["message"] = data["message"]
		case "content_block_start":
			block, _ := data["content_block"].(map[string]any)
			blocks = append(blocks, block)
		case "content_block_delta":
			delta, _ := data["delta"].(map[string]any)
			block := blocks[len(blocks)-1]
			for name, value := range delta {
				if text, isText := value.(string); isText && name != "type" {
					before, _ := block[name].(string)
					block[name] = before + text
				}
			}
		case "message_delta":
			whole["delta"], whole["usage"] = data["delta"], data["usage"]
		case "error":
			whole["error"] = data["error"]
		}
		if len(order) == 0 || order[len(order)-1] != e.name {
			order = append(order, e.name)
		}
	}
	content := make([]any, len(blocks))
	for i, block := range blocks {
		content[i] = block
	}
	whole["content"], whole["order"] = content, order
	return whole
}
