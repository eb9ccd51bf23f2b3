package exchange

import (
	"context"

	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/buffer"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// Series are the requests of an attempt that takes several, because a later one depends on the answer before it. The
// usage of each counts, also if a later one fails. The recorded answer is that of the first request, which is the
// recorded one. A Series belongs to one attempt and is not safe for concurrent use.
type Series struct {
	exchange *Exchange
	request  *provider.Request
	// left is how much of all answers may still be read.
	left int64
	// begun means that the first request has been posted, and raw is its answer, if it is to be recorded.
	begun bool
	raw   []byte
	usage *modelv1.ModelUsage
	// passes are the usages whose sum that is.
	passes []*modelv1.ModelUsage
	// contextTokens are those of the first answer that reports its usage.
	contextTokens *int64
}

// AttemptSeries makes an attempt of several requests. encode appends the body of the first; run posts them.
func (x *Exchange) AttemptSeries(
	r *provider.Request, encode func(dst []byte) ([]byte, error), run func(s *Series, body *buffer.Buffer) (*modelv1.ModelOutput, error),
) (*provider.Response, error) {
	s := &Series{exchange: x, request: r, left: r.AnswerBound()}
	response, err := x.Attempt(r, encode, func(body *buffer.Buffer) (*modelv1.ModelOutput, []byte, error) {
		output, err := run(s, body)
		if err != nil && r.Unfinished != nil {
			for _, pass := range s.passes {
				r.Unfinished(pass, 0)
			}
		}
		return output, s.raw, err
	})
	if response != nil && len(s.passes) > 1 {
		response.Billing.Passes = s.passes
	}
	return response, err
}

// Post posts the next request. An output that a refusal represents has the usage of the answers before it too.
func (s *Series) Post(ctx context.Context, call *Call, body *buffer.Buffer) (Answer, error) {
	answer, err := s.exchange.Post(ctx, s.request, call, body, &s.left)
	if !s.begun {
		s.begun, s.raw = true, answer.Raw
	}
	if answer.Stopped != nil {
		s.add(answer.Stopped.GetUsage())
		answer.Stopped.Usage = s.usage
	}
	return answer, err
}

// Add adds the usage that an answer reports; nil is none.
func (s *Series) Add(usage *modelv1.ModelUsage) {
	s.add(usage)
	if s.contextTokens == nil && usage != nil {
		s.contextTokens = new(chat.InputTokens(usage))
	}
}

func (s *Series) add(usage *modelv1.ModelUsage) {
	s.usage = chat.AddUsage(s.usage, usage)
	if usage != nil {
		s.passes = append(s.passes, usage)
	}
}

// Account sets the usage of an output to that of all answers.
func (s *Series) Account(output *modelv1.ModelOutput) {
	output.Usage, output.InputContextTokens = s.usage, s.contextTokens
}
