package openaichat

import (
	"cmp"
	"slices"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/openai"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// Request is a request with the options in which servers of the format differ.
type Request struct {
	dialect.Request
	// ModelInAddress leaves the model out of the body.
	ModelInAddress bool
	// SystemRole is the role of system messages; empty is `system`.
	SystemRole string
	// MaxTokensMember is the name of the bound of output tokens; empty is `max_tokens`.
	MaxTokensMember string
	// StrictTools is sent with each tool, if it is set.
	StrictTools *bool
	// FillEmpty sends [dialect.NoContent] in place of an empty content of the assistant, which some servers refuse.
	FillEmpty bool
	// PlainTurns writes an answer's parts on neighbouring lines, without a blank line between them.
	PlainTurns bool
	// JoinTexts writes an answer of texts alone as one text without breaks, and null in place of a blank text beside
	// calls.
	JoinTexts bool
	// AnswerParts writes an answer of several parts as a list of its texts and images, without its reasoning, and a
	// system message of several as a list of its texts.
	AnswerParts bool
	// EmptyCalls writes a list of calls in each of the assistant's messages, empty if there are none.
	EmptyCalls bool
	// OmitEmpty leaves out an empty content beside calls.
	OmitEmpty bool
	// ImagesOnly refuses media other than images.
	ImagesOnly bool
	// NoStreamUsage does not ask for the usage of a stream, for servers that refuse the option.
	NoStreamUsage bool
	// CacheMarks sends the marks that authors of messages set for the server's prompt cache, and one at the end of the
	// leading system messages. If a mark is in an answer or in a tool's result, none is sent.
	CacheMarks bool
	// EphemeralMarks marks the prompt for caches of Anthropic's models behind a server of the format: the last system
	// message, the last tool, and a part near the end of the conversation.
	EphemeralMarks bool
	// Replay returns how reasoning of an earlier answer is sent: as a text within the message, and as members of it.
	// Nil: reasoning that came in a member returns there, and any other is a text between think tags.
	Replay func(part *contentv1.Content) (text string, members []dialect.Member)
}

// AppendRequest implements dialect.Codec.
func (Codec) AppendRequest(dst []byte, r *dialect.Request) ([]byte, error) {
	return (&Request{Request: *r}).Append(dst)
}

// Append appends the body of the request to dst. It fails with *dialect.UnsupportedError where content cannot be
// expressed in the format. Members of the configuration's extra_body come last and replace all others.
func (r *Request) Append(dst []byte) ([]byte, error) {
	e := &encoder{Request: r, Encoder: dialect.NewEncoder(dst, &r.Request, "chat completions")}
	e.TakeExtraBody()
	e.marks = openai.NewMarks(r.Messages, r.CacheMarks)
	e.ephemeral = noEphemeral
	if r.EphemeralMarks {
		e.ephemeral = ephemeralOf(r.Messages)
	}
	e.Body.BeginObject()
	if !r.ModelInAddress {
		e.Member("model", func() { e.Body.Text(r.Model) })
	}
	e.messages()
	e.tools()
	e.options()
	e.marks.Declare(&e.MemberWriter)
	e.Overrides.Write(e.Body)
	e.Body.EndObject()
	return e.Written()
}

// encoder writes one request.
type encoder struct {
	*Request
	dialect.Encoder
	// marks are the cache marks that are sent, and ephemeral those of Anthropic's kind.
	marks     openai.Marks
	ephemeral ephemeral
}

func (e *encoder) tools() {
	if len(e.Tools) == 0 {
		return
	}
	e.Member("tools", func() {
		for i, tool := range jsonwrite.List(e.Body, e.Tools) {
			e.CheckTool(tool)
			openai.WriteFunction(e.Body, tool, e.StrictTools, func() { e.ephemeralMark(e.EphemeralMarks && i == len(e.Tools)-1) })
		}
	})
	e.Member("tool_choice", func() { openai.WriteChoice(e.Body, e.Choice, openai.ChoiceRequired) })
	e.OptBool("parallel_tool_calls", e.Config.ParallelToolCalls)
}

// options writes the options of the configuration that are set.
func (e *encoder) options() {
	c := e.Config
	dialect.OptInt(&e.MemberWriter, cmp.Or(e.MaxTokensMember, "max_tokens"), c.MaxTokens)
	e.OptFloat("temperature", c.Temperature)
	e.OptFloat("top_p", c.TopP)
	e.OptFloat("frequency_penalty", c.FrequencyPenalty)
	e.OptFloat("presence_penalty", c.PresencePenalty)
	e.OptTexts("stop", c.StopSeqs)
	dialect.OptInt(&e.MemberWriter, "seed", c.Seed)
	dialect.OptInt(&e.MemberWriter, "n", c.NumChoices)
	if c.LogitBias != nil {
		e.Member("logit_bias", func() { e.logitBias(c.GetLogitBias().GetValues()) })
	}
	e.OptBool("logprobs", c.Logprobs)
	dialect.OptInt(&e.MemberWriter, "top_logprobs", c.TopLogprobs)
	dialect.OptInt(&e.MemberWriter, "prompt_logprobs", c.PromptLogprobs)
	e.OptText("reasoning_effort", c.ReasoningEffort)
	if c.ResponseSchema != nil {
		e.CheckSchema(c.GetResponseSchema())
		e.Member("response_format", func() { openai.WriteResponseSchema(e.Body, c.GetResponseSchema()) })
	}
	if e.Stream {
		e.Member("stream", func() { e.Body.Bool(true) })
		if !e.NoStreamUsage {
			e.Member("stream_options", func() { e.Body.Raw(`{"include_usage":true}`) })
		}
	}
}

func (e *encoder) logitBias(bias map[int64]float64) {
	tokens := make([]int64, 0, len(bias))
	for token := range bias {
		tokens = append(tokens, token)
	}
	slices.Sort(tokens)
	e.Body.BeginObject()
	for _, token := range tokens {
		e.Body.Key(itoa(token))
		e.Body.Float(bias[token])
	}
	e.Body.EndObject()
}
