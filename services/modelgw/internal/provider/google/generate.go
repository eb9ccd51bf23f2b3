package google

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	format "github.com/evalfleet/evalfleet/pkg/dialect/gemini"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/buffer"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/exchange"
)

// quirks interpret the errors of the API.
var quirks = exchange.Quirks{
	Class: func(status int, e *dialect.Error, class provider.Class) provider.Class {
		switch {
		case status == http.StatusTooManyRequests && (e.Code == format.CodeDaily || strings.Contains(e.Message, "limit: 0")):
			return provider.Final // Waiting gives the account no quota, or none before the next day.
		case status == http.StatusServiceUnavailable && e.Type == format.StatusExhausted:
			return provider.RateLimit
		default:
			return class
		}
	},
	Auth: func(e *dialect.Error) bool { return e.Code == "API_KEY_INVALID" },
}

const (
	// maxTries bounds how often one attempt asks for a call that the server can read.
	maxTries = 3
	// again asks for one.
	again = "The call of a function in your last message could not be read. Call the function again, with its name and its arguments as declared."
)

// Check implements provider.Provider.
func (m *model) Check(c *modelv1.GenerateConfig) error {
	return provider.CheckOutputs(Name+"/"+string(m.name), c)
}

// Generate implements provider.Provider. Files that Google no longer has, or not for this account, are uploaded again.
func (m *model) Generate(ctx context.Context, r *provider.Request) (*provider.Response, error) {
	if err := m.Check(r.Config); err != nil {
		return nil, err
	}
	response, remembered, err := m.generate(ctx, r)
	if len(remembered) > 0 && refusesFile(err) {
		m.files.forget(remembered)
		response, _, err = m.generate(ctx, r)
	}
	return response, err
}

// generate makes an attempt. It also returns the addresses of the files that were uploaded before.
func (m *model) generate(ctx context.Context, r *provider.Request) (response *provider.Response, remembered []string, err error) {
	request := m.request(r)
	if err := m.native(request); err != nil {
		return nil, nil, err
	}
	if request.Files, remembered, err = m.files.of(ctx, r); err != nil {
		return nil, nil, err
	}
	r = restored(r, request.Computer)
	a := &attempt{model: m, sent: request, request: r}
	response, err = m.exchange.AttemptSeries(r, a.sent.Append, func(s *exchange.Series, body *buffer.Buffer) (*modelv1.ModelOutput, error) {
		return a.run(ctx, s, body)
	})
	return response, remembered, err
}

// CountTokens implements provider.TokenCounter.
func (m *model) CountTokens(ctx context.Context, r *provider.Request) (int64, error) {
	request := m.request(r)
	if err := m.native(request); err != nil {
		return 0, err
	}
	return m.exchange.Count(ctx, &exchange.Call{URL: m.base + ":countTokens", Header: m.header.Clone(), Model: string(m.name)}, request.AppendCount)
}

// request makes the upstream request.
func (m *model) request(r *provider.Request) *format.Request {
	c := chat.Merge(r.Config)
	c.Seed = nil
	thinking, _ := m.thinking(c)
	return &format.Request{
		Request:  dialect.Request{Model: string(m.name), Messages: r.Messages, Tools: r.Tools, Choice: r.ToolChoice, Config: c, Stream: r.Streams(m.args.Streaming)},
		Thinking: thinking, ThinkTags: m.name.isOld(), Safety: m.safety, PlainCount: m.onVertex,
	}
}

// attempt is one attempt of a call.
type attempt struct {
	*model
	sent    *format.Request
	request *provider.Request
}

// run requests the answer. If the server could not read a call of the model, it returns the failure to the model and
// asks for the call again, unless a text before the call was streamed: watchers would see that text twice. Streamed
// thoughts of an earlier try stay in the stream.
func (a *attempt) run(ctx context.Context, s *exchange.Series, body *buffer.Buffer) (*modelv1.ModelOutput, error) {
	for try := 1; ; try++ {
		answer, err := s.Post(ctx, a.call(), body)
		if err != nil || answer.Stopped != nil {
			return answer.Stopped, err
		}
		said := answer.Response.(*format.Answer) // as its codec documents
		s.Add(said.TokenUsage())
		output, err := said.Output(a.request.Tools)
		if err != nil {
			return nil, a.exchange.Malformed(err)
		}
		if a.sent.Computer != "" {
			for _, choice := range output.GetChoices() {
				fromServer(choice.GetMessage(), a.sent.Computer)
			}
		}
		if unread, told := said.MalformedCall(); try == maxTries || !unread || told && a.request.Stream != nil {
			s.Account(output)
			return output, nil
		}
		a.sent.Messages = append(slices.Clip(a.sent.Messages), chat.FirstMessage(output), chat.User(again))
		if a.sent.Choice == nil || a.sent.Choice.GetMode() == toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_AUTO {
			a.sent.Choice = chat.ModeChoice(toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_ANY)
		}
		if body, err = a.exchange.Encode(a.sent.Append); err != nil {
			return nil, err
		}
		defer body.Release()
	}
}

// call is the target of a request. The key is in a header, since addresses are logged by others.
func (a *attempt) call() *exchange.Call {
	method := ":generateContent"
	if a.sent.Stream {
		method = ":streamGenerateContent?alt=sse"
	}
	header := a.header.Clone()
	for name, value := range a.request.Config.GetExtraHeaders().GetValues() {
		header.Set(name, value)
	}
	return &exchange.Call{URL: a.base + method, Header: header, Model: string(a.name), Stream: a.sent.Stream}
}
