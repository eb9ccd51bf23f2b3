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
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/bedrockaccess"
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
	return m.generate(ctx, p, r, func(output *modelv1.ModelOutput) (*modelv1.ModelOutput, error) { return output, nil })
}

// generate makes an attempt by a plan. finish makes its output of the model's.
func (m *model) generate(
	ctx context.Context, p *plan, r *provider.Request, finish func(*modelv1.ModelOutput) (*modelv1.ModelOutput, error),
) (*provider.Response, error) {
	r, restore := provider.Restored(r, p.offered)
	whole := func(output *modelv1.ModelOutput) (*modelv1.ModelOutput, error) {
		restore(output)
		return finish(output)
	}
	response, err := m.attempt(ctx, r, p, whole)
	if p.Stream && m.args.Streaming.Always == nil && bedrockaccess.LacksRight(err) {
		p.Stream = false
		if response, err = m.attempt(ctx, r, p, whole); err == nil {
			m.noStream.Store(true)
			p.warnings = append(p.warnings, bedrockaccess.NotStreamed(string(m.name)))
		}
	}
	if err != nil {
		return nil, err
	}
	response.Warnings = p.warnings
	return response, nil
}

// attempt makes an attempt with the account's credentials of now. finish makes its output of the model's.
func (m *model) attempt(
	ctx context.Context, r *provider.Request, p *plan, finish func(*modelv1.ModelOutput) (*modelv1.ModelOutput, error),
) (*provider.Response, error) {
	entry, err := m.door.enter(ctx)
	if err != nil {
		return nil, err
	}
	a := &attempt{model: m, entry: entry, plan: p, request: r}
	response, err := entry.AttemptSeries(r, p.Append, func(s *exchange.Series, body *buffer.Buffer) (*modelv1.ModelOutput, error) {
		output, err := a.run(ctx, s, body)
		if err != nil {
			return nil, err
		}
		return finish(output)
	})
	if failure, ok := provider.As(err); ok && failure.Auth && entry.refused != nil {
		entry.refused()
	}
	if err != nil {
		return nil, err
	}
	response.Billing = response.Billing.With(a.billing)
	return response, nil
}

// attempt is one attempt of a call.
type attempt struct {
	*model
	entry   *entry
	plan    *plan
	request *provider.Request
	// billing is what the answers say of their price.
	billing dialect.Billing
}

// run requests the answer, and sends a turn that the server paused back to it until the turn has ended.
func (a *attempt) run(ctx context.Context, s *exchange.Series, body *buffer.Buffer) (*modelv1.ModelOutput, error) {
	var content []json.RawMessage
	for pauses := 0; ; pauses++ {
		answer, err := s.Post(ctx, a.call(a.entry.messages(a.plan.Stream)), body)
		if err != nil || answer.Stopped != nil {
			return answer.Stopped, err
		}
		message := answer.Response.(*format.Message) // as its codec documents
		for _, usage := range message.TokenUsages() {
			s.Add(usage)
		}
		a.bill(message.Billing())
		content = append(content, message.Content...)
		if message.StopReason == format.PauseTurn && pauses < maxPauses {
			a.plan.Paused = content
			if body, err = a.entry.Encode(a.plan.Append); err != nil {
				return nil, err
			}
			defer body.Release()
			continue
		}
		message.Content = content
		output, err := message.Output(a.request.Tools)
		if err != nil {
			return nil, a.entry.Malformed(err)
		}
		s.Account(output)
		a.countReasoning(ctx, output)
		if a.plan.degraded != nil {
			output.MetadataJson = withMember(output.GetMetadataJson(), degradedMember, a.plan.degraded)
		}
		return output, nil
	}
}

// bill adds what an answer says of its price.
func (a *attempt) bill(said dialect.Billing) {
	if before := a.billing.LongCacheWrite; before != nil && said.LongCacheWrite != nil {
		said.LongCacheWrite = new(*before + *said.LongCacheWrite)
	}
	a.billing = a.billing.With(said)
}

// call is the target of a request at an address.
func (a *attempt) call(address string) *exchange.Call {
	return &exchange.Call{URL: address, Header: a.header(a.plan, a.entry), Model: string(a.name), Stream: a.plan.Stream}
}

// countReasoning sets the number of reasoning tokens if the server does not report it: it counts the shown thinking as
// input. The answer is complete without it, so a failed count is ignored.
func (a *attempt) countReasoning(ctx context.Context, output *modelv1.ModelOutput) {
	if output.GetUsage() == nil || output.GetUsage().ReasoningTokens != nil || a.entry.count == "" {
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
		Request: dialect.Request{Model: string(a.name), Messages: []*modelv1.ChatMessage{chat.User(text)}, Members: a.site.members(nil)}, Cache: format.Cache{Off: true},
	}
	return a.entry.Count(ctx, a.call(a.entry.count), question.AppendCount)
}

// counter is a model at a site that counts tokens.
type counter struct{ *model }

// CountTokens implements provider.TokenCounter.
func (m counter) CountTokens(ctx context.Context, r *provider.Request) (int64, error) {
	p, err := m.plan(r)
	if err != nil {
		return 0, err
	}
	entry, err := m.door.enter(ctx)
	if err != nil {
		return 0, err
	}
	p.ModelInAddress = false
	return entry.Count(ctx, &exchange.Call{URL: entry.count, Header: m.header(p, entry), Model: string(m.name)}, p.AppendCount)
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
