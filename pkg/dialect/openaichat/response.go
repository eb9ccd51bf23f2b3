package openaichat

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/openai"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// completion is an answer on the wire.
type completion struct {
	ID      string          `json:"id"`
	Model   string          `json:"model"`
	Choices []choice        `json:"choices"`
	Usage   *usage          `json:"usage"`
	Error   *openai.Failure `json:"error"`
	// Tier is the service tier that served the request.
	Tier string `json:"service_tier"`
	// Created and Fingerprint are for Metadata.
	Created     json.RawMessage `json:"created"`
	Fingerprint json.RawMessage `json:"system_fingerprint"`
	// PromptLogprobs are vLLM's own, of the prompt's tokens.
	PromptLogprobs json.RawMessage `json:"prompt_logprobs"`
	// Groq is Groq's own, whose streams may have their usage there alone.
	Groq *struct {
		Usage *usage `json:"usage"`
	} `json:"x_groq"`
}

// usage returns the usage of an answer or a chunk; nil if it has none.
func (c *completion) usage() *usage {
	if c.Usage == nil && c.Groq != nil {
		return c.Groq.Usage
	}
	return c.Usage
}

type choice struct {
	Index         int                     `json:"index"`
	Message       *message                `json:"message"`
	Delta         *message                `json:"delta"`
	FinishReason  string                  `json:"finish_reason"`
	Logprobs      *logprobs               `json:"logprobs"`
	FilterResults map[string]filterResult `json:"content_filter_results"`
}

type message struct {
	Content          content           `json:"content"`
	Refusal          string            `json:"refusal"`
	ReasoningContent string            `json:"reasoning_content"`
	Reasoning        string            `json:"reasoning"`
	ReasoningDetails []json.RawMessage `json:"reasoning_details"`
	ToolCalls        []openai.Call     `json:"tool_calls"`
	Images           []image           `json:"images"`
	// ExecutedTools are calls of the server's own tools.
	ExecutedTools json.RawMessage `json:"executed_tools"`
}

// content is a text, null, or a list of parts that are texts.
type content string

// TakeText implements jsonread.TextTaker.
func (c *content) TakeText(text string) { *c = content(text) }

// UnmarshalJSON joins the texts of a list.
func (c *content) UnmarshalJSON(raw []byte) error {
	var text *string
	if err := json.Unmarshal(raw, &text); err == nil {
		if text != nil {
			*c = content(*text)
		}
		return nil
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if err := json.Unmarshal(raw, &parts); err != nil {
		return errors.New("content is neither a text nor a list of parts")
	}
	var all strings.Builder
	for _, part := range parts {
		all.WriteString(part.Text)
	}
	*c = content(all.String())
	return nil
}

type filterResult struct {
	Filtered bool   `json:"filtered"`
	Severity string `json:"severity"`
}

// logprobs are log-probabilities: as objects, or in the older form of two lists, which some servers still send.
type logprobs struct {
	Content       []openai.Logprob `json:"content"`
	Tokens        []string         `json:"tokens"`
	TokenLogprobs []*float64       `json:"token_logprobs"`
}

type usage struct {
	Prompt     dialect.Tokens `json:"prompt_tokens"`
	Completion dialect.Tokens `json:"completion_tokens"`
	Total      dialect.Tokens `json:"total_tokens"`
	Details    struct {
		Cached  *dialect.Tokens `json:"cached_tokens"`
		Written *dialect.Tokens `json:"cache_write_tokens"`
	} `json:"prompt_tokens_details"`
	// The times are in seconds, for Metadata.
	QueueTime      json.RawMessage `json:"queue_time"`
	PromptTime     json.RawMessage `json:"prompt_time"`
	CompletionTime json.RawMessage `json:"completion_time"`
	TotalTime      json.RawMessage `json:"total_time"`
	// Created are tokens written to a cache, as Anthropic's models count them behind a server of the format.
	Created           *dialect.Tokens `json:"cache_creation_input_tokens"`
	CompletionDetails struct {
		Reasoning *dialect.Tokens `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

// malformed is the error for a body that is not an answer in the format; cause may be nil.
func malformed(cause error) error {
	return &dialect.MalformedError{Answer: "chat completion", Cause: cause}
}

// DecodeResponse implements dialect.Codec.
func (Codec) DecodeResponse(body []byte) (dialect.Response, error) {
	c := &completion{}
	if err := jsonread.Unmarshal(body, c); err != nil {
		return nil, malformed(err)
	}
	if failed := c.Error; failed != nil && (c.Choices == nil || failed.Message != "" || failed.Code != "") {
		return nil, failed.ToError(body) // also beside what there was before it
	}
	if c.Choices == nil {
		return nil, malformed(nil)
	}
	return c, nil
}

// Output implements dialect.Response.
func (c *completion) Output(tools []*toolv1.ToolInfo) (*modelv1.ModelOutput, error) {
	var choices []*modelv1.Choice
	slices.SortStableFunc(c.Choices, func(a, b choice) int { return cmp.Compare(a.Index, b.Index) })
	prompt := openai.PromptLogprobs(c.PromptLogprobs)
	for i := range c.Choices {
		if c.Choices[i].Message == nil {
			return nil, malformed(errors.New("a choice has no message"))
		}
		own := c.Choices[i].output(c.Model, tools)
		own.PromptLogprobs = prompt
		choices = append(choices, own)
	}
	return dialect.NewOutput(c.ID, c.Model, c.usage().message(), choices...), nil
}

// Metadata returns what a server says of an answer beside it, as a JSON object: its id, when and by what it was made,
// how long it took, and the calls of the server's own tools.
func (c *completion) Metadata() string {
	w := jsonwrite.Append(nil, 256)
	w.BeginObject()
	raw := func(name string, value json.RawMessage) {
		if jsonread.IsSet(value) {
			w.RawMember(name, string(value))
		}
	}
	w.TextUnlessEmpty("id", c.ID)
	raw("system_fingerprint", c.Fingerprint)
	raw("created", c.Created)
	if u := c.Usage; u != nil {
		raw("queue_time", u.QueueTime)
		raw("prompt_time", u.PromptTime)
		raw("completion_time", u.CompletionTime)
		raw("total_time", u.TotalTime)
	}
	if len(c.Choices) > 0 && c.Choices[0].Message != nil {
		raw("executed_tools", c.Choices[0].Message.ExecutedTools)
	}
	w.EndObject()
	return string(w.Bytes())
}

func (c *choice) output(model string, tools []*toolv1.ToolInfo) *modelv1.Choice {
	m := chat.Generated(model)
	m.Content, m.ToolCalls = withImages(c.Message.content(), c.Message.Images), openai.AnsweredCalls(c.Message.ToolCalls, tools)
	return &modelv1.Choice{
		Message: m, StopReason: chat.ProviderStopReason(c.FinishReason), StopDetails: c.stopDetails(), Logprobs: c.Logprobs.message(),
	}
}

// thinkTag is the internal JSON of reasoning that was between tags in the text.
const thinkTag = `"think"`

// content returns the model's content: a plain text, or a text or a refusal in its place, preceded by the reasoning.
func (m *message) content() *contentv1.MessageContent {
	text := string(m.Content)
	reasoning := m.reasoning()
	if m.Refusal != "" {
		refusal := chat.RefusalPart(m.Refusal)
		if reasoning == nil {
			return chat.ListContent(refusal)
		}
		return chat.ListContent(reasoning, refusal)
	}
	if reasoning == nil {
		thought, rest, ok := dialect.CutThink(text)
		if !ok {
			return chat.TextContent(text)
		}
		reasoning = chat.ReasoningPart(thought)
		reasoning.InternalJson = thinkTag
		if rest != "" {
			text = rest
		}
	}
	return chat.ListContent(reasoning, chat.TextPart(text))
}

// reasoning returns the reasoning that came in members of its own, or nil.
func (m *message) reasoning() *contentv1.Content {
	if len(m.ReasoningDetails) > 0 {
		return detailedReasoning(m.ReasoningDetails)
	}
	part := func(member, text string) *contentv1.Content {
		p := chat.ReasoningPart(text)
		p.InternalJson = `"` + member + `"`
		return p
	}
	switch {
	case m.ReasoningContent != "":
		return part(memberReasoningContent, m.ReasoningContent)
	case m.Reasoning != "":
		return part(memberReasoning, m.Reasoning)
	default:
		return nil
	}
}

// detailsScheme marks a signature that holds the reasoning details unchanged, to be sent back to servers that know
// them.
const detailsScheme = "reasoning-details://"

// detailedReasoning reads OpenRouter's list of details: summaries, open texts and sealed data, of which the last of
// each kind counts.
func detailedReasoning(details []json.RawMessage) *contentv1.Content {
	var summary, open, sealed *string
	known := true
	for _, raw := range details {
		var d struct {
			Type    string `json:"type"`
			Text    string `json:"text"`
			Summary string `json:"summary"`
			Data    string `json:"data"`
		}
		if json.Unmarshal(raw, &d) != nil {
			continue
		}
		switch d.Type {
		case "reasoning.summary":
			summary = &d.Summary
		case detailText:
			if d.Text != "" { // Some have a signature alone.
				open = &d.Text
			}
		case detailSealed:
			sealed = &d.Data
		default:
			known = false
		}
	}
	list, _ := json.Marshal(details)
	list = bytes.ToValidUTF8(list, []byte(string(utf8.RuneError))) // Undecoded JSON may have other bytes.
	r := &contentv1.Reasoning{Signature: new(detailsScheme + string(list))}
	switch {
	case sealed != nil:
		r.Reasoning, r.Redacted, r.Summary = *sealed, true, cmp.Or(summary, open)
	case open != nil:
		r.Reasoning, r.Summary = *open, summary
	case summary != nil:
		r.Reasoning = *summary
	case known:
		r.Redacted = true
	default:
		r.Reasoning = string(list)
	}
	return &contentv1.Content{Part: &contentv1.Content_Reasoning{Reasoning: r}}
}

// finishFiltered is the finish reason, and the kind of stop, of filtered content.
const finishFiltered = "content_filter"

// stopDetails explains why content was filtered or refused.
func (c *choice) stopDetails() *modelv1.StopDetails {
	if refusal := c.Message.Refusal; refusal != "" {
		if c.FinishReason == finishFiltered {
			return chat.NewStopDetails(finishFiltered, "", refusal)
		}
		return chat.NewStopDetails(openai.KindRefusal, "", refusal)
	}
	var categories []*modelv1.StopCategory
	for name, result := range c.FilterResults {
		if result.Filtered {
			categories = append(categories, &modelv1.StopCategory{Category: name, Level: result.Severity})
		}
	}
	slices.SortFunc(categories, func(a, b *modelv1.StopCategory) int { return cmp.Compare(a.GetCategory(), b.GetCategory()) })
	return chat.NewStopDetails(finishFiltered, "", "", categories...)
}

func (l *logprobs) message() *modelv1.Logprobs {
	if l == nil || l.Content == nil && l.Tokens == nil {
		return nil
	}
	m := &modelv1.Logprobs{}
	for i := range l.Content {
		m.Content = append(m.Content, l.Content[i].Message())
	}
	for i := range min(len(l.Tokens), len(l.TokenLogprobs)) {
		if p := l.TokenLogprobs[i]; p != nil { // It is null for a first token, which has no probability.
			token := openai.Logprob{Token: l.Tokens[i], Logprob: *p}
			m.Content = append(m.Content, token.Message())
		}
	}
	return m
}

// message is the usage in the canonical form; nil if there is none, or if it is impossible.
func (u *usage) message() *modelv1.ModelUsage {
	if u == nil {
		return nil
	}
	return dialect.CacheApart(&modelv1.ModelUsage{
		InputTokens: int64(u.Prompt), OutputTokens: int64(u.Completion), TotalTokens: int64(u.Total),
		InputTokensCacheRead:  (*int64)(u.Details.Cached),
		InputTokensCacheWrite: (*int64)(cmp.Or(u.Created, u.Details.Written)),
		ReasoningTokens:       (*int64)(u.CompletionDetails.Reasoning),
	})
}

// Billing implements dialect.Biller.
func (c *completion) Billing() dialect.Billing { return dialect.Billing{Mode: openai.Mode(c.Tier)} }
