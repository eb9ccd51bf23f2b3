package generate

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/retry"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// Retry repeats an attempt that failed in a way that may pass, after a wait: what the upstream API asks for, else the schedule. It ends as the call's
// configuration says; without a word there it never gives up by itself. The last failure is turned into the caller's form.
func Retry(schedule retry.Backoff, log *slog.Logger) Stage {
	return func(next Func) Func {
		return func(ctx context.Context, c *Call) (*provider.Response, error) {
			policy := policyOf(c.Config)
			start := time.Now()
			for c.Attempt = 1; ; c.Attempt++ {
				response, err := next(ctx, c)
				if err == nil {
					return response, nil
				}
				failure, upstream := provider.As(err)
				if c.Committed && c.Notes.streamed {
					return nil, provider.RPC(err)
				}
				if !upstream || failure.Class == provider.Final || !policy.Allows(c.Attempt, time.Since(start)) {
					return nil, provider.RPC(err)
				}
				wait := schedule.Wait(c.Attempt, failure.RetryAfter)
				c.Notes.Failed = append(c.Notes.Failed, &modelv1.FailedAttempt{
					Error:   failure.Error(),
					Status:  int32(failure.Status),
					EndTime: timestamppb.Now(),
					Wait:    durationpb.New(wait),
				})
				log.InfoContext(ctx, "model call is retried", "model", c.Model.FullName(), "account", c.Model.Account,
					"attempt", c.Attempt, "status", failure.Status, "wait", wait, "request_id", c.Origin.RequestID)
				began := time.Now()
				err = retry.Sleep(ctx, wait)
				c.Notes.RetryWait += time.Since(began)
				if err != nil {
					return nil, err
				}
			}
		}
	}
}

func policyOf(config *modelv1.GenerateConfig) retry.Policy {
	var p retry.Policy
	if config.MaxRetries != nil {
		p.MaxRetries = new(int(config.GetMaxRetries()))
	}
	if config.Timeout != nil {
		p.Timeout = new(toDuration(config.GetTimeout()))
	}
	return p
}
