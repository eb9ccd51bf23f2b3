package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/evalfleet/evalfleet/bench/internal/load"
	"github.com/evalfleet/evalfleet/bench/internal/paired"
	"github.com/evalfleet/evalfleet/bench/internal/report"
	"github.com/evalfleet/evalfleet/pkg/limit"
	limitredis "github.com/evalfleet/evalfleet/pkg/limit/redis"
	"github.com/evalfleet/evalfleet/pkg/redisclient"
	"github.com/evalfleet/evalfleet/pkg/redistest"
)

func limitsBenchmark() benchmark {
	return benchmark{
		name:  "limits",
		title: "A limit that replicas share",
		how: "Three limiters of a fleet share a Redis of their own and call a provider whose capacity they do not know and which moves: 40 calls at once, then 25, then 50. A call takes 50 ms, a refused one 5 ms, " +
			"and is tried again after 25 ms; all times of the limit are as much shorter than usual as these calls are. 150 callers have always something to call. One process by the same rule sees all calls; " +
			"the oracle knows the capacity.",
		run: runLimits,
	}
}

// The load of the benchmark, about forty times faster than calls of models are.
const (
	limitCallers  = 150
	callTime      = 50 * time.Millisecond
	refusalTime   = callTime / 10
	retryTime     = callTime / 2
	limitCooldown = 8 * callTime
)

// capacities are those of the provider, one after another.
var capacities = []int{40, 25, 50}

func runLimits(ctx context.Context, e *env) (figures []report.Figure, err error) {
	server, err := redistest.Start(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errCannot, err)
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	client := redisclient.Open(server.Options())
	defer client.Close()
	samples := 0
	fleet := func() ([]limit.Limiter, func()) { //nolint:contextcheck // The exchange of a limiter ends with Close.
		samples++
		options := server.Options()
		options.Prefix = fmt.Sprint("bench", samples, ":") // Each sample finds the capacity anew.
		client := redisclient.Open(options)
		var all []limit.Limiter
		var replicas []*limitredis.Limiter
		for i := range 3 {
			l := limitredis.New(limitredis.Config{Client: client, Replica: fmt.Sprint(i), Replicas: 3, Every: 5 * time.Millisecond, TTL: time.Second})
			all, replicas = append(all, l), append(replicas, l)
		}
		return all, func() {
			for _, l := range replicas {
				_ = l.Close()
			}
			_ = client.Close()
		}
	}
	memory := func() ([]limit.Limiter, func()) { return []limit.Limiter{&limit.Memory{}}, func() {} }
	adaptive := limit.Request{Key: "k", Adaptive: &limit.Bounds{Min: 5, Start: 20, Max: 100, Cooldown: limitCooldown, DecreaseFactor: 0.8, ScaleUp: 0.05}}
	known := limit.Request{Key: "k", Fixed: capacities[0]}

	single := limitredis.New(limitredis.Config{Client: client, Replica: "single"}) //nolint:contextcheck // It ends with Close.
	defer func() { err = errors.Join(err, single.Close()) }()                      //nolint:contextcheck // It returns what it holds whatever ended the benchmark.
	table, err := e.measure(ctx, 3,
		goodput(fleet, adaptive), goodput(memory, adaptive), goodput(memory, known),
		load.Latency(func(ctx context.Context, _, _ int) error {
			release, err := single.Acquire(ctx, limit.Request{Key: "k", Fixed: 10})
			if err == nil {
				release()
			}
			return err
		}),
		load.Latency(func(ctx context.Context, _, _ int) error { return client.Ping(ctx).Err() }),
	)
	if err != nil {
		return nil, err
	}
	byOne, byOracle := table.Ratio(0, 1, 1), table.Ratio(0, 2, 1)
	return []report.Figure{
		{
			Name: "calls of three replicas", Baseline: "one process by the same rule", Measured: table.Median(0), BaselineMeasured: table.Median(1), Unit: "/s", Ratio: byOne,
			Goals: []report.Goal{report.AtLeast(byOne, 0.95)},
			Means: "What is lost because a replica learns only with the next exchange what others met.",
		},
		{
			Name: "calls of three replicas", Baseline: "an oracle", Measured: table.Median(0), BaselineMeasured: table.Median(2), Unit: "/s", Ratio: byOracle,
			Goals: []report.Goal{report.AtLeast(byOracle, 0.95).AsAim()},
			Means: "What the rule leaves unused while it looks for the capacity: a fifth after each refusal, for a cooldown.",
		},
		{
			Name: "an admission from a lease", Baseline: "a round trip to Redis", Measured: table.Median(3), BaselineMeasured: table.Median(4), Unit: "µs", Ratio: table.Ratio(3, 4, 1),
			Means: "What a call waits for its slot, beside what it would wait if each asked Redis.",
		},
	}, nil
}

// goodput is a sampler of answered calls per second; limiters makes the limiters of a sample, and the function that
// ends them.
func goodput(limiters func() ([]limit.Limiter, func()), request limit.Request) paired.Sampler {
	return func(ctx context.Context, d time.Duration) (float64, error) {
		all, end := limiters()
		defer end()
		p := &scarce{capacity: capacities[0]}
		moved := make(chan struct{})
		ctx, stop := context.WithCancel(ctx)
		go func() {
			defer close(moved)
			p.move(ctx, d/time.Duration(len(capacities)), func(n int) {
				if request.Adaptive == nil {
					_, _ = all[0].SetMax(ctx, request.Key, n) // An unknown pool is one that has no caller yet.
				}
			})
		}()
		t, err := load.Callers(ctx, limitCallers, d, func(ctx context.Context, caller, _ int) error {
			return p.call(ctx, all[caller%len(all)], request)
		})
		stop()
		<-moved
		return t.PerSecond(), err
	}
}

// scarce is a provider that refuses calls above its capacity.
type scarce struct {
	mu                 sync.Mutex
	capacity, inFlight int
}

// move changes the capacity after each period, until the last one or the end of ctx.
func (p *scarce) move(ctx context.Context, period time.Duration, changed func(int)) {
	for _, n := range capacities[1:] {
		select {
		case <-ctx.Done():
			return
		case <-time.After(period):
		}
		p.mu.Lock()
		p.capacity = n
		p.mu.Unlock()
		changed(n)
	}
}

// call makes attempts until one is answered.
func (p *scarce) call(ctx context.Context, l limit.Limiter, r limit.Request) error {
	for attempt := 0; ; attempt++ {
		r.Front = attempt > 0
		release, err := l.Acquire(ctx, r)
		if err != nil {
			return err
		}
		answered := p.attempt()
		switch {
		case !answered:
			l.Report(ctx, r.Key, limit.RateLimited, "m")
		case attempt == 0:
			l.Report(ctx, r.Key, limit.Clean, "m")
		}
		release()
		if answered {
			return nil
		}
		time.Sleep(retryTime)
	}
}

func (p *scarce) attempt() bool {
	p.mu.Lock()
	admitted := p.inFlight < p.capacity
	if admitted {
		p.inFlight++
	}
	p.mu.Unlock()
	if !admitted {
		time.Sleep(refusalTime)
		return false
	}
	time.Sleep(callTime)
	p.mu.Lock()
	p.inFlight--
	p.mu.Unlock()
	return true
}
