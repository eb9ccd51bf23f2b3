// Package generate is the pipeline around a provider. Each stage is a decorator of one function type, independent of
// the others: it reads the call, which no stage modifies, and adds to the outcome, which all share.
//
//	cache → seal → measure → budget → retry → credential → admission → attempt
//
// The order matters. An answer from the cache takes no slot, costs nothing and is not measured as a call. A call
// reserves its budget once, however often it is retried. Each attempt takes a slot of its own, so that a call which
// sleeps between attempts holds none.
package generate

import (
	"context"
	"net/http"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/evalfleet/evalfleet/pkg/chat"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/limit"
	"github.com/evalfleet/evalfleet/pkg/limit/limitheader"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/batch"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/prepare"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// Func answers a call. It adds what becomes known of the call to o, also if the call fails.
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

// Call is one call of a model. It is not modified while it is in flight.
type Call struct {
	Model *provider.Model
	// Args are those of the request.
	Args string
	// Conversation is what is sent to the provider.
	prepare.Conversation
	// Sealer is who reads the seals of the answer's reasoning: that of the model's capabilities with the configuration.
	Sealer string
	// InputWindow is how many tokens of input the model takes, as the operator has set it; zero: it is not set.
	InputWindow int64
	Origin      provider.Origin
	// Scopes are further scopes whose budgets the call spends from.
	Scopes []string
	// Compact makes the call shorten the conversation by these instructions, which may be empty; nil continues it.
	Compact *string
	// Counts makes the call ask for the number of tokens of its conversation, with [Count].
	Counts bool
	// Record selects whether to record the exchange with the provider.
	Record provider.Record
	// UnreadTokens estimates the tokens that the call sends beside the conversation: the whole input, if the input is
	// relayed unread.
	UnreadTokens int64
	// Sink follows the answer as it arrives. Nil: no watcher.
	Sink Sink
	// OnRetry is called with every failure that another attempt follows, before the call sleeps, and with nil after it
	// has slept. Nil ignores retries.
	OnRetry func(*modelv1.FailedAttempt)
	// Patience is how often the call is retried if its configuration has no bound; zero is without a bound.
	Patience int
	// Serves reports whether the instance of the model for another credential serves the call too; nil if each does.
	Serves func(*provider.Model) bool
	// Mode is the mode of the provider that a call asks for which is relayed unread, as in [provider.Moded].
	Mode string
	// Beginning identifies the conversation of a call that is relayed unread; nil: the messages do.
	Beginning func() []byte
	// Committed makes the call fail with the first failure after a piece of the answer: the follower cannot discard
	// received pieces.
	Committed bool
	// Batched transports the requests of the call in batches. Nil: the call is not batched.
	Batched *batch.Ride
	// Past is what is known of a batched call from requests with its key before.
	Past batch.Past
	// MaxWait makes the call fail if the wait before the next attempt would be longer: the client would have left by
	// then. Zero is no bound.
	MaxWait time.Duration
	// elsewhere means that another credential is ready, so that the call need not wait where calls are held back.
	elsewhere bool
}

// Sink follows a call. Its methods are called from one goroutine at a time, and not after the call has returned. They
// may wait for a reader until ctx, the attempt's, ends; the answer is not read meanwhile. The sink of a call that
// others share, by a key or by the cache, does not wait.
type Sink interface {
	// Started is called when an attempt at a model begins, whose full name is given.
	Started(ctx context.Context, attempt int, model string)
	// Delta is a piece of the answer.
	Delta(ctx context.Context, d *modelv1.GenerateDelta)
	// Restart is called when an attempt begins that invalidates the pieces streamed before.
	Restart(ctx context.Context, attempt int, model string)
}

// Outcome is what is known of a call: its timing, and its failed attempts. It is not safe for concurrent use.
type Outcome struct {
	// Start is when the call began.
	Start time.Time
	// Queued was spent waiting for capacity, RetryWait asleep between attempts, Working in attempts.
	Queued, RetryWait, Working time.Duration
	// Attempts counts calls of the provider, the current one included.
	Attempts int
	Failed   []*modelv1.FailedAttempt
	// records are those of the latest of Failed; nil if none was requested.
	records []*modelv1.ModelCall
	Cache   modelv1.CacheUse
	// BrokenOff means that the answer ended prematurely, as its receiver has seen.
	BrokenOff bool
	// unfinished are the usages of streams that were abandoned before their end, and the estimated one of an answer
	// without any. Each has a price of its own.
	unfinished []*modelv1.ModelUsage
	// FirstPiece is how long after its beginning the latest attempt had the first piece of its answer; zero if the
	// answer was not streamed.
	FirstPiece time.Duration
	// Key is the number of the credential of the latest attempt.
	Key int
	// tried are the credentials of all attempts; another means that the latest attempt failed by its own credential,
	// and that another one is ready.
	tried   []int
	another bool
	// forbidden end the rests of the credentials that were refused the request alone.
	forbidden []func()
	// Earlier are the attempts at other models before.
	Earlier int
	// streamed means that the current attempt has delivered a piece of an answer.
	streamed bool
	// slot is that of the latest attempt; nil before.
	slot *limit.Slot
}

// OnHeaders is called when an attempt has got the status and the headers of its answer. The rate limits in them let
// further calls wait before they are refused.
func (o *Outcome) OnHeaders(status int, header http.Header) {
	if o.slot == nil {
		return
	}
	if limits, ok := limitheader.Read(header, o.slot.Began()); ok {
		limits.Refused = status == http.StatusTooManyRequests
		o.slot.Observe(limits)
	}
}

// unfinishedUsage is the sum of unfinished; nil if there is none.
func (o *Outcome) unfinishedUsage() *modelv1.ModelUsage {
	var sum *modelv1.ModelUsage
	for _, usage := range o.unfinished {
		sum = chat.AddUsage(sum, usage)
	}
	return sum
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
