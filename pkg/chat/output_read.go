package chat

import (
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/lenientjson"
)

// ParseOutput reads an output of present input: missing ids of messages are created, an empty completion is set from
// the first choice.
func ParseOutput(document []byte) (*modelv1.ModelOutput, error) {
	output, err := ParseStoredOutput(document)
	if err == nil {
		for _, choice := range output.GetChoices() {
			ensureID(choice.GetMessage())
		}
	}
	return output, err
}

// ParseStoredOutput reads an output of a record: ids stay as they are.
func ParseStoredOutput(document []byte) (*modelv1.ModelOutput, error) {
	o, err := lenientjson.Parse(document)
	if err != nil {
		return nil, err
	}
	output := &modelv1.ModelOutput{
		Model:              o.Text("model"),
		Completion:         o.Text("completion"),
		Usage:              readUsage(o.Object("usage")),
		InputContextTokens: o.Int64("input_context_tokens"),
		Fallback:           readFallback(o.Object("fallback")),
		Time:               o.Float("time"),
		MetadataJson:       o.RawObject("metadata"),
		Error:              o.String("error"),
		ResponseId:         o.String("response_id"),
	}
	choices, _ := o.Objects("choices")
	for _, choice := range choices {
		output.Choices = append(output.Choices, readChoice(choice))
	}
	if err := o.Err(); err != nil {
		return nil, err
	}
	CompleteOutput(output)
	return output, nil
}

func readChoice(o *lenientjson.Object) *modelv1.Choice {
	choice := &modelv1.Choice{
		StopReason:     modelv1.StopReason_STOP_REASON_UNKNOWN,
		StopDetails:    readStopDetails(o.Object("stop_details")),
		Logprobs:       readLogprobs(o.Object("logprobs")),
		PromptLogprobs: readLogprobs(o.Object("prompt_logprobs")),
	}
	if word := o.String("stop_reason"); word != nil {
		if *word == "length" { // older records
			*word = "max_tokens"
		}
		var ok bool
		if choice.StopReason, ok = stopReasonNames.value(*word); !ok {
			o.Fail("stop_reason", "is no stop reason: %q", *word)
		}
	}
	o.Require("message")
	if m := o.Object("message"); m != nil {
		choice.Message = readMessage(m)
		if m.Has("role") && choice.Message.GetRole() != modelv1.Role_ROLE_ASSISTANT {
			m.Fail("role", "must be assistant")
		}
		choice.Message.Role = modelv1.Role_ROLE_ASSISTANT
	}
	return choice
}

func readStopDetails(o *lenientjson.Object) *modelv1.StopDetails {
	if o == nil {
		return nil
	}
	details := &modelv1.StopDetails{Type: o.Text("type"), Category: o.Text("category"), Explanation: o.Text("explanation")}
	categories, _ := o.Objects("categories")
	for _, c := range categories {
		details.Categories = append(details.Categories, &modelv1.StopCategory{Category: c.RequireText("category"), Level: c.Text("level")})
	}
	return details
}

func readLogprobs(o *lenientjson.Object) *modelv1.Logprobs {
	if o == nil {
		return nil
	}
	o.Require("content")
	tokens, _ := o.Objects("content")
	logprobs := &modelv1.Logprobs{}
	for _, token := range tokens {
		entry := &modelv1.Logprob{Token: token.RequireText("token"), Logprob: requireFloat(token, "logprob"), Bytes: readBytes(token)}
		alternatives, _ := token.Objects("top_logprobs")
		for _, a := range alternatives {
			entry.TopLogprobs = append(entry.TopLogprobs, &modelv1.TopLogprob{
				Token: a.RequireText("token"), Logprob: requireFloat(a, "logprob"), Bytes: readBytes(a),
			})
		}
		logprobs.Content = append(logprobs.Content, entry)
	}
	return logprobs
}

func readBytes(o *lenientjson.Object) []int32 {
	items, _ := o.List("bytes")
	values := make([]int32, len(items))
	for i, item := range items {
		n, ok := lenientjson.AsInt(item)
		if !ok || n < 0 || n > 255 {
			o.Fail("bytes", "item %d must be a byte", i)
			return nil
		}
		values[i] = int32(n)
	}
	return values
}

func requireFloat(o *lenientjson.Object, name string) float64 {
	o.Require(name)
	if f := o.Float(name); f != nil {
		return *f
	}
	return 0
}

func readUsage(o *lenientjson.Object) *modelv1.ModelUsage {
	if o == nil {
		return nil
	}
	return KnownUsage(&modelv1.ModelUsage{
		InputTokens:           orZero(o.Int64("input_tokens")),
		OutputTokens:          orZero(o.Int64("output_tokens")),
		TotalTokens:           orZero(o.Int64("total_tokens")),
		InputTokensCacheWrite: o.Int64("input_tokens_cache_write"),
		InputTokensCacheRead:  o.Int64("input_tokens_cache_read"),
		ReasoningTokens:       o.Int64("reasoning_tokens"),
		TotalCost:             o.Float("total_cost"),
	})
}

func readFallback(o *lenientjson.Object) *modelv1.ModelFallback {
	if o == nil {
		return nil
	}
	fallback := &modelv1.ModelFallback{
		Model: o.RequireText("model"), FallbackModel: o.RequireText("fallback_model"), Count: 1, MetadataJson: o.RawObject("metadata"),
	}
	if count := o.Int32("count"); count != nil {
		fallback.Count = *count
	}
	return fallback
}

func orZero[T int64 | float64](n *T) T {
	if n == nil {
		return 0
	}
	return *n
}
