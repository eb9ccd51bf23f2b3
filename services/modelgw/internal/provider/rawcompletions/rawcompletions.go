// Package rawcompletions is the format of OpenAI's oldest API, completions of a prompt without a chat's template, from
// the client's side. It serves evaluations of base models and of perplexity. Answers are not streamed.
//
// Reference: https://platform.openai.com/docs/api-reference/completions.
package rawcompletions

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/openai"
	"github.com/evalfleet/evalfleet/pkg/dialect/openaichat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// Name is the format's name.
const Name = "openai-completions"

// Path is where the API is, below a base URL.
const Path = "/completions"

// Options that the API lacks, as in provider.Capabilities.
var (
	Ignored = []string{"logit_bias", "modalities", "parallel_tool_calls", "reasoning_effort", "response_schema", "top_k", "verbosity"}
	Dropped = []string{
		"best_of", "cache_prompt", "effort", "fallback_models", "internal_tools", "reasoning_history", "reasoning_mode",
		"reasoning_summary", "reasoning_tokens",
	}
)

// Codec reads answers and errors; its other methods are those of chat completions, and are not used.
type Codec struct{ openaichat.Codec }

// Request is a request.
type Request struct {
	Model  string
	Prompt string // JSON: a text, or a list of tokens
	Config *modelv1.GenerateConfig
}

// Prompt is what messages ask to be continued, as JSON: the text of a single message of the user, or the list of tokens
// in its metadata under `prompt_token_ids`. It fails with INVALID_REQUEST for anything else.
func Prompt(messages []*modelv1.ChatMessage) (string, error) {
	if len(messages) != 1 || messages[0].GetRole() != modelv1.Role_ROLE_USER {
		return "", rpcerr.InvalidField("messages", "must be one message of the user: the model continues a prompt, and has no conversation")
	}
	m := messages[0]
	var metadata struct {
		Tokens json.RawMessage `json:"prompt_token_ids"`
	}
	_ = json.Unmarshal([]byte(m.GetMetadataJson()), &metadata)
	if jsonread.IsSet(metadata.Tokens) {
		var tokens []int64
		if json.Unmarshal(metadata.Tokens, &tokens) != nil || len(tokens) == 0 {
			return "", rpcerr.InvalidField("messages[0].metadata_json", "prompt_token_ids must be a list of whole numbers that is not empty")
		}
		return string(jsonwrite.Marshal(tokens)), nil
	}
	text := chat.Text(m)
	if text == "" {
		return "", rpcerr.InvalidField("messages[0].content", "must have a text, or prompt_token_ids in its metadata")
	}
	return string(jsonwrite.AppendText(nil, text)), nil
}

// Append appends the body of the request to dst. By default one token is generated, the likeliest one. Members of
// extra_body come last and replace all others.
func (r *Request) Append(dst []byte) ([]byte, error) {
	c := r.Config
	w := dialect.MemberWriter{Body: jsonwrite.Append(dst, 256+len(r.Prompt))}
	var ok bool
	if w.Overrides, ok = dialect.NewOverrides(&dialect.Request{Config: c, Members: dialect.Metadata(c)}); !ok {
		return nil, &dialect.UnsupportedError{API: "completions", What: "extra_body that is no JSON object", Field: "config.extra_body_json"}
	}
	w.Body.BeginObject()
	w.Member("model", func() { w.Body.Text(r.Model) })
	w.Member("prompt", func() { w.Body.Raw(r.Prompt) })
	dialect.OptInt(&w, "max_tokens", cmp.Or(c.MaxTokens, new(int64(1))))
	w.OptFloat("temperature", cmp.Or(c.Temperature, new(0.0)))
	w.OptFloat("top_p", c.TopP)
	w.OptFloat("frequency_penalty", c.FrequencyPenalty)
	w.OptFloat("presence_penalty", c.PresencePenalty)
	dialect.OptInt(&w, "seed", c.Seed)
	if c.StopSeqs != nil {
		w.Member("stop", func() { w.Body.Texts(c.GetStopSeqs().GetValues()) })
	}
	dialect.OptInt(&w, "n", c.NumChoices)
	if c.GetLogprobs() {
		dialect.OptInt(&w, "logprobs", new(cmp.Or(c.GetTopLogprobs(), 1)))
	}
	dialect.OptInt(&w, "prompt_logprobs", c.PromptLogprobs)
	w.Overrides.Write(w.Body)
	w.Body.EndObject()
	return w.Body.Bytes(), nil
}

// completion is an answer on the wire.
type completion struct {
	ID      string   `json:"id"`
	Model   string   `json:"model"`
	Choices []choice `json:"choices"`
	Usage   *struct {
		Prompt     dialect.Tokens `json:"prompt_tokens"`
		Completion dialect.Tokens `json:"completion_tokens"`
		Total      dialect.Tokens `json:"total_tokens"`
	} `json:"usage"`
}

type choice struct {
	Index    int    `json:"index"`
	Text     string `json:"text"`
	Finish   string `json:"finish_reason"`
	Logprobs struct {
		Tokens []string          `json:"tokens"`
		Own    []*float64        `json:"token_logprobs"`
		Top    []json.RawMessage `json:"top_logprobs"`
	} `json:"logprobs"`
	// PromptLogprobs are those of the prompt's tokens, in vLLM's form.
	PromptLogprobs json.RawMessage `json:"prompt_logprobs"`
}

// DecodeResponse implements dialect.Codec.
func (c Codec) DecodeResponse(body []byte) (dialect.Response, error) {
	answer := &completion{}
	if err := json.Unmarshal(body, answer); err != nil {
		return nil, &dialect.MalformedError{Answer: "completion", Cause: err}
	}
	if answer.Choices == nil {
		var failed struct {
			Error json.RawMessage `json:"error"`
		}
		if json.Unmarshal(body, &failed) == nil && jsonread.IsSet(failed.Error) {
			return nil, c.DecodeError(body)
		}
		return nil, &dialect.MalformedError{Answer: "completion"}
	}
	return answer, nil
}

// Output implements dialect.Response.
func (c *completion) Output([]*toolv1.ToolInfo) (*modelv1.ModelOutput, error) {
	output := &modelv1.ModelOutput{Model: c.Model}
	if c.ID != "" {
		output.ResponseId = &c.ID
	}
	if u := c.Usage; u != nil {
		prompt, completed := int64(u.Prompt), int64(u.Completion)
		output.Usage = chat.KnownUsage(&modelv1.ModelUsage{
			InputTokens: prompt, OutputTokens: completed, TotalTokens: cmp.Or(int64(u.Total), chat.SumTokens(prompt, completed)),
		})
	}
	slices.SortStableFunc(c.Choices, func(a, b choice) int { return cmp.Compare(a.Index, b.Index) })
	for i := range c.Choices {
		own := &c.Choices[i]
		m := chat.Assistant(own.Text)
		m.Id, m.Model, m.Source = chat.NewID(), c.Model, modelv1.MessageSource_MESSAGE_SOURCE_GENERATE
		output.Choices = append(output.Choices, &modelv1.Choice{
			Message: m, StopReason: chat.ProviderStopReason(own.Finish), Logprobs: own.logprobs(), PromptLogprobs: openai.PromptLogprobs(own.PromptLogprobs),
		})
	}
	chat.CompleteOutput(output)
	return output, nil
}

// logprobs are the log-probabilities of the answer's tokens; nil if there are none. A token without one is left out.
func (c *choice) logprobs() *modelv1.Logprobs {
	var all []*modelv1.Logprob
	for i := range min(len(c.Logprobs.Tokens), len(c.Logprobs.Own)) {
		if c.Logprobs.Own[i] == nil {
			continue
		}
		p := &modelv1.Logprob{Token: c.Logprobs.Tokens[i], Logprob: *c.Logprobs.Own[i]}
		if i < len(c.Logprobs.Top) {
			top, err := orderedjson.DecodeObject(c.Logprobs.Top[i])
			if err != nil {
				top = &orderedjson.Object{}
			}
			for token, value := range top.All() {
				if number, ok := value.(json.Number); ok {
					logprob, _ := number.Float64()
					p.TopLogprobs = append(p.TopLogprobs, &modelv1.TopLogprob{Token: token, Logprob: logprob})
				}
			}
		}
		all = append(all, p)
	}
	return list(all)
}

func list(all []*modelv1.Logprob) *modelv1.Logprobs {
	if len(all) == 0 {
		return nil
	}
	return &modelv1.Logprobs{Content: all}
}
