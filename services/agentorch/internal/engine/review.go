package engine

import (
	"context"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/decide"
)

const (
	// reviewTimeout bounds a review, which has no effect and can be repeated.
	reviewTimeout = 30 * time.Second
	// reviewAgain is the pause after a transient failure.
	reviewAgain = 500 * time.Millisecond
	// reviewPatience is how long a step waits for a review, so that most need no step of their own. Other agents of the
	// run, and its commands, wait as long.
	reviewPatience = 200 * time.Millisecond
)

// review is a request to toolexec to review an agent's calls. The answer is set before done is closed.
type review struct {
	request *toolv1.ReviewToolsRequest
	done    chan struct{}
	reviews []*toolv1.ToolReview
	err     error
	again   time.Time // when it is retried; zero if the answer is final
}

// review returns the answer of toolexec, or nil while the request is in flight. When it ends, the run looks again.
func (a *actor) review(wanted *decide.Review, now time.Time) *review {
	r := a.reviews[wanted.Key]
	if r == nil || r.over(now) || !r.of(wanted.Request) {
		r = a.askReview(wanted.Request)
		if a.reviews == nil {
			a.reviews = map[string]*review{}
		}
		a.reviews[wanted.Key] = r
		patience := time.NewTimer(reviewPatience)
		defer patience.Stop()
		select {
		case <-r.done:
		case <-patience.C:
			a.engine.working.Go(func() { <-r.done; a.post(mail{}) })
		}
	}
	select {
	case <-r.done:
	default:
		return nil
	}
	if !r.again.IsZero() {
		if a.again.IsZero() || r.again.Before(a.again) {
			a.again = r.again
		}
		return nil
	}
	delete(a.reviews, wanted.Key)
	return r
}

// of reports whether the review is of the same calls. The turn of the run may differ, since other agents continue.
func (r *review) of(wanted *toolv1.ReviewToolsRequest) bool {
	return slices.EqualFunc(r.request.GetCalls(), wanted.GetCalls(), func(a, b *toolv1.ToolCall) bool { return proto.Equal(a, b) }) &&
		slices.EqualFunc(r.request.GetTools(), wanted.GetTools(), func(a, b *toolv1.ToolRef) bool { return proto.Equal(a, b) })
}

// over reports whether a failed review is to be repeated.
func (r *review) over(now time.Time) bool {
	select {
	case <-r.done:
		return !r.again.IsZero() && !now.Before(r.again)
	default:
		return false
	}
}

// askReview starts a review of calls by toolexec.
func (a *actor) askReview(request *toolv1.ReviewToolsRequest) *review {
	r := &review{request: request, done: make(chan struct{})}
	a.engine.working.Go(func() {
		defer close(r.done)
		ctx, cancel := context.WithTimeout(a.engine.life, reviewTimeout)
		defer cancel()
		answer, err := a.engine.deps.Tools.ReviewTools(ctx, request)
		if r.reviews, r.err = answer.GetReviews(), err; err != nil && (rpcerr.Transient(err) || ctx.Err() != nil) {
			r.again = time.Now().Add(max(reviewAgain, rpcerr.RetryAfter(err)))
		}
	})
	return r
}
