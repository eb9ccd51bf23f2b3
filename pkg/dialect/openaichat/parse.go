package openaichat

import (
	"encoding/json"
	"slices"
	"strconv"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/hosted"
	"github.com/evalfleet/evalfleet/pkg/dialect/openai"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
)

// wireRequest is a client's request on the wire.
type wireRequest struct {
	Model            string                 `json:"model"`
	Messages         []wireMessage          `json:"messages"`
	Tools            []openai.Function      `json:"tools"`
	ToolChoice       json.RawMessage        `json:"tool_choice"`
	Functions        []openai.Declaration   `json:"functions"`
	FunctionCall     json.RawMessage        `json:"function_call"`
	Stream           *bool                  `json:"stream"`
	StreamOptions    *streamOptions         `json:"stream_options"`
	MaxTokens        *int64                 `json:"max_tokens"`
	MaxCompletion    *int64                 `json:"max_completion_tokens"`
	Temperature      *float64               `json:"temperature"`
	TopP             *float64               `json:"top_p"`
	FrequencyPenalty *float64               `json:"frequency_penalty"`
	PresencePenalty  *float64               `json:"presence_penalty"`
	Stop             json.RawMessage        `json:"stop"`
	Seed             *int64                 `json:"seed"`
	N                *int32                 `json:"n"`
	LogitBias        map[string]float64     `json:"logit_bias"`
	Logprobs         *bool                  `json:"logprobs"`
	TopLogprobs      *int32                 `json:"top_logprobs"`
	Parallel         *bool                  `json:"parallel_tool_calls"`
	Effort           *string                `json:"reasoning_effort"`
	Verbosity        *string                `json:"verbosity"`
	Format           *openai.ResponseFormat `json:"response_format"`
	Audio            json.RawMessage        `json:"audio"`
	Modalities       []string               `json:"modalities"`
	WebSearch        json.RawMessage        `json:"web_search_options"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// ParseRequest implements dialect.Codec. Members without a place in the canonical form, such as `user` and `metadata`,
// are ignored; what would change the answer and cannot be expressed is refused.
func (Codec) ParseRequest(body []byte) (*dialect.Request, error) {
	var w wireRequest
	if err := jsonread.Unmarshal(body, &w); err != nil {
		return nil, dialect.Unreadable(err)
	}
	switch {
	case w.Model == "":
		return nil, dialect.Required("model")
	case w.Messages == nil:
		return nil, dialect.Required("messages")
	}
	r := &dialect.Request{Model: w.Model, Stream: w.Stream != nil && *w.Stream, IncludeUsage: w.StreamOptions != nil && w.StreamOptions.IncludeUsage}
	var err error
	if r.Messages, err = w.messages(); err != nil {
		return nil, err
	}
	if err := w.offer(r); err != nil {
		return nil, err
	}
	if r.Config, err = w.config(); err != nil {
		return nil, err
	}
	return r, w.check()
}

// offer reads the tools on offer, in one of the two forms for them, and the choice among them.
func (w *wireRequest) offer(r *dialect.Request) (err error) {
	member := "tools"
	if w.older() {
		member = memberFunctions
		err = w.offerFunctions(r)
	} else if r.Tools, err = openai.ReadFunctions(w.Tools); err == nil {
		r.Choice, err = openai.ReadChoice(w.ToolChoice, "tool_choice", openai.ChoiceRequired)
	}
	if err != nil || !jsonread.IsSet(w.WebSearch) {
		return err
	}
	search, err := hosted.ChatOffer(w.WebSearch)
	if err != nil {
		return err
	}
	r.Tools = append(r.Tools, search)
	if len(hosted.Distinct(r.Tools)) < len(r.Tools) {
		return dialect.Invalid(member, "has a function %s, which is the name of the search of web_search_options", search.GetName())
	}
	return nil
}

// check refuses requests that cannot be answered as intended.
func (w *wireRequest) check() error {
	switch {
	case len(w.Messages) == 0:
		return dialect.Invalid("messages", "needs at least one message")
	case w.MaxTokens != nil && *w.MaxTokens < 1:
		return dialect.Invalid("max_tokens", "is %d; give at least 1", *w.MaxTokens)
	case w.MaxCompletion != nil && *w.MaxCompletion < 1:
		return dialect.Invalid("max_completion_tokens", "is %d; give at least 1", *w.MaxCompletion)
	case w.N != nil && (*w.N < 1 || *w.N > maxChoices):
		return dialect.Invalid("n", "is %d; give 1 to %d", *w.N, maxChoices)
	case jsonread.IsSet(w.Audio):
		return dialect.NotSupported("audio", "spoken answers are not supported here")
	case slices.ContainsFunc(w.Modalities, func(kind string) bool { return kind != "text" && kind != modalityImage }):
		return dialect.NotSupported("modalities", "no more than `text` and `image` is supported here")
	default:
		return nil
	}
}

func (w *wireRequest) config() (*modelv1.GenerateConfig, error) {
	c := &modelv1.GenerateConfig{
		MaxTokens: w.MaxTokens, Temperature: w.Temperature, TopP: w.TopP, FrequencyPenalty: w.FrequencyPenalty, PresencePenalty: w.PresencePenalty,
		Seed: w.Seed, NumChoices: w.N, Logprobs: w.Logprobs, TopLogprobs: w.TopLogprobs, ParallelToolCalls: w.Parallel, ReasoningEffort: w.Effort, Verbosity: w.Verbosity,
	}
	if w.MaxCompletion != nil {
		c.MaxTokens = w.MaxCompletion
	}
	if slices.Contains(w.Modalities, modalityImage) {
		c.Modalities = &modelv1.ModalityList{Values: []*modelv1.Modality{{Type: modalityImage}}}
	}
	var err error
	if c.StopSeqs, err = openai.ReadStops(w.Stop, "stop"); err != nil {
		return nil, err
	}
	if w.LogitBias != nil {
		c.LogitBias = &modelv1.LogitBias{Values: map[int64]float64{}}
		for token, bias := range w.LogitBias {
			id, err := strconv.ParseInt(token, 10, 64)
			if err != nil {
				return nil, dialect.Invalid("logit_bias", "%q is no id of a token", token)
			}
			c.LogitBias.Values[id] = bias
		}
	}
	c.ResponseSchema, err = openai.ReadResponseSchema(w.Format, "response_format")
	return c, err
}
