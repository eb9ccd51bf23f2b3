package mockllm

import (
	"context"
	"time"
	"unicode/utf8"

	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
	"github.com/evalfleet/evalfleet/pkg/retry"
	"github.com/evalfleet/evalfleet/pkg/seconds"
	"github.com/evalfleet/evalfleet/pkg/tokens"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// unscripted is the answer of a model without a script.
var unscripted = &answer{short: shortForm{Text: "Default output from mockllm/model", Model: Name}}

// A streamed answer is split into pieces of so many characters, or longer ones if there would be too many.
const (
	chunkRunes = 16
	maxPieces  = 32
)

var features = &modelv1.Capabilities{Tools: true, Images: true, Audio: true, Video: true, Streaming: true, ResponseSchema: true, Reasoning: true}

// ignored are options that would affect an answer but do not: the script alone determines it.
var ignored = []string{"num_choices", "logprobs", "top_logprobs"}

// Capabilities implements provider.Provider.
func (m *model) Capabilities() provider.Capabilities {
	return provider.Capabilities{Features: features, Ignored: ignored}
}

// Check implements provider.Provider: any call may succeed.
func (*model) Check(*modelv1.GenerateConfig) error { return nil }

// Close implements provider.Provider.
func (m *model) Close() error { return nil }

// contextTokens is the context window, as in Inspect.
const contextTokens = 128_000

// ContextTokens implements provider.Windowed.
func (m *model) ContextTokens() (int64, bool) { return contextTokens, true }

// Generate implements provider.Provider.
func (m *model) Generate(ctx context.Context, r *provider.Request) (*provider.Response, error) {
	c := callOf(r)
	if err := m.host.log.append(r, c); err != nil {
		return nil, err
	}
	start := time.Now()
	a, err := m.choose(ctx, r, c)
	if err != nil {
		return nil, err
	}
	output := a.build(Name+"/"+m.name, c.turn, r.Tools)
	if err := m.say(ctx, r, a, output); err != nil {
		return nil, r.Recorded(err, func() *modelv1.ModelCall { return recordFailure(Name+"/"+m.name, r.Messages, err, start) })
	}
	if output.GetUsage() == nil {
		output.Usage = usage(r, output)
	}
	output.Time = provider.Clock(start)
	response := &provider.Response{Output: output}
	if r.Record.Of(nil) {
		response.Call = record(Name+"/"+m.name, r.Messages, output)
	}
	return response, nil
}

// choose returns the answer to a call. Of the ordered list every attempt takes the next one.
func (m *model) choose(ctx context.Context, r *provider.Request, c call) (*answer, error) {
	s, err := m.script(ctx)
	if err != nil {
		return nil, err
	}
	if s == nil {
		return unscripted, nil
	}
	if a, err := s.choose(ctx, c); a != nil || err != nil {
		return a, err
	}
	if len(s.list) > 0 {
		if place := m.places.next(r); place < len(s.list) {
			return s.list[place], nil
		}
	}
	if s.last != nil {
		return s.last, nil
	}
	return nil, m.exhausted(s, c)
}

// say waits as the script says, and streams the answer; it fails where the script or the context ends the attempt.
func (m *model) say(ctx context.Context, r *provider.Request, a *answer, output *modelv1.ModelOutput) error {
	if err := retry.Sleep(ctx, seconds.Duration(a.short.Delay)); err != nil {
		return err
	}
	if err := m.stream(ctx, r, a, output); err != nil {
		return err
	}
	if a.fails(r.Attempt) {
		return a.failure()
	}
	return nil
}

// stream gives the answer out in pieces, as far as it gets before a failure.
func (m *model) stream(ctx context.Context, r *provider.Request, a *answer, output *modelv1.ModelOutput) error {
	if r.Stream == nil && r.Progress == nil {
		return nil
	}
	left := -1
	if a.fails(r.Attempt) {
		left = a.short.Error.AfterChunks
	}
	for i, choice := range output.GetChoices() {
		for _, delta := range deltas(int32(i), choice.GetMessage()) {
			if left == 0 {
				return nil
			}
			left--
			if err := retry.Sleep(ctx, seconds.Duration(a.short.ChunkDelay)); err != nil {
				return err
			}
			if r.Progress != nil {
				r.Progress()
			}
			if err := r.HoldSaid(ctx, delta); err != nil {
				return err
			}
			if r.Stream != nil {
				r.Stream(delta)
			}
		}
	}
	return nil
}

// deltas cuts a message into pieces.
func deltas(choice int32, m *modelv1.ChatMessage) []*modelv1.GenerateDelta {
	var all []*modelv1.GenerateDelta
	for _, part := range m.GetContent().GetList().GetParts() {
		for _, piece := range pieces(part.GetReasoning().GetReasoning()) {
			all = append(all, &modelv1.GenerateDelta{Choice: choice, Piece: &modelv1.GenerateDelta_Reasoning{Reasoning: piece}})
		}
	}
	for _, piece := range pieces(chat.Text(m)) {
		all = append(all, &modelv1.GenerateDelta{Choice: choice, Piece: &modelv1.GenerateDelta_Text{Text: piece}})
	}
	for i, call := range m.GetToolCalls() {
		delta := &modelv1.ToolCallDelta{Index: int32(i), Id: call.GetId(), Function: call.GetFunction()}
		for _, piece := range pieces(call.GetArgumentsJson()) {
			delta.Arguments = piece
			all = append(all, &modelv1.GenerateDelta{Choice: choice, Piece: &modelv1.GenerateDelta_ToolCall{ToolCall: delta}})
			delta = &modelv1.ToolCallDelta{Index: int32(i)}
		}
	}
	return all
}

func pieces(text string) []string {
	size := max(chunkRunes, len(text)/maxPieces)
	var all []string
	for text != "" {
		end, runes := 0, 0
		for end < len(text) && runes < size {
			_, bytes := utf8.DecodeRuneInString(text[end:])
			end += bytes
			runes++
		}
		all, text = append(all, text[:end]), text[end:]
	}
	return all
}

func (a *answer) failure() *provider.Error {
	e := a.short.Error
	failure := &provider.Error{
		Provider: Name, Status: e.Status, Message: e.Message, RetryAfter: seconds.Duration(e.RetryAfter),
		Class: provider.ClassOf(e.Status), Auth: e.Status == 401 || e.Status == 403,
	}
	if e.Status == 0 {
		failure.Class = provider.Transient
	}
	return failure
}

// usage estimates the usage of an answer if the script does not set it.
func usage(r *provider.Request, output *modelv1.ModelOutput) *modelv1.ModelUsage {
	in := tokens.RoughTools(r.Tools)
	if r.Tokens != nil {
		in += r.Tokens()
	} else {
		in += tokens.Rough(r.Messages)
	}
	out := int64(0)
	if m := chat.FirstMessage(output); m != nil {
		out = tokens.Rough([]*modelv1.ChatMessage{m})
	}
	return &modelv1.ModelUsage{InputTokens: in, OutputTokens: out, TotalTokens: in + out}
}

func record(model string, messages []*modelv1.ChatMessage, output *modelv1.ModelOutput) *modelv1.ModelCall {
	var response jsonwrite.Writer
	response.BeginObject()
	response.TextMember("content", chat.Completion(output))
	response.EndObject()
	return &modelv1.ModelCall{RequestJson: requestOf(model, messages), ResponseJson: response.String(), Time: output.Time}
}

// recordFailure records an attempt that failed. One that the context ended has no answer.
func recordFailure(model string, messages []*modelv1.ChatMessage, err error, start time.Time) *modelv1.ModelCall {
	call := &modelv1.ModelCall{RequestJson: requestOf(model, messages), Error: true, Time: provider.Clock(start)}
	failure, said := provider.As(err)
	if !said {
		return call
	}
	var response jsonwrite.Writer
	response.BeginObject()
	response.Key("error")
	response.BeginObject()
	response.IntMember("status", int64(failure.Status))
	response.TextMember("message", failure.Message)
	response.EndObject()
	response.EndObject()
	call.ResponseJson = response.String()
	return call
}

func requestOf(model string, messages []*modelv1.ChatMessage) string {
	var request jsonwrite.Writer
	request.BeginObject()
	request.TextMember("model", model)
	request.RawMember("messages", string(chat.MessagesJSON(messages)))
	request.EndObject()
	return request.String()
}
