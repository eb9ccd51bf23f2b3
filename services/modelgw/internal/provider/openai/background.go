package openai

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/openairesponses"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/retry"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/buffer"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/exchange"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/responsesapi"
)

// An answer in the background: https://platform.openai.com/docs/guides/background.
const (
	// backgroundMember is the member of a request, and of extra_body, that asks for it.
	backgroundMember = "background"
	// pollEvery is the time between two questions for it.
	pollEvery = 5 * time.Second
	// maxLost bounds the questions in a row that are lost.
	maxLost = 5
	// cancelTimeout bounds the request that cancels it.
	cancelTimeout = 5 * time.Second
)

// background reports whether the server is to answer in the background; nil leaves it out of the request. A request in
// a batch is without it: the batch is in the background.
func (m *model) background(c *modelv1.GenerateConfig) *bool {
	if m.args.Background != nil {
		return m.args.Background
	}
	if given, ok := responsesapi.ExtraBodyOf(c).Get(backgroundMember); ok {
		if asked, isBool := given.(bool); isBool {
			return &asked
		}
		return nil
	}
	if m.name.takesLong() || c.GetReasoningMode() == "pro" {
		return new(true)
	}
	return nil
}

func (m *model) inBackground(c *modelv1.GenerateConfig) bool {
	asked := m.background(c)
	return asked != nil && *asked
}

// doInBackground makes an attempt whose answer the server makes in the background. What is recorded of the answer is
// the whole one. Once the attempt ends without it, the server is told to stop.
func (m *model) doInBackground(ctx context.Context, r *provider.Request, call *exchange.Call, encode func([]byte) ([]byte, error)) (*provider.Response, error) {
	var billing dialect.Billing
	response, err := m.responses.Attempt(r, encode, func(body *buffer.Buffer) (*modelv1.ModelOutput, []byte, error) {
		left := r.AnswerBound()
		answer, err := m.responses.Post(ctx, r, call, body, &left)
		for err == nil && answer.Stopped == nil {
			id, pending := openairesponses.Pending(answer.Response)
			if !pending {
				break
			}
			if answer, err = m.poll(ctx, r, id, &left); err != nil {
				m.cancel(ctx, r, id)
			}
		}
		if err != nil || answer.Stopped != nil {
			return answer.Stopped, answer.Raw, err
		}
		billing = answer.Billing()
		output, err := answer.Response.Output(r.Tools)
		if err != nil {
			return nil, answer.Raw, m.responses.Malformed(err)
		}
		return output, answer.Raw, nil
	})
	if response != nil {
		response.Billing = billing
	}
	return response, err
}

// poll asks for an answer after a while. A question that is lost is asked again, since the answer has been paid for.
func (m *model) poll(ctx context.Context, r *provider.Request, id string, left *int64) (exchange.Answer, error) {
	for lost, wait := 0, m.pollEvery; ; wait *= 2 {
		if err := retry.Sleep(ctx, wait); err != nil {
			return exchange.Answer{}, err
		}
		answer, err := m.responses.Post(ctx, r, &exchange.Call{URL: m.stored(id, ""), Method: http.MethodGet, Header: m.client.Header(r), Model: m.served}, nil, left)
		if lost++; err == nil || ctx.Err() != nil || provider.ClassOfError(err) == provider.Final || lost == maxLost {
			return answer, err
		}
	}
}

// cancel cancels an answer, also after the context has ended. If it fails, the server completes the answer, which is
// not read.
func (m *model) cancel(ctx context.Context, r *provider.Request, id string) {
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
	defer done()
	body, err := m.responses.Encode(func(dst []byte) ([]byte, error) { return append(dst, "{}"...), nil })
	if err != nil {
		return
	}
	defer body.Release()
	answer, err := m.responses.Send(ctx, &exchange.Call{URL: m.stored(id, "/cancel"), Header: m.client.Header(r)}, body)
	if err == nil {
		_ = answer.Body.Close()
	}
}

// stored is the address of a stored answer, with a method of it.
func (m *model) stored(id, method string) string {
	return provider.Below(m.responsesURL, "/"+url.PathEscape(id)+method)
}
