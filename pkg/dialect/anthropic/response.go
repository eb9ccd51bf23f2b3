package anthropic

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
)

// Message is an answer on the wire, decoded as far as a continuation needs it. It implements dialect.Response.
type Message struct {
	ID         string            `json:"id"`
	Model      string            `json:"model"`
	Content    []json.RawMessage `json:"content"`
	StopReason string            `json:"stop_reason"`
	Details    *stopDetails      `json:"stop_details"`
	Usage      *usage            `json:"usage"`
	Error      *failure          `json:"error"`
	// Results of options in the body of the request.
	ContextManagement json.RawMessage `json:"context_management"`
	ServiceTier       json.RawMessage `json:"service_tier"`
	Diagnostics       json.RawMessage `json:"diagnostics"`
}

type stopDetails struct {
	Type        string `json:"type"`
	Category    string `json:"category"`
	Explanation string `json:"explanation"`
}

// usage is the usage of an answer. A stream reports it in parts, of which a later one replaces the fields that it has.
type usage struct {
	Input      *dialect.Tokens `json:"input_tokens"`
	Output     *dialect.Tokens `json:"output_tokens"`
	CacheWrite *dialect.Tokens `json:"cache_creation_input_tokens"`
	CacheRead  *dialect.Tokens `json:"cache_read_input_tokens"`
	Details    outputDetails   `json:"output_tokens_details"`
	Iterations json.RawMessage `json:"iterations"`
	// Creation are the tokens that were written to the cache, by how long it keeps them.
	Creation struct {
		Long *dialect.Tokens `json:"ephemeral_1h_input_tokens"`
	} `json:"cache_creation"`
	Speed string `json:"speed"`
	Geo   string `json:"inference_geo"`
	Tier  string `json:"service_tier"`
}

type outputDetails struct {
	Thinking *dialect.Tokens `json:"thinking_tokens"`
}

// malformed is the error for a body that is not an answer in the format; cause may be nil.
func malformed(cause error) error {
	return &dialect.MalformedError{Answer: "message", Cause: cause}
}

// PauseTurn is the stop reason of an answer that the server interrupted and continues when it receives it back.
const PauseTurn = "pause_turn"

// DecodeResponse implements dialect.Codec. The answer is a *Message.
func (Codec) DecodeResponse(body []byte) (dialect.Response, error) {
	m := &Message{}
	if err := jsonread.Unmarshal(body, m); err != nil {
		return nil, malformed(err)
	}
	if m.Error != nil {
		return nil, m.Error.toError(body)
	}
	if m.Content == nil {
		return nil, malformed(nil)
	}
	return m, nil
}

// TokenUsages returns the usage of each pass of the model that the answer took, in order; nil if the server does not
// report it.
func (m *Message) TokenUsages() []*modelv1.ModelUsage { return m.Usage.messages() }

// Output implements dialect.Response.
func (m *Message) Output(tools []*toolv1.ToolInfo) (*modelv1.ModelOutput, error) {
	blocks, err := parseBlocks(m.Content)
	if err != nil {
		return nil, malformed(err)
	}
	parts, calls := readSpoken(blocks, tools)
	message := chat.Generated(m.Model)
	message.Content, message.ToolCalls = chat.ListContent(parts...), calls
	choice := &modelv1.Choice{Message: message, StopReason: stopReasons.Of(m.StopReason), StopDetails: m.Details.message()}
	output := dialect.NewOutput(m.ID, m.Model, m.Usage.message(), choice)
	output.MetadataJson = m.metadata()
	m.fallback(output, blocks)
	return output, nil
}

// stopReasons are the stop reasons of the format; all others are unknown.
var stopReasons = dialect.StopReasons{
	"end_turn":      modelv1.StopReason_STOP_REASON_STOP,
	"stop_sequence": modelv1.StopReason_STOP_REASON_STOP,
	"tool_use":      modelv1.StopReason_STOP_REASON_TOOL_CALLS,
	"max_tokens":    modelv1.StopReason_STOP_REASON_MAX_TOKENS,
	"refusal":       modelv1.StopReason_STOP_REASON_CONTENT_FILTER,
}

func (d *stopDetails) message() *modelv1.StopDetails {
	if d == nil {
		return nil
	}
	var categories []*modelv1.StopCategory
	if d.Category != "" {
		categories = append(categories, &modelv1.StopCategory{Category: d.Category})
	}
	return chat.NewStopDetails(d.Type, d.Category, d.Explanation, categories...)
}

// iteration is the usage of one pass of the model.
type iteration struct {
	Type string `json:"type"`
	usage
}

// fallbackIteration is the type of the pass of a model that answered in place of another. Of such an answer the usage
// is that of this pass.
const fallbackIteration = "fallback_message"

// passes are the passes that an answer took, such as one that compacted the conversation before. The members beside
// them do not include those before the last: https://platform.claude.com/docs/en/build-with-claude/compaction. Nil if
// there is only what those members count.
func (u *usage) passes() []iteration {
	var all []iteration
	if json.Unmarshal(u.Iterations, &all) != nil {
		return nil
	}
	if slices.ContainsFunc(all, func(i iteration) bool { return i.Type == fallbackIteration || i.Input == nil || i.Output == nil }) {
		return nil
	}
	return all
}

// messages is the usage of each pass.
func (u *usage) messages() []*modelv1.ModelUsage {
	if u == nil {
		return nil
	}
	passes := u.passes()
	if len(passes) == 0 {
		return []*modelv1.ModelUsage{u.single()}
	}
	last := &passes[len(passes)-1].usage
	last.Details.Thinking = cmp.Or(last.Details.Thinking, u.Details.Thinking)
	var all []*modelv1.ModelUsage
	for i := range passes {
		pass := &passes[i].usage
		pass.CacheWrite, pass.CacheRead = known(pass.CacheWrite, u.CacheWrite), known(pass.CacheRead, u.CacheRead)
		all = append(all, pass.single())
	}
	return all
}

// known is the count of a pass. One of 0 is unknown if the whole answer does not count such tokens.
func known(pass, whole *dialect.Tokens) *dialect.Tokens {
	if pass != nil && *pass == 0 && whole == nil {
		return nil
	}
	return pass
}

// message is the usage of all passes; nil if the server does not report it.
func (u *usage) message() (sum *modelv1.ModelUsage) {
	for _, pass := range u.messages() {
		sum = chat.AddUsage(sum, pass)
	}
	return sum
}

// single is what the members themselves count.
func (u *usage) single() *modelv1.ModelUsage {
	m := &modelv1.ModelUsage{
		InputTokens:           int64(*cmp.Or(u.Input, new(dialect.Tokens))),
		OutputTokens:          int64(*cmp.Or(u.Output, new(dialect.Tokens))),
		InputTokensCacheWrite: (*int64)(u.CacheWrite), InputTokensCacheRead: (*int64)(u.CacheRead),
		ReasoningTokens: (*int64)(u.Details.Thinking),
	}
	if m = chat.KnownUsage(m); m != nil {
		m.TotalTokens = chat.SumTokens(chat.InputTokens(m), m.GetOutputTokens())
	}
	return m
}

// metadata returns the other data of the answer, as a JSON object; empty if there is none.
func (m *Message) metadata() string {
	body, all := &orderedjson.Object{}, &orderedjson.Object{}
	setRaw(body, "context_management", m.ContextManagement)
	setRaw(body, "service_tier", m.ServiceTier)
	setRaw(all, "diagnostics", m.Diagnostics)
	if body.Len() > 0 {
		all.Set("extra_body", body)
	}
	if all.Len() == 0 {
		return ""
	}
	return string(orderedjson.Append(nil, all))
}

// setRaw sets a member to a JSON value, if there is one.
func setRaw(o *orderedjson.Object, name string, raw json.RawMessage) {
	if value, err := orderedjson.Decode(raw); err == nil && value != nil {
		o.Set(name, value)
	}
}

// handoff is a block that says which model continues in the place of another.
type handoff struct {
	Type     string
	From, To struct{ Model string }
}

// fallback names the model that answered in place of the requested one, if the server reports it.
func (m *Message) fallback(output *modelv1.ModelOutput, blocks []wireBlock) {
	var handoffs []any
	var first, last string
	for i := range blocks {
		var change handoff
		if blocks[i].Type != FallbackBlock || json.Unmarshal(blocks[i].raw, &change) != nil {
			continue
		}
		first, last = cmp.Or(first, change.From.Model), change.To.Model
		handoffs = append(handoffs, new(orderedjson.Object).With("from", change.From.Model).With("to", last))
	}
	if len(handoffs) == 0 {
		return
	}
	metadata := new(orderedjson.Object).With("handoffs", handoffs)
	if m.Usage != nil {
		setRaw(metadata, "iterations", m.Usage.Iterations)
	}
	output.Model, output.Choices[0].Message.Model = last, last
	output.Fallback = &modelv1.ModelFallback{
		Model: first, FallbackModel: last, Count: int32(len(handoffs)), MetadataJson: string(orderedjson.Append(nil, metadata)),
	}
}
