// Package generate is the pipeline around a provider. Each stage is a decorator of one function type, and knows none of
// the others: it reads the call, which no stage changes, and adds to the outcome, which all share.
//
//	cache → measure → budget → retry → admission → attempt
//
// The order matters. An answer from the cache takes no slot and costs nothing, and is no call to measure. A call
// reserves its budget once, however often it is tried. Each attempt takes a slot of its own, so that a call which
// sleeps between attempts holds none.
package generate

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/prepare"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// Func answers a call. What becomes known of it meanwhile is added to o, also where the call fails.
type Func func(ctx context.Context, c *Call, o *Outcome) (*provider.Response, error)

// Stage puts something around a Func.
type Stage func(next Func) Func

// Chain puts stages around f, the outermost first.
func Chain(f Func, stages ...Stage) Func {
	for i := len(stages) - 1; i >= 0; i-- {
		f = stages[i](f)
	}
	return f
}

// Call is one call of a model. It is not changed while it is under way.
type Call struct {
	Model *provider.Model
	// BaseURL and Args are those of the request.
	BaseURL, Args string
	// Conversation is what reaches the provider.
	prepare.Conversation
	Origin provider.Origin
	// Scopes are further scopes whose budgets the call spends from.
	Scopes []string
	// Record reports whether to keep what is said to the provider.
	Record provider.Record
	// UnreadTokens estimates what the call asks for beside the conversation: the whole input, where that is passed on
	// unread.
	UnreadTokens int64
	// Sink follows the answer as it comes. Nil: nobody does.
	Sink Sink
	// OnRetry is told of every failure that another attempt follows, before the call sleeps, and of nil when it has
	// slept. Nil: nobody is.
	OnRetry func(*modelv1.FailedAttempt)
	// Committed ends the call with the first failure after a piece of the answer: whoever follows cannot take back what
	// it was given.
	Committed bool
	// MaxWait ends the call where the wait before the next attempt would be longer: whoever asked would not be there
	// any more. Zero is no bound.
	MaxWait time.Duration
}

// Sink follows a call. Its methods are called from one goroutine at a time, and not once the call has returned. They do
// not wait for whoever reads.
type Sink interface {
	// Started says that an attempt begins.
	Started(attempt int)
	// Delta is a piece of the answer.
	Delta(d *modelv1.GenerateDelta)
	// Restart says that an attempt begins and that what was streamed before is void.
	Restart(attempt int)
}

// Outcome is what became known of a call: where its time went, and which attempts failed. It belongs to one goroutine.
type Outcome struct {
	// Start is when the call began.
	Start time.Time
	// Queued was spent waiting for capacity, RetryWait asleep between attempts, Working in attempts.
	Queued, RetryWait, Working time.Duration
	// Attempts counts calls of the provider, with the one under way.
	Attempts int
	Failed   []*modelv1.FailedAttempt
	// records are those of the latest of Failed; nil where none was asked for.
	records []*modelv1.ModelCall
	Cache   modelv1.CacheUse
	// BrokenOff says that the answer ended before its end, which whoever it went to has seen.
	BrokenOff bool
	// unfinished is what streams took that were left before their end, and an estimate of what an answer took that does
	// not say so.
	unfinished *modelv1.ModelUsage
	// streamed says that the attempt under way has given a piece of an answer.
	streamed bool
}

// Timing returns where the time of a call went, up to now.
func (o *Outcome) Timing() *effectv1.Timing {
	return &effectv1.Timing{
		StartTime: timestamppb.New(o.Start),
		EndTime:   timestamppb.Now(),
		Queued:    durationpb.New(o.Queued),
		RetryWait: durationpb.New(o.RetryWait),
		Working:   durationpb.New(o.Working),
		Attempts:  int32(o.Attempts),
	}
}
