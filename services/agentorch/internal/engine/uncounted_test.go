package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/evalfleet/evalfleet/pkg/enum"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/sqlite/sqlitefault"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/servicetest"
)

// TestBoundsOfTimeDoNotCountAnOutage: a run has the verdict of a calm day, and its own time counts still.
func TestBoundsOfTimeDoNotCountAnOutage(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		takes time.Duration
		want  string
	}{"in time": {20 * time.Second, ""}, "late": {90 * time.Second, "time"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk := sqlitefault.New()
			synctest.Test(t, func(t *testing.T) {
				f := newFleetOn(t, disk.Name(), "").start()
				f.Models.Answer = func(ctx context.Context, _ *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
					select {
					case <-time.After(tt.takes):
						return servicetest.Say("ok"), nil
					case <-ctx.Done():
						return nil, context.Cause(ctx)
					}
				}
				s := spec(step("generate", ""))
				s.Limits = &agentv1.RunLimits{Time: durationpb.New(25 * time.Second)}
				run := f.Create(s).Name
				time.Sleep(5 * time.Second)
				disk.Fail(sqlitefault.Full)
				time.Sleep(25 * time.Second)
				disk.Fail(sqlitefault.None)
				got := f.Finish(run)
				assert.Equal(t, tt.want, enum.Word(got.Limit.GetType()))
				f.End()
			})
		})
	}
}

// TestBoundsOfTimeDoNotCountShortAbsences has a server that is killed and started often, each time for less than others
// would notice.
func TestBoundsOfTimeDoNotCountShortAbsences(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t).start()
		let := make(chan struct{})
		f.Models.Answer = func(context.Context, *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
			<-let
			return servicetest.Say("ok"), nil
		}
		s := spec(step("generate", ""))
		s.Limits = &agentv1.RunLimits{Time: durationpb.New(25 * time.Second)}
		run := f.Create(s).Name
		for range 10 {
			time.Sleep(time.Second)
			f.End()
			time.Sleep(4 * time.Second)
			f.start()
		}
		synctest.Wait()
		assert.Nil(t, f.State(run).Limit)
		close(let)
		assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, f.Finish(run).Phase)
		f.End()
	})
}

// TestBoundsOfTimeDoNotCountTheWaitForADecision: an operator may take longer than the limit.
func TestBoundsOfTimeDoNotCountTheWaitForADecision(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t).start()
		var asked atomic.Int32
		f.Models.Answer = func(context.Context, *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
			if asked.Add(1) == 1 {
				return nil, lost()
			}
			time.Sleep(20 * time.Second)
			return servicetest.Say("ok"), nil
		}
		s := spec(step("generate", ""))
		s.Limits = &agentv1.RunLimits{Time: durationpb.New(25 * time.Second)}
		name := f.Create(s).Name
		f.Until(name, awaitsDecision)
		time.Sleep(time.Hour)
		f.End()
		time.Sleep(time.Hour)
		f.start()
		time.Sleep(time.Hour)
		assert.True(t, awaitsDecision(f.State(name)))
		f.send(name, "decide", &agentv1.ResumeRunRequest{})
		got := f.Finish(name)
		assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, got.Phase)
		assert.Nil(t, got.Limit)
		f.End()
	})
}
