package journal

import (
	"context"
	"iter"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
)

// All yields a journal's events after a sequence number, page by page. A failure is yielded as the last pair.
func All(ctx context.Context, j interface {
	Read(context.Context, Ref, Range) ([]*agentv1.Event, error)
}, ref Ref, after int64,
) iter.Seq2[*agentv1.Event, error] {
	return func(yield func(*agentv1.Event, error) bool) {
		for {
			page, err := j.Read(ctx, ref, Range{After: after})
			if err != nil {
				yield(nil, err)
				return
			}
			if len(page) == 0 {
				return
			}
			for _, event := range page {
				if !yield(event, nil) {
					return
				}
			}
			after = page[len(page)-1].GetSeq()
		}
	}
}
