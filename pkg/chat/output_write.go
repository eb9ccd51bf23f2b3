package chat

import (
	"encoding/json"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// OutputJSON writes an output.
func OutputJSON(output *modelv1.ModelOutput) json.RawMessage {
	var w jsonwrite.Writer
	w.BeginObject()
	w.TextMember("model", output.GetModel())
	w.Key("choices")
	w.BeginList()
	for _, choice := range output.GetChoices() {
		writeChoice(&w, choice)
	}
	w.EndList()
	w.TextMember("completion", Completion(output))
	if usage := output.GetUsage(); usage != nil {
		w.Key("usage")
		writeUsage(&w, usage)
	}
	jsonwrite.OptInt(&w, "input_context_tokens", output.InputContextTokens)
	if fallback := output.GetFallback(); fallback != nil {
		w.Key("fallback")
		w.BeginObject()
		w.TextMember("model", fallback.GetModel())
		w.TextMember("fallback_model", fallback.GetFallbackModel())
		w.IntMember("count", int64(fallback.GetCount()))
		w.RawUnlessEmpty("metadata", fallback.GetMetadataJson())
		w.EndObject()
	}
	w.OptFloat("time", output.Time)
	w.RawUnlessEmpty("metadata", output.GetMetadataJson())
	w.OptText("error", output.Error)
	w.OptText("response_id", output.ResponseId)
	w.EndObject()
	return w.Bytes()
}

// UsageJSON writes usage.
func UsageJSON(usage *modelv1.ModelUsage) json.RawMessage {
	var w jsonwrite.Writer
	writeUsage(&w, usage)
	return w.Bytes()
}

func writeUsage(w *jsonwrite.Writer, usage *modelv1.ModelUsage) {
	w.BeginObject()
	w.IntMember("input_tokens", usage.GetInputTokens())
	w.IntMember("output_tokens", usage.GetOutputTokens())
	w.IntMember("total_tokens", usage.GetTotalTokens())
	jsonwrite.OptInt(w, "input_tokens_cache_write", usage.InputTokensCacheWrite)
	jsonwrite.OptInt(w, "input_tokens_cache_read", usage.InputTokensCacheRead)
	jsonwrite.OptInt(w, "reasoning_tokens", usage.ReasoningTokens)
	w.OptFloat("total_cost", usage.TotalCost)
	w.EndObject()
}

func writeChoice(w *jsonwrite.Writer, choice *modelv1.Choice) {
	w.BeginObject()
	w.Key("message")
	writeMessage(w, choice.GetMessage())
	w.TextMember("stop_reason", StopReasonName(choice.GetStopReason()))
	if details := choice.GetStopDetails(); details != nil {
		w.Key("stop_details")
		writeStopDetails(w, details)
	}
	writeLogprobs(w, "logprobs", choice.GetLogprobs())
	writeLogprobs(w, "prompt_logprobs", choice.GetPromptLogprobs())
	w.EndObject()
}

func writeStopDetails(w *jsonwrite.Writer, details *modelv1.StopDetails) {
	w.BeginObject()
	w.TextUnlessEmpty("type", details.GetType())
	w.TextUnlessEmpty("category", details.GetCategory())
	w.TextUnlessEmpty("explanation", details.GetExplanation())
	w.Key("categories")
	w.BeginList()
	for _, c := range details.GetCategories() {
		w.BeginObject()
		w.TextMember("category", c.GetCategory())
		w.TextUnlessEmpty("level", c.GetLevel())
		w.EndObject()
	}
	w.EndList()
	w.EndObject()
}

func writeLogprobs(w *jsonwrite.Writer, name string, logprobs *modelv1.Logprobs) {
	if logprobs == nil {
		return
	}
	w.Key(name)
	w.BeginObject()
	w.Key("content")
	w.BeginList()
	for _, token := range logprobs.GetContent() {
		w.BeginObject()
		writeToken(w, token.GetToken(), token.GetLogprob(), token.GetBytes())
		if alternatives := token.GetTopLogprobs(); len(alternatives) > 0 {
			w.Key("top_logprobs")
			w.BeginList()
			for _, a := range alternatives {
				w.BeginObject()
				writeToken(w, a.GetToken(), a.GetLogprob(), a.GetBytes())
				w.EndObject()
			}
			w.EndList()
		}
		w.EndObject()
	}
	w.EndList()
	w.EndObject()
}

func writeToken(w *jsonwrite.Writer, token string, logprob float64, bytes []int32) {
	w.TextMember("token", token)
	w.Key("logprob")
	w.Float(logprob)
	if len(bytes) > 0 {
		w.Key("bytes")
		w.BeginList()
		for _, b := range bytes {
			w.Int(int64(b))
		}
		w.EndList()
	}
}
