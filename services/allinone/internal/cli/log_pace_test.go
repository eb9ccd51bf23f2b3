package cli

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/retry"
)

// busyEvals has an evaluation that finishes a sample a second until it stalls, and whose log takes a second per 200
// samples.
type busyEvals struct {
	agentv1.EvalServiceClient

	began  time.Time
	stalls time.Duration
	writes []time.Duration
	took   time.Duration
}

func (e *busyEvals) done() int32 { return int32(min(time.Since(e.began), e.stalls).Seconds()) }

func (e *busyEvals) GetEval(context.Context, *agentv1.GetEvalRequest, ...grpc.CallOption) (*agentv1.Eval, error) {
	return &agentv1.Eval{
		Name: "projects/default/evals/e1", State: agentv1.EvalState_EVAL_STATE_RUNNING, Progress: &agentv1.EvalProgress{Succeeded: e.done()},
		Spec: &agentv1.EvalSpec{Models: []*agentv1.ModelRef{{Model: "mockllm/model"}}},
	}, nil
}

func (e *busyEvals) ExportEval(ctx context.Context, _ *agentv1.ExportEvalRequest, _ ...grpc.CallOption) (agentv1.EvalService_ExportEvalClient, error) {
	e.writes = append(e.writes, time.Since(e.began))
	took := time.Duration(e.done()) * time.Second / 200
	e.took += took
	return &oneChunk{}, retry.Sleep(ctx, took)
}

// oneChunk is a log of one chunk.
type oneChunk struct {
	agentv1.EvalService_ExportEvalClient

	sent bool
}

func (c *oneChunk) Recv() (*agentv1.ExportEvalResponse, error) {
	if c.sent {
		return nil, io.EOF
	}
	c.sent = true
	return &agentv1.ExportEvalResponse{FileName: "t_sums_e1.eval", Chunk: []byte("log")}, nil
}

func TestLogsOfARunningEvaluationCostLittle(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		const hour = time.Hour
		evals := &busyEvals{began: time.Now(), stalls: hour}
		s := &session{app: &app{}, evals: evals}
		k := s.keepLogs(t.Context(), &agentv1.Eval{Name: "projects/default/evals/e1"}, folder)
		time.Sleep(hour)
		k.leave()
		assert.Zero(t, evals.writes[0], "the log is there from the beginning")
		assert.Equal(t, logEvery, evals.writes[1])
		assert.LessOrEqual(t, evals.took, hour/40, "writing takes a small part of the time")
		assert.Greater(t, len(evals.writes), 10)

		quiet := &busyEvals{began: time.Now(), stalls: 5 * time.Second}
		s.evals = quiet
		k = s.keepLogs(t.Context(), &agentv1.Eval{Name: "projects/default/evals/e1"}, folder)
		time.Sleep(hour)
		k.leave()
		assert.Len(t, quiet.writes, 2, "without another finished sample there is nothing to write")
	})
}
