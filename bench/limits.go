package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/evalfleet/evalfleet/bench/internal/load"
	"github.com/evalfleet/evalfleet/bench/internal/paired"
	"github.com/evalfleet/evalfleet/bench/internal/report"
	"github.com/evalfleet/evalfleet/pkg/limit"
	"github.com/evalfleet/evalfleet/pkg/limit/limittrial"
	limitredis "github.com/evalfleet/evalfleet/pkg/limit/redis"
	"github.com/evalfleet/evalfleet/pkg/redisclient"
	"github.com/evalfleet/evalfleet/pkg/redistest"
)

func limitsBenchmark() benchmark {
	return benchmark{
		name:  "limits",
		title: "A limit that replicas share",
		how: "Three limiters of a fleet share a Redis of their own and call a provider whose capacity they do not know and which moves: 60 calls at once, then 40, then 80, two minutes each. A call takes 2 s on average, a refused one 0.2 s, " +
			"and is tried again after 1 s; 180 callers have always something to call. All times are divided by about twenty. An oracle that knows the capacity at each moment serves the same callers beside it, and so does a fleet by the recorded rule. Calls count " +
			"after 30 s, refusals from the start. `go test ./pkg/limit/... -run Capacity -v` tries other shapes of capacity, in simulated time.",
		run: runLimits,
	}
}

// trialTime is the least time of the trial, whatever the budget: at a higher speed timers are too coarse.
const trialTime = 3 * time.Second

func runLimits(ctx context.Context, e *env) (figures []report.Figure, err error) {
	server, err := redistest.Start(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errCannot, err)
	}
	defer func() { err = errors.Join(err, server.Close()) }()

	trial := limittrial.Trial{Shape: limittrial.Steps(), Callers: 180, For: 6 * time.Minute}
	trial.Speed = int(trial.For / max(e.budget*8/10, trialTime))
	var probing, recorded, oracle limittrial.Result
	trials, trialCtx := errgroup.WithContext(ctx)
	trials.Go(func() (err error) {
		probing, err = tryFleet(trialCtx, server, trial, "probing:", limittrial.Probing())
		return err
	})
	trials.Go(func() (err error) {
		recorded, err = tryFleet(trialCtx, server, trial, "recorded:", limittrial.Recorded())
		return err
	})
	trials.Go(func() (err error) {
		oracle, err = trial.Oracle(trialCtx)
		return err
	})
	if err := trials.Wait(); err != nil {
		return nil, err
	}
	ours, theirs := probing.Of(oracle), recorded.Of(oracle)
	refused := paired.Table{{100 * ours.Refused, 100 * theirs.Refused}}
	seconds := (trial.For - limittrial.Warm).Seconds() / float64(trial.Speed)
	served := paired.Table{{float64(probing.Served) / seconds, float64(oracle.Served) / seconds, float64(recorded.Served) / seconds}}
	byOracle := served.Ratio(0, 1, 1)

	client := redisclient.Open(server.Options())
	defer client.Close()
	single := limitredis.New(limitredis.Config{Client: client, Replica: "single"}) //nolint:contextcheck // It ends with Close.
	defer func() { err = errors.Join(err, single.Close()) }()                      //nolint:contextcheck // It returns what it holds whatever ended the benchmark.
	const rounds = 3
	waits, err := paired.Measure(ctx, rounds, e.budget*2/10/(2*rounds+1),
		load.Latency(func(ctx context.Context, _, _ int) error {
			slot, err := single.Acquire(ctx, limit.Request{Key: "k", Fixed: 10})
			if err == nil {
				slot.Release()
			}
			return err
		}),
		load.Latency(func(ctx context.Context, _, _ int) error { return client.Ping(ctx).Err() }),
	)
	if err != nil {
		return nil, err
	}
	return []report.Figure{
		{
			Name: "calls of three replicas", Baseline: "an oracle", Measured: served.Median(0), BaselineMeasured: served.Median(1), Unit: "/s", Ratio: byOracle,
			Goals: []report.Goal{report.AtLeast(byOracle, 0.95)},
			Means: fmt.Sprintf("What the rule leaves unused while it looks for the capacity. The recorded rule serves %.2f of the oracle.", theirs.Goodput),
		},
		{
			Name: "attempts of three replicas that are refused", Baseline: "by the recorded rule", Measured: refused.Median(0), BaselineMeasured: refused.Median(1), Unit: "%", Ratio: refused.Ratio(0, 1, 1),
			Goals: []report.Goal{report.Within(refused.Median(0), 1, "%")},
			Means: "What the search for the capacity costs the provider: each is retried, and none reaches a caller.",
		},
		{
			Name: "an admission from a lease", Baseline: "a round trip to Redis", Measured: waits.Median(0), BaselineMeasured: waits.Median(1), Unit: "µs", Ratio: waits.Ratio(0, 1, 1),
			Means: "What a call waits for its slot, beside what it would wait if each asked Redis.",
		},
	}, nil
}

// tryFleet runs a trial of three replicas whose keys have a prefix.
func tryFleet(ctx context.Context, server *redistest.Server, t limittrial.Trial, prefix string, r limit.Request) (result limittrial.Result, err error) {
	options := server.Options()
	options.Prefix = prefix
	client := redisclient.Open(options)
	defer func() { err = errors.Join(err, client.Close()) }()
	r.Adaptive.Cooldown /= time.Duration(t.Speed)
	var replicas []limit.Limiter
	for i := range 3 {
		l := limitredis.New(limitredis.Config{ //nolint:contextcheck // It ends with Close.
			Client: client, Replica: fmt.Sprint(i), Replicas: 3, TTL: time.Second, Every: limitredis.DefaultEvery / time.Duration(t.Speed),
		})
		defer func() { err = errors.Join(err, l.Close()) }() //nolint:contextcheck // It returns what it holds whatever ended the trial.
		replicas = append(replicas, l)
	}
	return t.Run(ctx, r, replicas...)
}
