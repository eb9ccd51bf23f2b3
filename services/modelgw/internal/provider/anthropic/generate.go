package anthropic

import (
	"context"
	"encoding/json"
	"time"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	format "github.com/evalfleet/evalfleet/pkg/dialect/anthropic"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/buffer"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/exchange"
)

const (
	// maxPauses bounds how often one attempt sends a turn back to the server to continue.
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
	r, restore := provider.Restored(r, p.offered)
	a := &attempt{model: m, plan: p, request: r, left: r.AnswerBound()}
	response, err := m.exchange.Attempt(r, p.Append, func(body *buffer.Buffer) (*modelv1.ModelOutput, []byte, error) {
		output, err := a.run(ctx, body)
		return output, a.raw, err
	})
	if err != nil {
		return nil, err
	}
	restore(response.Output)
	response.Warnings = p.warnings
	return response, nil
}

// attempt is one attempt of a call.
type attempt struct {
	*model
	plan    *plan
	request *provider.Request
	// raw is the answer to the first request, if it is to be recorded: the recorded request is the first one.
	raw []byte
	// left is how much of the answer, with all its paused turns, may still be read.
	left int64
}

// run requests the answer, and sends a turn that the server paused back to it until the turn has ended. The usage of
// each paused turn is counted, also if a later request fails.
func (a *attempt) run(ctx context.Context, body *buffer.Buffer) (_ *modelv1.ModelOutput, err error) {
	var content []json.RawMessage
	var usage *modelv1.ModelUsage
	defer func() {
		if err != nil && usage != nil && a.request.Unfinished != nil {
			a.request.Unfinished(usage, 0)
		}
	}()
	var contextTokens *int64
	for pauses := 0; ; pauses++ {
		answer, err := a.exchange.Post(ctx, a.request, a.call(path), body, &a.left)
		if pauses == 0 {
			a.raw = answer.Raw
		}
		if err != nil {
			return nil, err
		}
		if answer.Stopped != nil {
			answer.Stopped.Usage = chat.AddUsage(usage, answer.Stopped.GetUsage())
			return answer.Stopped, nil
		}
		message := answer.Response.(*format.Message) // as its codec documents
		taken := message.TokenUsage()
		usage = chat.AddUsage(usage, taken)
		if contextTokens == nil && taken != nil {
			contextTokens = new(chat.InputTokens(taken))
		}
		content = append(content, message.Content...)
		if message.StopReason == format.PauseTurn && pauses < maxPauses {
			a.plan.Paused = content
			if body, err = a.exchange.Encode(a.plan.Append); err != nil {
				return nil, err
			}
			defer body.Release()
			continue
		}
		message.Content = content
		output, err := message.Output(a.request.Tools)
		if err != nil {
			return nil, a.exchange.Malformed(err)
		}
		output.Usage, output.InputContextTokens = usage, contextTokens
		a.countReasoning(ctx, output)
		if a.plan.degraded != nil {
			output.MetadataJson = withMember(output.GetMetadataJson(), degradedMember, a.plan.degraded)
		}
		return output, nil
	}
}

// call is the target of a request, by its path below the account's address.
func (a *attempt) call(path string) *exchange.Call {
	return &exchange.Call{URL: a.endpoint + path, Header: a.header(a.plan), Model: string(a.name), Stream: a.plan.Stream}
}

// countReasoning sets the number of reasoning tokens if the server does not report it: it counts the shown thinking as
// input. The answer is complete without it, so a failed count is ignored.
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

// count requests the number of tokens of a text.
func (a *attempt) count(ctx context.Context, text string) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	question := &format.Request{
		Request: dialect.Request{Model: string(a.name), Messages: []*modelv1.ChatMessage{chat.User(text)}}, Cache: format.Cache{Off: true},
	}
	return a.exchange.Count(ctx, a.call(countPath), question.AppendCount)
}

// CountTokens implements provider.TokenCounter.
func (m *model) CountTokens(ctx context.Context, r *provider.Request) (int64, error) {
	p, err := m.plan(r)
	if err != nil {
		return 0, err
	}
	return m.exchange.Count(ctx, &exchange.Call{URL: m.endpoint + countPath, Header: m.header(p), Model: string(m.name)}, p.AppendCount)
}

// withMember adds a member to a JSON object in a text, which may be empty for none.
func withMember(document, name string, value any) string {
	object, err := orderedjson.DecodeObject([]byte(document))
	if err != nil {
		object = &orderedjson.Object{}
	}
	object.Set(name, value)
	return string(orderedjson.Append(nil, object))
}
