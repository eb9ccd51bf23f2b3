package generate

import (
	"context"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/seal"
)

// Seal is the stage that notes in the reasoning of answers who can read its seals: those who read the model's.
func Seal(next Func) Func {
	return func(ctx context.Context, c *Call, o *Outcome) (*provider.Response, error) {
		sealer := c.Sealer
		if sealer == "" {
			return next(ctx, c, o)
		}
		if c.Sink != nil {
			sealing := *c
			sealing.Sink = sealingSink{c.Sink, sealer}
			c = &sealing
		}
		response, err := next(ctx, c, o)
		if err != nil {
			return nil, err
		}
		for _, choice := range response.Output.GetChoices() {
			seal.Mark(choice.GetMessage(), sealer)
		}
		for _, m := range response.Compacted {
			seal.Mark(m, sealer)
		}
		return response, nil
	}
}

// sealingSink notes it in the pieces of an answer.
type sealingSink struct {
	Sink
	sealer string
}

// Delta implements Sink.
func (s sealingSink) Delta(ctx context.Context, d *modelv1.GenerateDelta) {
	s.Sink.Delta(ctx, seal.MarkDelta(d, s.sealer))
}
