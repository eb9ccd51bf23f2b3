package chat

import (
	"encoding/json"

	"github.com/evalfleet/evalfleet/pkg/enum"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
	"github.com/evalfleet/evalfleet/pkg/json/lenientjson"
)

// option is one member of a configuration in the JSON form.
type option struct {
	name string
	// read sets the member from a present field that is not null.
	read func(o *lenientjson.Object, c *modelv1.GenerateConfig)
	// write writes the member if it is set.
	write func(w *jsonwrite.Writer, c *modelv1.GenerateConfig)
}

// options are all members, in the order in which they are written.
var options = []option{
	int32Option("max_retries", func(c *modelv1.GenerateConfig) **int32 { return &c.MaxRetries }),
	floatOption("timeout", func(c *modelv1.GenerateConfig) **float64 { return &c.Timeout }),
	floatOption("stream_idle_timeout", func(c *modelv1.GenerateConfig) **float64 { return &c.StreamIdleTimeout }),
	floatOption("attempt_timeout", func(c *modelv1.GenerateConfig) **float64 { return &c.AttemptTimeout }),
	int32Option("max_connections", func(c *modelv1.GenerateConfig) **int32 { return &c.MaxConnections }),
	{"adaptive_connections", readAdaptive, writeAdaptive},
	textOption("system_message", func(c *modelv1.GenerateConfig) **string { return &c.SystemMessage }),
	int64Option("max_tokens", func(c *modelv1.GenerateConfig) **int64 { return &c.MaxTokens }),
	floatOption("top_p", func(c *modelv1.GenerateConfig) **float64 { return &c.TopP }),
	floatOption("temperature", func(c *modelv1.GenerateConfig) **float64 { return &c.Temperature }),
	listOption("stop_seqs", func(c *modelv1.GenerateConfig) **modelv1.StringList { return &c.StopSeqs }),
	int32Option("best_of", func(c *modelv1.GenerateConfig) **int32 { return &c.BestOf }),
	floatOption("frequency_penalty", func(c *modelv1.GenerateConfig) **float64 { return &c.FrequencyPenalty }),
	floatOption("presence_penalty", func(c *modelv1.GenerateConfig) **float64 { return &c.PresencePenalty }),
	{"logit_bias", readLogitBias, writeLogitBias},
	int64Option("seed", func(c *modelv1.GenerateConfig) **int64 { return &c.Seed }),
	int32Option("top_k", func(c *modelv1.GenerateConfig) **int32 { return &c.TopK }),
	int32Option("num_choices", func(c *modelv1.GenerateConfig) **int32 { return &c.NumChoices }),
	boolOption("logprobs", func(c *modelv1.GenerateConfig) **bool { return &c.Logprobs }),
	int32Option("top_logprobs", func(c *modelv1.GenerateConfig) **int32 { return &c.TopLogprobs }),
	{"prompt_logprobs", readPromptLogprobs, func(w *jsonwrite.Writer, c *modelv1.GenerateConfig) {
		jsonwrite.OptInt(w, "prompt_logprobs", c.PromptLogprobs)
	}},
	boolOption("parallel_tool_calls", func(c *modelv1.GenerateConfig) **bool { return &c.ParallelToolCalls }),
	boolOption("internal_tools", func(c *modelv1.GenerateConfig) **bool { return &c.InternalTools }),
	int64Option("max_tool_output", func(c *modelv1.GenerateConfig) **int64 { return &c.MaxToolOutput }),
	{"cache_prompt", readCachePrompt, func(w *jsonwrite.Writer, c *modelv1.GenerateConfig) {
		w.RawUnlessEmpty("cache_prompt", cachePromptNames[c.GetCachePrompt()])
	}},
	listOption("fallback_models", func(c *modelv1.GenerateConfig) **modelv1.StringList { return &c.FallbackModels }),
	boolOption("fail_on_refusal", func(c *modelv1.GenerateConfig) **bool { return &c.FailOnRefusal }),
	textOption("verbosity", func(c *modelv1.GenerateConfig) **string { return &c.Verbosity }),
	textOption("effort", func(c *modelv1.GenerateConfig) **string { return &c.Effort }),
	textOption("reasoning_effort", func(c *modelv1.GenerateConfig) **string { return &c.ReasoningEffort }),
	textOption("reasoning_mode", func(c *modelv1.GenerateConfig) **string { return &c.ReasoningMode }),
	int64Option("reasoning_tokens", func(c *modelv1.GenerateConfig) **int64 { return &c.ReasoningTokens }),
	textOption("reasoning_summary", func(c *modelv1.GenerateConfig) **string { return &c.ReasoningSummary }),
	{"reasoning_history", readReasoningHistory, func(w *jsonwrite.Writer, c *modelv1.GenerateConfig) {
		w.TextUnlessEmpty("reasoning_history", enum.Word(c.GetReasoningHistory()))
	}},
	{"response_schema", readResponseSchema, writeResponseSchema},
	{"extra_headers", readExtraHeaders, writeExtraHeaders},
	{
		"extra_body",
		func(o *lenientjson.Object, c *modelv1.GenerateConfig) {
			c.ExtraBodyJson = new(o.RawObject("extra_body"))
		},
		func(w *jsonwrite.Writer, c *modelv1.GenerateConfig) {
			w.RawUnlessEmpty("extra_body", c.GetExtraBodyJson())
		},
	},
	{"modalities", readModalities, writeModalities},
	{"cache", readCache, writeCache},
	{"batch", readBatch, writeBatch},
}

// ParseConfig reads a configuration of present input. An unknown option is a fault.
func ParseConfig(document []byte) (*modelv1.GenerateConfig, error) {
	o, err := lenientjson.Parse(document)
	if err != nil {
		return nil, err
	}
	o.OnlyKnown("options of one provider belong into extra_body", ConfigOptions()...)
	c := &modelv1.GenerateConfig{}
	for _, option := range options {
		if o.Raw(option.name) != nil {
			option.read(o, c)
		}
	}
	if err := o.Err(); err != nil {
		return nil, err
	}
	return c, nil
}

// ConfigOptions returns the names of all options, for messages and completion.
func ConfigOptions() []string {
	known := make([]string, len(options))
	for i, option := range options {
		known[i] = option.name
	}
	return known
}

// ConfigJSON writes the options that are set.
func ConfigJSON(c *modelv1.GenerateConfig) json.RawMessage {
	var w jsonwrite.Writer
	w.BeginObject()
	if c != nil {
		for _, option := range options {
			option.write(&w, c)
		}
	}
	w.EndObject()
	return w.Bytes()
}

// place returns where a configuration keeps one of its members.
type place[T any] func(*modelv1.GenerateConfig) *T

func int32Option(name string, at place[*int32]) option {
	return option{
		name,
		func(o *lenientjson.Object, c *modelv1.GenerateConfig) { *at(c) = o.Int32(name) },
		func(w *jsonwrite.Writer, c *modelv1.GenerateConfig) { jsonwrite.OptInt(w, name, *at(c)) },
	}
}

func int64Option(name string, at place[*int64]) option {
	return option{
		name,
		func(o *lenientjson.Object, c *modelv1.GenerateConfig) { *at(c) = o.Int64(name) },
		func(w *jsonwrite.Writer, c *modelv1.GenerateConfig) { jsonwrite.OptInt(w, name, *at(c)) },
	}
}

func floatOption(name string, at place[*float64]) option {
	return option{
		name,
		func(o *lenientjson.Object, c *modelv1.GenerateConfig) { *at(c) = o.Float(name) },
		func(w *jsonwrite.Writer, c *modelv1.GenerateConfig) { w.OptFloat(name, *at(c)) },
	}
}

func boolOption(name string, at place[*bool]) option {
	return option{
		name,
		func(o *lenientjson.Object, c *modelv1.GenerateConfig) { *at(c) = o.Bool(name) },
		func(w *jsonwrite.Writer, c *modelv1.GenerateConfig) { w.OptBool(name, *at(c)) },
	}
}

// textOption is a text; one of the option's words in [optionWords], if it has any there.
func textOption(name string, at place[*string]) option {
	return option{
		name,
		func(o *lenientjson.Object, c *modelv1.GenerateConfig) {
			if words := optionWords[name]; words != nil {
				*at(c) = o.Enum(name, words...)
			} else {
				*at(c) = o.String(name)
			}
		},
		func(w *jsonwrite.Writer, c *modelv1.GenerateConfig) { w.OptText(name, *at(c)) },
	}
}

func listOption(name string, at place[*modelv1.StringList]) option {
	return option{
		name,
		func(o *lenientjson.Object, c *modelv1.GenerateConfig) {
			if texts, ok := o.Strings(name); ok {
				*at(c) = &modelv1.StringList{Values: texts}
			}
		},
		func(w *jsonwrite.Writer, c *modelv1.GenerateConfig) {
			if list := *at(c); list != nil {
				w.TextList(name, list.GetValues())
			}
		},
	}
}
