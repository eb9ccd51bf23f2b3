package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/evalfleet/evalfleet/bench/internal/paired"
	"github.com/evalfleet/evalfleet/bench/internal/report"
	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

const (
	// stepRuns is how many runs are at work at once.
	stepRuns = 256
	// stepTurns is how many steps each of them takes. Every step asks the model with the whole conversation so far, so
	// longer runs make dearer steps.
	stepTurns = 20
	// stepWrites is how many durable writes a step is in the protocol: intent, claim, result, result appended.
	stepWrites = 4
)

func stepsBenchmark() benchmark {
	return benchmark{
		name:  "steps",
		title: "Durable steps of agents, end to end",
		how: fmt.Sprintf("The single binary runs %d agents at once (`react`, which goes on until its limit of %d turns), and again, in a process of its own. A step is one effect of mockllm: intent "+
			"journaled, key claimed, 2 KiB answered and kept, outcome journaled, all of it synced before the next step begins. Time runs from the first CreateRun to the end of the last run.",
			stepRuns, stepTurns),
		run: runSteps,
	}
}

func runSteps(ctx context.Context, e *env) (figures []report.Figure, err error) {
	var stop cleanup
	defer func() { err = errors.Join(err, stop.all()) }()
	s, err := e.scripted(appendBytes)
	if err != nil {
		return nil, err
	}
	server, err := e.serve(ctx, "all", "", s)
	if err != nil {
		return nil, err
	}
	stop.add(server.Stop)
	conn, err := e.dial(server.Address)
	if err != nil {
		return nil, err
	}
	stop.add(conn.Close)
	rows, closeRows, err := sqliteAppends(ctx, filepath.Join(e.dir, "rows.db"))
	if err != nil {
		return nil, err
	}
	stop.add(closeRows)

	b := &batches{client: agentv1.NewRunServiceClient(conn), runs: stepRuns, turns: stepTurns}
	if e.budget < time.Second {
		b.runs, b.turns = 4, 2 // A rehearsal.
	}
	before, err := server.CPU()
	if err != nil {
		return nil, err
	}
	table, err := e.measure(ctx, 3, b.rate, rows)
	if err != nil {
		return nil, err
	}
	after, err := server.CPU()
	if err != nil {
		return nil, err
	}
	r := table.Ratio(0, 1, 1.0/stepWrites)
	cpu := float64((after - before).Microseconds()) / float64(b.steps)
	return []report.Figure{{
		Name: "durable steps", Baseline: "a quarter of SQLite's appends", Measured: table.Median(0), BaselineMeasured: table.Median(1) / stepWrites, Unit: "/s", Ratio: r,
		Goals: []report.Goal{report.Reaches(table.Median(0), 4000, "/s"), report.Within(cpu, 400, "µs CPU a step"), report.AtLeast(r, 0.4), report.Reaches(table.Median(0), 5000, "/s").AsAim()},
		Means: fmt.Sprintf("How many model calls in a second one machine carries through without ever losing or repeating a finished one, when the model costs no time. A step took %.0f µs of processor "+
			"time, all services together.", cpu),
	}}, nil
}

// batches lets batches of runs take place and counts their steps.
type batches struct {
	client      agentv1.RunServiceClient
	runs, turns int

	made  int // batches so far
	steps int // steps so far
}

// rate is a sampler of steps a second. It lets whole batches take place until d is over.
func (b *batches) rate(ctx context.Context, d time.Duration) (float64, error) {
	begin, steps := time.Now(), 0
	for steps == 0 || time.Since(begin) < d {
		n, err := b.batch(ctx)
		if err != nil {
			return 0, err
		}
		steps += n
	}
	took := time.Since(begin)
	b.steps += steps
	return float64(steps) / took.Seconds(), nil
}

// labels are those of the last batch.
func (b *batches) labels() map[string]string { return map[string]string{"batch": strconv.Itoa(b.made)} }

// poll is how often a batch is looked at.
const poll = 10 * time.Millisecond

// batch makes runs, waits until all of them have ended, and returns how many steps they took.
func (b *batches) batch(ctx context.Context) (steps int, err error) {
	b.made++
	labels := b.labels()
	failed := make(chan error, b.runs)
	var wg sync.WaitGroup
	for range b.runs {
		wg.Go(func() {
			_, err := b.client.CreateRun(ctx, &agentv1.CreateRunRequest{Parent: "projects/default", Spec: b.spec(labels)})
			failed <- err
		})
	}
	wg.Wait()
	for range b.runs {
		if err := <-failed; err != nil {
			return 0, err
		}
	}
	for {
		all, err := b.client.ListRuns(ctx, &agentv1.ListRunsRequest{Parent: "projects/default", Labels: labels, PageSize: 1, States: []agentv1.RunState{
			agentv1.RunState_RUN_STATE_PENDING, agentv1.RunState_RUN_STATE_RUNNING, agentv1.RunState_RUN_STATE_WAITING, agentv1.RunState_RUN_STATE_SCORING,
		}})
		if err != nil {
			return 0, err
		}
		if len(all.GetRuns()) == 0 {
			return b.count(ctx, labels)
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(poll):
		}
	}
}

// count counts the steps of a batch, and makes sure that its runs did what they were made for.
func (b *batches) count(ctx context.Context, labels map[string]string) (steps int, err error) {
	all, err := b.client.ListRuns(ctx, &agentv1.ListRunsRequest{Parent: "projects/default", Labels: labels, PageSize: int32(b.runs)})
	if err != nil {
		return 0, err
	}
	if len(all.GetRuns()) != b.runs {
		return 0, fmt.Errorf("%d runs were made, %d are listed", b.runs, len(all.GetRuns()))
	}
	for _, r := range all.GetRuns() {
		if int(r.GetTurns()) < b.turns || r.GetError() != nil {
			return 0, fmt.Errorf("%s took %d of %d turns: %s %s", r.GetName(), r.GetTurns(), b.turns, r.GetState(), r.GetError().GetMessage())
		}
		steps += int(r.GetTurns())
	}
	return steps, nil
}

// spec is a run whose agent takes the same turn again and again.
func (b *batches) spec(labels map[string]string) *agentv1.RunSpec {
	return &agentv1.RunSpec{
		Input:  []*modelv1.ChatMessage{chat.User("Go on.")},
		Steps:  []*agentv1.AgentRef{{Name: "react", ParamsJson: `{"prompt": null, "on_continue": "Go on."}`}},
		Model:  &agentv1.ModelRef{Model: scriptedModel, ModelArgsJson: scriptArgs(appendBytes)},
		Config: &modelv1.GenerateConfig{MaxConnections: new(int32(stepRuns))},
		Limits: &agentv1.RunLimits{Turns: new(int32(b.turns))},
		Labels: labels,
	}
}

var _ paired.Sampler = (*batches)(nil).rate
