// Package responsesapi is shared by providers whose APIs speak OpenAI's Responses API: where it is, the options that it
// lacks, and a request that stores nothing. Providers express their differences in the request and in the quirks of the
// exchange.
package responsesapi

import (
	"cmp"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/openairesponses"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
)

// Path is where the API is, below a base URL.
const Path = "/responses"

// Options that the API lacks, as in provider.Capabilities: Ignored affect an answer, Dropped how it is made. Some
// models have cache_prompt and reasoning_mode.
var (
	Ignored = []string{"frequency_penalty", "presence_penalty", "logit_bias", "num_choices", "stop_seqs", "top_k"}
	Dropped = []string{
		"best_of", "effort", "fallback_models", "prompt_logprobs", "reasoning_tokens", "seed", "cache_prompt", "reasoning_mode",
	}
	// ExtraBody are the members of extra_body that are sent. Those of reasoning are sent beside the options of a
	// configuration.
	ExtraBody = []string{
		"max_tool_calls", "metadata", "previous_response_id", "prompt_cache_key", "prompt_cache_retention", Reasoning, "safety_identifier", "service_tier",
		"store", "truncation",
	}
)

// Members of extra_body that have a meaning here.
const (
	Metadata  = "metadata"
	Reasoning = "reasoning"
	store     = "store"
)

// New returns a request in the format. The server stores nothing unless extra_body says so, or asked; it then takes
// metadata, and seals reasoning. The choice among tools is sent where it is not the default.
func New(r dialect.Request, asked *bool) *openairesponses.Request {
	request := &openairesponses.Request{Request: r}
	if len(r.Tools) == 0 || r.Choice.GetMode() == toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_AUTO {
		request.Choice = nil // The choice is among the tools here, and auto is the default.
	}
	if options, drawn := chat.ImageOutput(r.Config); drawn {
		request.ImageTool = ServerTool("image_generation", options)
	}
	if !Stores(r.Config, asked) {
		request.SealReasoning = true
		request.Members = append(request.Members, dialect.Member{Name: store, JSON: "false"})
		request.Members = append(request.Members, dialect.Metadata(r.Config)...)
	}
	return request
}

// ServerTool is a tool of the server as JSON: its type, and the options that a document, of options by provider, has
// for OpenAI.
func ServerTool(kind, optionsJSON string) string {
	tool := &orderedjson.Object{}
	tool.Set("type", kind)
	if given, err := orderedjson.DecodeObject([]byte(optionsJSON)); err == nil {
		own, _ := given.Get("openai")
		if options, ok := own.(*orderedjson.Object); ok {
			for name, value := range options.All() {
				tool.Set(name, value)
			}
		}
	}
	return string(orderedjson.Append(nil, tool))
}

// Stores reports whether the server stores the answer.
func Stores(c *modelv1.GenerateConfig, asked *bool) bool {
	if value, given := ExtraBodyOf(c).Get(store); given {
		return value == true
	}
	return asked != nil && *asked
}

// Summary is the summary of reasoning to ask for: by default, what the server decides.
func Summary(c *modelv1.GenerateConfig) *string {
	if c.GetReasoningSummary() == "none" {
		return nil
	}
	return new(cmp.Or(c.GetReasoningSummary(), "auto"))
}

// SetModel sets the model of the messages of an output to the name that was asked for; that of the output is the name
// that the server gives.
func SetModel(output *modelv1.ModelOutput, name string) {
	for _, choice := range output.GetChoices() {
		choice.GetMessage().Model = name
	}
}

// ExtraBodyOf is extra_body as an object; empty if it is none, which the request then fails for.
func ExtraBodyOf(c *modelv1.GenerateConfig) *orderedjson.Object {
	object, err := orderedjson.DecodeObject([]byte(c.GetExtraBodyJson()))
	if err != nil {
		return &orderedjson.Object{}
	}
	return object
}
