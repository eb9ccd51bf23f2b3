package anthropic

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	format "github.com/evalfleet/evalfleet/pkg/dialect/anthropic"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/orderedjson"
	"github.com/evalfleet/evalfleet/pkg/retry"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/buffer"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/transport"
)

const (
	// maxPauses bounds how often one attempt gives the server a turn back to go on with.
	maxPauses = 100
	// countTimeout bounds a question for a number of tokens.
	countTimeout = 10 * time.Second
)

// Generate implements provider.Provider.
func (m *model) Generate(ctx context.Context, r *provider.Request) (*provider.Response, error) {
	p, err := m.plan(r)
	if err != nil {
		return nil, err
	}
	body, err := buffer.Of(p.Append)
	if err != nil {
		return nil, unsupported(err)
	}
	defer body.Release()
	a := &attempt{model: m, plan: p, request: r, start: time.Now(), left: r.AnswerBound()}
	output, err := a.run(ctx, body)
	if err != nil {
		if failure, ok := provider.As(err); ok && r.Record.Of(err) {
			failure.Call = transport.Record(body.Bytes, a.raw, true, a.start)
		}
		return nil, err
	}
	output.Time = provider.Clock(a.start)
	response := &provider.Response{Output: output, Warnings: p.warnings}
	if r.Record.Of(nil) {
		response.Call = transport.Record(body.Bytes, a.raw, false, a.start)
	}
	return response, nil
}

func unsupported(err error) error {
	what := err.Error()
	if u, ok := errors.AsType[*format.UnsupportedError](err); ok {
		what = u.What
	}
	return rpcerr.CapabilityUnsupported(what, "%s: %w", Name, err)
}

// attempt is one attempt of a call.
type attempt struct {
	*model
	plan    *plan
	request *provider.Request
	start   time.Time
	// raw is the first answer, where it is to be recorded.
	raw []byte
	// left is how much of the answer, with all its paused turns, may still be read.
	left int64
}

// run asks for the answer, and gives a turn that the server paused back to it until it has ended. What a paused turn took is counted each time.
func (a *attempt) run(ctx context.Context, body *buffer.Buffer) (*modelv1.ModelOutput, error) {
	var content []json.RawMessage
	var usage *modelv1.ModelUsage
	var contextTokens *int64
	for pauses := 0; ; pauses++ {
		message, stopped, err := a.exchange(ctx, body)
		if err != nil || stopped != nil {
			return stopped, err
		}
		taken := message.TokenUsage()
		usage = chat.AddUsage(usage, taken)
		if contextTokens == nil && taken != nil {
			contextTokens = new(chat.InputTokens(taken))
		}
		content = append(content, message.Content...)
		if message.StopReason == format.PauseTurn && pauses < maxPauses {
			a.plan.Paused = content
			if body, err = buffer.Of(a.plan.Append); err != nil {
				return nil, unsupported(err)
			}
			defer body.Release()
			continue
		}
		message.Content = content
		output, err := message.Output(a.request.Tools)
		if err != nil {
			return nil, a.invalid(err)
		}
		output.Usage, output.InputContextTokens = usage, contextTokens
		a.countReasoning(ctx, output)
		if a.plan.degraded != nil {
			output.MetadataJson = withMember(output.GetMetadataJson(), degradedMember, a.plan.degraded)
		}
		return output, nil
	}
}

// exchange sends the request and reads the answer. stopped is the output that a refusal of the request stands for.
func (a *attempt) exchange(ctx context.Context, body *buffer.Buffer) (message *format.Message, stopped *modelv1.ModelOutput, err error) {
	answer, err := a.post(ctx, "/v1/messages", body)
	if err != nil {
		return nil, nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode/100 == 3 {
		return nil, nil, provider.Redirected(Name)
	}
	if answer.StatusCode == http.StatusOK && a.plan.Stream && !transport.IsJSON(answer.Header) {
		events := transport.NewEvents(a.request.Record != provider.RecordNone && a.raw == nil)
		message, stopped, err = a.stream(ctx, answer, events)
		if a.raw == nil {
			a.raw = events.Document()
		}
		return message, stopped, err
	}
	var read *buffer.Buffer
	if answer.StatusCode == http.StatusOK {
		read, err = transport.ReadWhole(answer, a.left)
	} else {
		read, err = transport.Read(answer, transport.MaxErrorBytes)
	}
	defer read.Release()
	a.left -= int64(len(read.Bytes))
	if a.raw == nil && a.request.Record != provider.RecordNone {
		a.raw = bytes.Clone(read.Bytes)
	}
	if answer.StatusCode != http.StatusOK {
		stopped, err = a.refused(answer, answer.StatusCode, format.DecodeError(read.Bytes))
		return nil, stopped, err
	}
	if err != nil {
		return nil, nil, transport.Broken(ctx, Name, err)
	}
	if a.request.Progress != nil {
		a.request.Progress()
	}
	message, err = format.Decode(read.Bytes)
	if said, ok := errors.AsType[*format.Error](err); ok {
		stopped, err = a.refused(answer, said.Status(), said)
		return nil, stopped, err
	}
	if err != nil {
		return nil, nil, a.invalid(err)
	}
	return message, nil, nil
}

// post sends a request to a path below the account's address.
func (a *attempt) post(ctx context.Context, path string, body *buffer.Buffer) (*http.Response, error) {
	post, err := transport.NewPost(ctx, a.endpoint+path, body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", Name, err)
	}
	post.Header = a.header(a.plan)
	answer, err := a.http.Do(post)
	if err != nil {
		return nil, transport.Broken(ctx, Name, err)
	}
	return answer, nil
}

// stream reads an answer that comes in pieces, and keeps them as events. One that is cut off is taken as far as it came; one that never began is a failure.
func (a *attempt) stream(ctx context.Context, answer *http.Response, events *transport.Events) (message *format.Message, stopped *modelv1.ModelOutput, err error) {
	var s format.Stream
	pieces := int64(0)
	defer func() {
		if s.Started() && stopped == nil && !s.Ended() && a.request.Unfinished != nil {
			a.request.Unfinished(s.Usage(), pieces)
		}
	}()
	for event, err := range dialect.Events(events.From(transport.Limit(answer.Body, &a.left))) {
		if err != nil {
			return nil, nil, transport.Broken(ctx, Name, err)
		}
		if a.request.Progress != nil {
			a.request.Progress()
		}
		events.Add(event.Data)
		deltas, err := s.Add(event.Data)
		if said, ok := errors.AsType[*format.Error](err); ok {
			stopped, err = a.refused(answer, said.Status(), said)
			return nil, stopped, err
		}
		if err != nil {
			return nil, nil, a.invalid(err)
		}
		pieces += int64(len(deltas))
		if a.request.Stream != nil {
			for _, delta := range deltas {
				a.request.Stream(delta)
			}
		}
		if s.Ended() {
			break
		}
	}
	if !s.Started() {
		return nil, nil, a.invalid(errors.New("the stream ended before anything came"))
	}
	return s.Message(), nil, nil
}

// refused says what an error of the server means. status is 0 where neither the answer nor the error has one.
func (a *attempt) refused(answer *http.Response, status int, said *format.Error) (*modelv1.ModelOutput, error) {
	if output, stops := said.Stop(status, string(a.name)); stops {
		return output, nil
	}
	return nil, &provider.Error{
		Provider: Name, Class: class(status, said), Status: status, Message: said.Message,
		Auth: status == http.StatusUnauthorized, RetryAfter: retry.After(answer.Header, time.Now()),
	}
}

// class says whether a refused request may be repeated.
func class(status int, said *format.Error) provider.Class {
	if class := provider.ClassOf(status); class != provider.Final {
		return class
	}
	if said.Transient() {
		return provider.Transient
	}
	return provider.Final
}

func (a *attempt) invalid(err error) error {
	return &provider.Error{Provider: Name, Invalid: true, Status: http.StatusOK, Cause: err}
}

// countReasoning fills in how many tokens were thought where the server does not say: it counts the shown thinking as it would count input. The answer is
// whole without it, so that a count that fails leaves it out.
func (a *attempt) countReasoning(ctx context.Context, output *modelv1.ModelOutput) {
	if output.GetUsage() == nil || output.GetUsage().ReasoningTokens != nil {
		return
	}
	var total int64
	for _, part := range chat.FirstMessage(output).GetContent().GetList().GetParts() {
		shown := part.GetReasoning().GetSummary()
		if shown == "" {
			continue
		}
		tokens, err := a.count(ctx, shown)
		if err != nil {
			return
		}
		total += tokens
	}
	if total > 0 {
		output.Usage.ReasoningTokens = &total
	}
}

// count asks how many tokens a text is.
func (a *attempt) count(ctx context.Context, text string) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	question := &format.Request{Model: string(a.name), Messages: []*modelv1.ChatMessage{chat.User(text)}, Cache: format.Cache{Off: true}}
	body, err := buffer.Of(question.AppendCount)
	if err != nil {
		return 0, err
	}
	defer body.Release()
	answer, err := a.post(ctx, "/v1/messages/count_tokens", body)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	read, err := transport.Read(answer, transport.MaxErrorBytes)
	defer read.Release()
	if err != nil {
		return 0, err
	}
	return format.DecodeCount(read.Bytes)
}

// withMember adds a member to a JSON object as text, where empty is none.
func withMember(document, name string, value any) string {
	object, err := orderedjson.DecodeObject([]byte(document))
	if err != nil {
		object = &orderedjson.Object{}
	}
	object.Set(name, value)
	return string(orderedjson.Append(nil, object))
}
