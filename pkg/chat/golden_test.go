package chat_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/goldentest"
	"github.com/evalfleet/evalfleet/pkg/goldentest/match"
)

// failure is how a case records that a call failed.
func failure(err error) any {
	return map[string]any{"error": map[string]any{"kind": "invalid", "why": err.Error()}}
}

// result is what a call gave, or its failure.
func result(document json.RawMessage, err error) any {
	if err != nil {
		return failure(err)
	}
	var value any
	decoder := json.NewDecoder(strings.NewReader(string(document)))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return failure(err)
	}
	return value
}

// input returns a part of the case's input as JSON.
func input(t *goldentest.T, c goldentest.Case, names ...string) []byte {
	t.Helper()
	return encoded(t, c.At(append([]string{"input"}, names...)...))
}

func encoded(t *goldentest.T, value any) []byte {
	t.Helper()
	document, err := json.Marshal(value)
	require.NoError(t, err)
	return document
}

// equalOrFailed compares results; of failures only that there is one.
func equalOrFailed(t *goldentest.T, want, got any, opts ...match.Option) {
	t.Helper()
	if isFailure(want) || isFailure(got) {
		require.Equal(t, isFailure(want), isFailure(got), "want %v, got %v", want, got)
		return
	}
	t.Equal(want, got, opts...)
}

func isFailure(value any) bool {
	object, _ := value.(map[string]any)
	_, failed := object["error"].(map[string]any)
	return failed
}

func TestGoldenConfig(t *testing.T) {
	t.Parallel()
	goldentest.Run(t, "config", goldentest.Load(t, "core/generate-config-*.jsonl"), func(t *goldentest.T, c goldentest.Case) {
		switch c.Op() {
		case "parse":
			given, err := chat.ParseConfig(input(t, c))
			equalOrFailed(t, c.At("expect", "new"), result(chat.ConfigJSON(given), err))
			// There is one reader, for what is given and for what was kept.
			equalOrFailed(t, c.At("expect", "stored"), result(chat.ConfigJSON(given), err))
		case "merge":
			var layers []*modelv1.GenerateConfig
			list, _ := c.At("input", "layers").([]any)
			if list == nil {
				list = []any{c.At("input", "base"), c.At("input", "over")}
			}
			for _, layer := range list {
				layers = append(layers, config(t, layer))
			}
			t.Equal(c.At("expect"), result(chat.ConfigJSON(chat.Merge(layers...)), nil))
		case "resolve_config":
			active, _ := c.At("input", "model_is_active").(bool)
			resolved := chat.ResolveConfig(config(t, c.At("input", "model")), config(t, c.At("input", "run")), config(t, c.At("input", "call")), active)
			t.Equal(c.At("expect"), result(chat.ConfigJSON(resolved), nil))
		case "resolve_role_config":
			own := chat.Merge(config(t, c.At("input", "lookup")), config(t, c.At("input", "role")))
			resolved := chat.ResolveConfig(own, config(t, c.At("input", "run")), config(t, c.At("input", "call")), false)
			t.Equal(c.At("expect"), result(chat.ConfigJSON(resolved), nil))
		case "image_output":
			t.Equal(c.At("expect"), imageOutput(config(t, map[string]any{"modalities": c.At("input")})))
		case "batch_config":
			schedule := chat.Batch(config(t, map[string]any{"batch": c.At("input")}))
			if schedule == nil {
				t.Equal(c.At("expect"), nil)
				return
			}
			got := option(&modelv1.GenerateConfig{Batch: schedule}, "batch")
			if size, short := got.(json.Number); short {
				got = map[string]any{"size": size}
			}
			t.Equal(c.At("expect"), got)
		case "adaptive_active":
			bounds, err := chat.Adaptive(config(t, c.At("input")))
			require.NoError(t, err)
			got := map[string]any{"active": bounds != nil, "bounds": nil}
			if bounds != nil {
				got["bounds"] = option(&modelv1.GenerateConfig{AdaptiveConnections: bounds}, "adaptive_connections")
			}
			t.Equal(c.At("expect"), got)
		default:
			t.Skipf("no driver for %q", c.Op())
		}
	})
}

func config(t *goldentest.T, value any) *modelv1.GenerateConfig {
	t.Helper()
	if value == nil {
		return nil
	}
	c, err := chat.ParseConfig(encoded(t, value))
	require.NoError(t, err)
	return c
}

// option returns one option in the JSON form.
func option(c *modelv1.GenerateConfig, name string) any {
	object, _ := result(chat.ConfigJSON(c), nil).(map[string]any)
	return object[name]
}

func imageOutput(c *modelv1.GenerateConfig) any {
	options, wanted := chat.ImageOutput(c)
	if !wanted {
		return nil
	}
	if options == "" {
		return map[string]any{}
	}
	return map[string]any{"options": result(json.RawMessage(options), nil)}
}

func TestGoldenMessages(t *testing.T) {
	t.Parallel()
	cases := goldentest.Load(t, "core/message-*.jsonl")
	goldentest.Run(t, "message", cases, func(t *goldentest.T, c goldentest.Case) {
		switch c.Op() {
		case "parse_message":
			m, err := chat.ParseMessage(input(t, c))
			equalOrFailed(t, c.At("expect"), messageForm(m, err))
		case "parse_stored_message":
			m, err := chat.ParseStoredMessage(input(t, c))
			equalOrFailed(t, c.At("expect"), messageForm(m, err))
		case "set_text":
			m := userSaying(t, c)
			before := chat.Text(m)
			chat.SetText(m, c.At("input", "text").(string))
			written, _ := result(chat.MessageJSON(m), nil).(map[string]any)
			t.Equal(c.At("expect"), map[string]any{"before": before, "content": written["content"]})
		case "get_text":
			t.Equal(c.At("expect"), map[string]any{"text": chat.Text(userSaying(t, c))})
		default:
			t.Skipf("no driver for %q", c.Op())
		}
	})
}

func userSaying(t *goldentest.T, c goldentest.Case) *modelv1.ChatMessage {
	t.Helper()
	m, err := chat.ParseMessage(encoded(t, map[string]any{"role": "user", "content": c.At("input", "content")}))
	require.NoError(t, err)
	return m
}

// optionalFields are the fields that a message of a role may lack, beside its id.
var optionalFields = map[string][]string{
	"system":    {"metadata", "source"},
	"user":      {"metadata", "source", "tool_call_id"},
	"assistant": {"metadata", "model", "source", "tool_calls"},
	"tool":      {"error", "function", "metadata", "source", "tool_call_id"},
}

func messageForm(m *modelv1.ChatMessage, err error) any {
	if err != nil {
		return failure(err)
	}
	lean, _ := result(chat.MessageJSON(m), nil).(map[string]any)
	role := chat.RoleName(m.GetRole())
	absent := []any{}
	for _, field := range slices.Sorted(slices.Values(append([]string{"id"}, optionalFields[role]...))) {
		if _, there := lean[field]; !there {
			absent = append(absent, field)
		}
	}
	return map[string]any{"lean": lean, "null_fields": absent, "text": chat.Text(m), "parsed_as": role}
}

func TestGoldenResponseSchema(t *testing.T) {
	t.Parallel()
	goldentest.Run(t, "response-schema", goldentest.Load(t, "core/response-schema.jsonl"), func(t *goldentest.T, c goldentest.Case) {
		given, err := chat.ParseConfig(encoded(t, map[string]any{"response_schema": c.At("input")}))
		if err != nil {
			equalOrFailed(t, c.At("expect"), failure(err))
			return
		}
		equalOrFailed(t, c.At("expect"), option(given, "response_schema"))
	})
}

func TestGoldenOutput(t *testing.T) {
	t.Parallel()
	goldentest.Run(t, "output", goldentest.Load(t, "core/model-output.jsonl"), func(t *goldentest.T, c goldentest.Case) {
		switch c.Op() {
		case "as_stop_reason":
			word, _ := c.At("input").(string)
			t.Equal(c.At("expect"), chat.StopReasonName(chat.ProviderStopReason(word)))
		case "parse_output":
			output, err := chat.ParseOutput(input(t, c))
			// The protocol does not distinguish an empty list of alternatives from none.
			equalOrFailed(t, c.At("expect"), outputForm(output, err), match.EmptyAsAbsent("top_logprobs"))
		case "stop_details":
			t.Equal(c.At("expect"), stopDetails(t, c))
		case "output_input_context_tokens":
			output, err := chat.ParseOutput(input(t, c))
			require.NoError(t, err)
			if tokens, known := chat.ContextTokens(output); known {
				t.Equal(c.At("expect"), tokens)
			} else {
				t.Equal(c.At("expect"), nil)
			}
		default:
			t.Skipf("no driver for %q", c.Op())
		}
	})
}

func outputForm(output *modelv1.ModelOutput, err error) any {
	if err != nil {
		return failure(err)
	}
	form := map[string]any{
		"completion": output.GetCompletion(), "empty": chat.FirstMessage(output) == nil, "stop_reason": nil,
		"json": result(chat.OutputJSON(output), nil),
	}
	if len(output.GetChoices()) > 0 {
		form["stop_reason"] = chat.StopReasonName(chat.StopReason(output))
	}
	return form
}

func stopDetails(t *goldentest.T, c goldentest.Case) any {
	given, ok := c.At("input").(map[string]any)
	if !ok {
		return nil // an extractor that failed gives none
	}
	output, err := chat.ParseOutput(encoded(t, map[string]any{"choices": []any{map[string]any{
		"message": map[string]any{"content": ""}, "stop_details": given,
	}}}))
	require.NoError(t, err)
	choice := output.GetChoices()[0]
	details := choice.GetStopDetails()
	choice.StopDetails = chat.NewStopDetails(details.GetType(), details.GetCategory(), details.GetExplanation(), details.GetCategories()...)
	written, _ := result(chat.OutputJSON(output), nil).(map[string]any)
	choices, _ := written["choices"].([]any)
	return choices[0].(map[string]any)["stop_details"]
}

func TestGoldenUsage(t *testing.T) {
	t.Parallel()
	cases := goldentest.Load(t, "core/usage-*.jsonl", "core/cost.jsonl")
	// How prices are read is the model gateway's.
	cases = slices.DeleteFunc(cases, func(c goldentest.Case) bool { return c.Op() == "parse_prices" })
	goldentest.Run(t, "usage", cases, func(t *goldentest.T, c goldentest.Case) {
		switch c.Op() {
		case "usage_add":
			t.Equal(c.At("expect"), usageForm(chat.AddUsage(usage(t, c.At("input", "a")), usage(t, c.At("input", "b")))))
		case "usage_sum":
			var sum *modelv1.ModelUsage
			list, _ := c.At("input").([]any)
			for _, item := range list {
				sum = chat.AddUsage(sum, usage(t, item))
			}
			t.Equal(c.At("expect"), usageForm(sum))
		case "usage_input_tokens":
			if u := usage(t, c.At("input")); u != nil {
				t.Equal(c.At("expect"), chat.InputTokens(u))
			} else {
				t.Equal(c.At("expect"), nil)
			}
		case "usage_totals":
			usageTotals(t, c)
		case "compute_cost":
			prices := pricesOf(t, c.At("input", "prices_per_million"))
			t.Equal(c.At("expect"), chat.Cost(prices, usage(t, c.At("input", "usage")), c.At("input", "cache_ttl") == "1h"))
		default:
			t.Skipf("no driver for %q", c.Op())
		}
	})
}

func usage(t *goldentest.T, value any) *modelv1.ModelUsage {
	t.Helper()
	if value == nil {
		return nil
	}
	u, err := chat.ParseUsage(encoded(t, value))
	require.NoError(t, err)
	return u
}

func usageForm(u *modelv1.ModelUsage) any {
	if u == nil {
		return nil
	}
	return result(chat.UsageJSON(u), nil)
}

// pricesOf reads recorded prices, whose members have the names of the protocol's.
func pricesOf(t *goldentest.T, recorded any) *modelv1.Prices {
	t.Helper()
	prices := &modelv1.Prices{}
	require.NoError(t, protojson.Unmarshal(encoded(t, recorded), prices))
	return prices
}

// usageTotals sums scripted calls by model and by role, with costs where prices are known.
func usageTotals(t *goldentest.T, c goldentest.Case) {
	t.Helper()
	models, roles := map[string]*modelv1.ModelUsage{}, map[string]*modelv1.ModelUsage{}
	var total *modelv1.ModelUsage
	calls := []any{}
	list, _ := c.At("input", "calls").([]any)
	for _, item := range list {
		call, _ := item.(map[string]any)
		u, model := usage(t, call["usage"]), call["model"].(string)
		if prices := c.At("input", "prices", model); prices != nil {
			u.TotalCost = new(chat.Cost(pricesOf(t, prices), u, false))
		}
		calls = append(calls, usageForm(u))
		models["mockllm/"+model] = chat.AddUsage(models["mockllm/"+model], u)
		if role, ok := call["role"].(string); ok {
			roles[role] = chat.AddUsage(roles[role], u)
		}
		total = chat.AddUsage(total, u)
	}
	t.Equal(c.At("expect"), map[string]any{
		"calls": calls, "model_usage": usageForms(models), "role_usage": usageForms(roles),
		"total_tokens": total.GetTotalTokens(), "total_cost": total.GetTotalCost(),
	})
}

func usageForms(usages map[string]*modelv1.ModelUsage) map[string]any {
	forms := map[string]any{}
	for name, u := range usages {
		forms[name] = usageForm(u)
	}
	return forms
}
