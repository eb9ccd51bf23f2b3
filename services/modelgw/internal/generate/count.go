package generate

import (
	"context"
	"fmt"
	"time"

	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// Count makes one attempt of a call that asks for a number of tokens: the innermost function of such calls. It fails
// with [provider.ErrCountsNone] if the provider counts none.
func Count(ctx context.Context, c *Call, o *Outcome) (*provider.Response, error) {
	o.Attempts++
	counter, ok := c.Model.Provider.(provider.TokenCounter)
	if !ok {
		return nil, provider.ErrCountsNone
	}
	r, _ := c.Model.WithToolNames(c.request(ctx, o))
	tokens, err := counter.CountTokens(ctx, r)
	if err != nil {
		return nil, err
	}
	return &provider.Response{Tokens: tokens}, nil
}

// Within cuts an attempt that takes longer than limit, which counts as transient.
func Within(limit time.Duration) Stage {
	return func(next Func) Func {
		return func(ctx context.Context, c *Call, o *Outcome) (*provider.Response, error) {
			ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w: the attempt took longer than %s", provider.ErrCut, limit))
			defer cancel()
			response, err := next(ctx, c, o)
			if err != nil {
				return nil, c.explain(ctx, err)
			}
			return response, nil
		}
	}
}
