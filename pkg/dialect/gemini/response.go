package gemini

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/citation"
	"github.com/evalfleet/evalfleet/pkg/dialect/hosted"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
)

// Answer is an answer on the wire.
type Answer struct {
	ID         string      `json:"responseId"`
	Model      string      `json:"modelVersion"`
	Candidates []candidate `json:"candidates"`
	Feedback   *feedback   `json:"promptFeedback"`
	Usage      *usage      `json:"usageMetadata"`
	Error      *failure    `json:"error"`
}

// candidate is one choice of an answer.
type candidate struct {
	Index         int                 `json:"index"`
	Content       content             `json:"content"`
	FinishReason  string              `json:"finishReason"`
	FinishMessage string              `json:"finishMessage"`
	Ratings       []rating            `json:"safetyRatings"`
	Logprobs      *logprobsResult     `json:"logprobsResult"`
	Grounding     *citation.Grounding `json:"groundingMetadata"`
}

// content is one turn.
type content struct {
	Role  string `json:"role"`
	Parts []part `json:"parts"`
}

// part is a part of a turn. One of its members is set, beside the marks of thoughts.
type part struct {
	Text       *string           `json:"text"`
	Thought    bool              `json:"thought"`
	Signature  string            `json:"thoughtSignature"`
	Inline     *inlineData       `json:"inlineData"`
	File       json.RawMessage   `json:"fileData"`
	Call       *functionCall     `json:"functionCall"`
	Result     *functionResponse `json:"functionResponse"`
	Code       *executableCode   `json:"executableCode"`
	CodeResult *executionResult  `json:"codeExecutionResult"`
}

type inlineData struct {
	Type string `json:"mimeType"`
	Data string `json:"data"`
}

func (d *inlineData) uri() string { return "data:" + d.Type + ";base64," + d.Data }

type functionCall struct {
	ID   string          `json:"id"`
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"`
}

// arguments are the text of the arguments. Some servers send a text in place of the object.
func (c *functionCall) arguments() string {
	var text string
	switch {
	case !jsonread.IsSet(c.Args):
		return "{}"
	case json.Unmarshal(c.Args, &text) == nil:
		return text
	default:
		return string(c.Args)
	}
}

type functionResponse struct {
	ID       string          `json:"id"`
	Name     string          `json:"name"`
	Response json.RawMessage `json:"response"`
	Parts    []part          `json:"parts"`
}

type executableCode struct {
	Language string `json:"language"`
	Code     string `json:"code"`

	id string // of code in a stream, which is read twice
}

type executionResult struct {
	Outcome string `json:"outcome"`
	Output  string `json:"output"`
}

// feedback is why a prompt was blocked.
type feedback struct {
	Reason  string   `json:"blockReason"`
	Message string   `json:"blockReasonMessage"`
	Ratings []rating `json:"safetyRatings"`
}

type rating struct {
	Category    string `json:"category"`
	Probability string `json:"probability"`
	Blocked     bool   `json:"blocked"`
}

type logprobsResult struct {
	Chosen []logprob       `json:"chosenCandidates"`
	Top    []topCandidates `json:"topCandidates"`
}

type topCandidates struct {
	Candidates []logprob `json:"candidates"`
}

type logprob struct {
	Token   string  `json:"token"`
	Logprob float64 `json:"logProbability"`
}

type usage struct {
	Prompt     dialect.Tokens  `json:"promptTokenCount"`
	Cached     *dialect.Tokens `json:"cachedContentTokenCount"`
	Candidates dialect.Tokens  `json:"candidatesTokenCount"`
	Thoughts   dialect.Tokens  `json:"thoughtsTokenCount"`
	// ToolUse is what the server's own tools put into the prompt.
	ToolUse dialect.Tokens `json:"toolUsePromptTokenCount"`
	Total   dialect.Tokens `json:"totalTokenCount"`
}

// malformed is the error for a body that is not an answer in the format; cause may be nil.
func malformed(cause error) error {
	return &dialect.MalformedError{Answer: "answer of generateContent", Cause: cause}
}

// DecodeResponse implements dialect.Codec. The response is an *Answer.
func (Codec) DecodeResponse(body []byte) (dialect.Response, error) {
	a := &Answer{}
	if err := jsonread.Unmarshal(body, a); err != nil {
		return nil, malformed(err)
	}
	switch {
	case a.Error != nil && len(a.Candidates) == 0:
		return nil, a.Error.toError(body)
	case a.Candidates == nil && a.Feedback == nil && a.Usage == nil && a.ID == "":
		return nil, malformed(nil)
	default:
		return a, nil
	}
}

// Output implements dialect.Response. An answer without candidates becomes a choice with the reason, if the server
// gives one.
func (a *Answer) Output(tools []*toolv1.ToolInfo) (*modelv1.ModelOutput, error) {
	var choices []*modelv1.Choice
	slices.SortStableFunc(a.Candidates, func(x, y candidate) int { return cmp.Compare(x.Index, y.Index) })
	for i := range a.Candidates {
		choices = append(choices, a.Candidates[i].choice(a.Model, tools))
	}
	if len(a.Candidates) == 0 {
		choices = append(choices, a.unanswered())
	}
	return dialect.NewOutput(a.ID, a.Model, a.TokenUsage(), choices...), nil
}

// unanswered is the choice of an answer that has none.
func (a *Answer) unanswered() *modelv1.Choice {
	m := chat.Generated(a.Model)
	if a.Feedback == nil || a.Feedback.Reason == "" {
		m.Content = chat.TextContent(noContent)
		return &modelv1.Choice{Message: m, StopReason: modelv1.StopReason_STOP_REASON_STOP}
	}
	m.Content = chat.TextContent("BLOCKED: " + a.Feedback.Reason)
	why := cmp.Or(a.Feedback.Message, "Blocked: "+a.Feedback.Reason)
	return &modelv1.Choice{
		Message: m, StopReason: filtered,
		StopDetails: chat.NewStopDetails(a.Feedback.Reason, "", why, blocked(a.Feedback.Ratings)...),
	}
}

// blocked are the categories for which content was blocked.
func blocked(ratings []rating) (all []*modelv1.StopCategory) {
	for _, r := range ratings {
		if r.Blocked {
			all = append(all, &modelv1.StopCategory{Category: r.Category, Level: r.Probability})
		}
	}
	return all
}

// MalformedCall reports whether the answer ends with a call that the server could not read, and has no other call. The
// last text of its output is the server's message. said reports whether the answer has more than thoughts.
func (a *Answer) MalformedCall() (malformed, said bool) {
	if len(a.Candidates) != 1 || !a.Candidates[0].malformedCall() {
		return false, false
	}
	return true, slices.ContainsFunc(a.Candidates[0].Content.Parts, func(p part) bool { return !p.Thought })
}

func (c *candidate) malformedCall() bool {
	return c.FinishReason == finishMalformedCall && !slices.ContainsFunc(c.Content.Parts, func(p part) bool { return p.Call != nil })
}

func (c *candidate) choice(model string, tools []*toolv1.ToolInfo) *modelv1.Choice {
	m := chat.Generated(model)
	read := turnReader{tools: tools}
	var places []int // of the parts, the last one that each became
	for i := range c.Content.Parts {
		read.part(&c.Content.Parts[i])
		places = append(places, max(0, len(read.parts)-1))
	}
	if c.malformedCall() {
		read.parts = append(read.parts, chat.TextPart("\n"+cmp.Or(c.FinishMessage, unreadCall)+"\n"))
	}
	c.Grounding.Cite(read.parts, places)
	if use := hosted.GeminiSearch(c.Grounding, tools); use != nil {
		read.parts = append([]*contentv1.Content{use}, read.parts...)
	}
	m.Content, m.ToolCalls = chat.TextContent(""), read.calls
	if len(read.parts) > 0 {
		m.Content = chat.ListContent(read.parts...)
	}
	choice := &modelv1.Choice{Message: m, StopReason: stopReason(c.FinishReason, len(read.calls) > 0), Logprobs: c.Logprobs.message()}
	if choice.StopReason == filtered {
		choice.StopDetails = chat.NewStopDetails(c.FinishReason, "", c.FinishMessage, blocked(c.Ratings)...)
	}
	return choice
}

// finishStop is the finish reason of an answer that is complete, with calls too.
const finishStop = "STOP"

const (
	finishMaxTokens = "MAX_TOKENS"
	finishSafety    = "SAFETY"

	finishMalformedCall = "MALFORMED_FUNCTION_CALL"
	// unreadCall is what is said of a call that the server could not read and says nothing of.
	unreadCall = "The server could not read the call of a function."
)

var stopReasons = dialect.StopReasons{
	finishStop: modelv1.StopReason_STOP_REASON_STOP, finishMaxTokens: modelv1.StopReason_STOP_REASON_MAX_TOKENS,
	finishSafety: filtered, "RECITATION": filtered, "BLOCKLIST": filtered, "PROHIBITED_CONTENT": filtered, "SPII": filtered,
	"IMAGE_SAFETY": filtered, "IMAGE_PROHIBITED_CONTENT": filtered, "IMAGE_RECITATION": filtered,
}

const filtered = modelv1.StopReason_STOP_REASON_CONTENT_FILTER

// stopReason reads a finish reason. The format has none of its own for an answer that ends with calls.
func stopReason(finish string, calls bool) modelv1.StopReason {
	if finish == finishStop && calls {
		return modelv1.StopReason_STOP_REASON_TOOL_CALLS
	}
	return stopReasons.Of(finish)
}

func (l *logprobsResult) message() *modelv1.Logprobs {
	if l == nil || l.Chosen == nil {
		return nil
	}
	m := &modelv1.Logprobs{}
	for i, p := range l.Chosen {
		token := &modelv1.Logprob{Token: p.Token, Logprob: p.Logprob}
		if i < len(l.Top) {
			for _, top := range l.Top[i].Candidates {
				token.TopLogprobs = append(token.TopLogprobs, &modelv1.TopLogprob{Token: top.Token, Logprob: top.Logprob})
			}
		}
		m.Content = append(m.Content, token)
	}
	return m
}

// TokenUsage is the usage in the canonical form; nil if the server sent none, or one that is impossible.
func (a *Answer) TokenUsage() *modelv1.ModelUsage { return a.Usage.message() }

// message counts thoughts as output, and cached tokens separately from the rest of the input.
func (u *usage) message() *modelv1.ModelUsage {
	if u == nil || min(u.Thoughts, u.ToolUse) < 0 {
		return nil
	}
	m := chat.KnownUsage(&modelv1.ModelUsage{
		InputTokens: int64(u.Prompt), OutputTokens: int64(u.Candidates), TotalTokens: int64(u.Total),
		InputTokensCacheRead: (*int64)(u.Cached), ReasoningTokens: new(int64(u.Thoughts)),
	})
	if m == nil {
		return nil
	}
	m.InputTokens, m.OutputTokens = chat.SumTokens(m.InputTokens, int64(u.ToolUse)), chat.SumTokens(m.OutputTokens, int64(u.Thoughts))
	return dialect.CacheApart(m)
}
