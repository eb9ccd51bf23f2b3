package engine_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/servicetest"
)

// instant is a model gateway that answers at once and keeps nothing.
type instant struct {
	modelv1.ModelServiceClient
	text string
}

func (i instant) Generate(context.Context, *modelv1.GenerateRequest, ...callOption) (*modelv1.GenerateResponse, error) {
	return &modelv1.GenerateResponse{Output: servicetest.Say(i.text), Timing: &effectv1.Timing{Attempts: 1}}, nil
}

func (instant) ReleaseGenerate(context.Context, *modelv1.ReleaseGenerateRequest, ...callOption) (*modelv1.ReleaseGenerateResponse, error) {
	return &modelv1.ReleaseGenerateResponse{}, nil
}

var unfinished = []int32{int32(agentv1.RunState_RUN_STATE_PENDING), int32(agentv1.RunState_RUN_STATE_RUNNING), int32(agentv1.RunState_RUN_STATE_WAITING)}

// someUnfinished names a run that has not ended; empty when all have.
func (f *fleet) someUnfinished() string {
	left, err := f.Store.List(context.Background(), journal.Query{Project: "p", Kind: journal.KindRun, States: unfinished, Limit: 1})
	require.NoError(f.T, err)
	if len(left) == 0 {
		return ""
	}
	return left[0].Name
}

// BenchmarkSteps measures durable steps: intent journaled, model asked, outcome journaled, with 256 agents at once that
// take 20 turns each and answers of 2 KiB. An operation is a batch of 5,120 steps.
func BenchmarkSteps(b *testing.B) {
	const runs, turns = 256, 20
	f := newFleet(b)
	f.WrapModels = instant{f.Models, strings.Repeat("0123456789abcdef", 128)}
	f.start()
	s := spec(step("react", `{"prompt": null}`))
	s.Limits = &agentv1.RunLimits{Turns: new(int32(turns - 1))}
	plan, err := f.Runs.Check(b.Context(), "p", s)
	require.NoError(b, err)
	for b.Loop() {
		var batch sync.WaitGroup
		for range runs {
			batch.Go(func() {
				_, err := f.Runs.Start(b.Context(), plan, noRequest, "user:bench")
				assert.NoError(b, err)
			})
		}
		batch.Wait()
		for name := f.someUnfinished(); name != ""; name = f.someUnfinished() {
			wake := f.Store.Subscribe(name)
			if f.someUnfinished() == name {
				<-wake.C
			}
			wake.Close()
		}
	}
	b.ReportMetric(float64(b.N*runs*turns)/b.Elapsed().Seconds(), "steps/s")
}
