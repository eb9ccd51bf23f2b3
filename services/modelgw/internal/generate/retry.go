package generate

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/retry"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/seconds"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// Retry repeats an attempt that failed with a transient error, after a wait: the one that the upstream API asks for,
// else that of the schedule. It ends as the call's configuration says; without a setting it never gives up by itself.
// The last failure is converted to the caller's form.
//
// A failure of a credential is followed at once by an attempt with another one that is ready, whatever the class of the
// failure and the bound of retries: each credential is tried so at most once.
func Retry(schedule retry.Schedule, log *slog.Logger) Stage {
	return func(next Func) Func {
		return func(ctx context.Context, c *Call, o *Outcome) (*provider.Response, error) {
			policy := policyOf(c)
			start := time.Now()
			if !c.Past.Since.IsZero() {
				start = c.Past.Since
			}
			o.Failed = append(slices.Clip(c.Past.Failed), o.Failed...)
			for failures := 1 + len(c.Past.Failed); ; failures++ {
				response, err := next(ctx, c, o)
				if err == nil {
					return response, nil
				}
				failure, upstream := provider.As(err)
				if c.Committed && o.streamed {
					o.BrokenOff = true
					return nil, provider.RPC(err)
				}
				var wait time.Duration
				switch {
				case upstream && o.another && policy.Allows(0, time.Since(start)):
					failures--
				case !upstream || failure.Class == provider.Final || !policy.Allows(failures, time.Since(start)):
					return nil, provider.RPC(err)
				default:
					if wait = schedule.Delay(failures, failure.RetryAfter); c.MaxWait > 0 && wait > c.MaxWait {
						return nil, provider.RPC(err)
					}
				}
				if ctx.Err() != nil { // No other attempt follows.
					return nil, context.Cause(ctx)
				}
				failed := &modelv1.FailedAttempt{
					Error:   failure.Error(),
					Status:  int32(failure.Status),
					EndTime: timestamppb.Now(),
					Wait:    durationpb.New(wait),
					Key:     int32(o.Key),
				}
				o.fail(failed, failure.Call)
				log.InfoContext(ctx, "model call is retried", "model", c.Model.FullName(), "account", c.Model.Account,
					"key", o.Key, "attempt", o.Attempts, "status", failure.Status, "wait", wait, "request_id", c.Origin.LogID(ctx))
				if err := c.sleep(ctx, o, wait, failed); err != nil {
					return nil, err
				}
			}
		}
	}
}

// sleep waits between attempts, and fails with ctx's error when that ends first.
func (c *Call) sleep(ctx context.Context, o *Outcome, wait time.Duration, after *modelv1.FailedAttempt) error {
	if c.OnRetry != nil {
		c.OnRetry(after)
		defer c.OnRetry(nil)
	}
	began := time.Now()
	defer func() { o.RetryWait += time.Since(began) }()
	return retry.Sleep(ctx, wait)
}

const (
	// toldAttempts bounds the failed attempts in an error, the latest ones, and toldKinds the different ones that its
	// message lists.
	toldAttempts = 5
	toldKinds    = 3
	// keptRecords bounds the failed attempts whose records travel with an answer, the latest ones.
	keptRecords = 3
)

// fail records an attempt that failed and is followed by another, with its record; nil is none.
func (o *Outcome) fail(failed *modelv1.FailedAttempt, record *modelv1.ModelCall) {
	o.Failed, o.records = append(o.Failed, failed), append(o.records, record)
	o.records = o.records[max(0, len(o.records)-keptRecords):]
}

// FailedAttempts are the attempts that failed before an answer, the latest of them with their records, if those were
// requested.
func (o *Outcome) FailedAttempts() []*modelv1.FailedAttempt {
	all := slices.Clone(o.Failed)
	first := len(all) - len(o.records)
	for i, record := range o.records {
		if record != nil { // Others hold the attempt too.
			all[first+i] = proto.CloneOf(all[first+i])
			all[first+i].Call = provider.Small(record)
		}
	}
	return all
}

// Explain adds to an error that ends a call the attempts that failed before.
func (o *Outcome) Explain(err error) error {
	fault, ok := rpcerr.As(err)
	if !ok || len(o.Failed) == 0 {
		return err
	}
	told := *fault
	told.Message = fmt.Sprintf("%s; this was attempt %d, after %s", fault.Message, len(o.Failed)+1, history(o.Failed))
	told.Details = slices.Clone(fault.Details)
	for _, failed := range o.Failed[max(0, len(o.Failed)-toldAttempts):] {
		told.Details = append(told.Details, failed)
	}
	return &told
}

// history summarizes the failed attempts: equal neighbours as one, the latest last.
func history(failed []*modelv1.FailedAttempt) string {
	var words []string
	for i := len(failed); i > 0; {
		n := 1
		for i-n > 0 && failed[i-n-1].GetError() == failed[i-1].GetError() {
			n++
		}
		if len(words) == toldKinds {
			words = append(words, fmt.Sprintf("%d others", i))
			break
		}
		words = append(words, fmt.Sprintf("%d × %s", n, failed[i-1].GetError()))
		i -= n
	}
	slices.Reverse(words)
	return strings.Join(words, ", ")
}

func policyOf(c *Call) retry.Policy {
	var p retry.Policy
	config := c.Config
	if c.Patience > 0 && config.MaxRetries == nil && config.Timeout == nil {
		p.MaxRetries = &c.Patience
	}
	if config.MaxRetries != nil {
		p.MaxRetries = new(int(config.GetMaxRetries()))
	}
	if config.Timeout != nil {
		p.Timeout = new(seconds.Duration(config.GetTimeout()))
	}
	return p
}
