// Package limittrial puts limiters on trial: callers that have always something to call, and a provider whose capacity
// they do not know and which moves. A [Shape] is how it moves, an [Oracle] is a limiter that knows. Tests run trials in
// simulated time, benchmarks run them faster.
package limittrial

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/evalfleet/evalfleet/pkg/limit"
)

// The times of a trial at speed 1.
const (
	// Call is what a call takes on average; calls take from half to one and a half of it.
	Call = 2 * time.Second
	// refusal is what a refused one takes, and pause the wait of a caller after it where the provider names none.
	refusal = Call / 10
	pause   = Call / 2
	// Warm is how long a limiter may take to find the capacity.
	Warm = 30 * time.Second
)

// Trial is a trial of limiters.
type Trial struct {
	Shape Shape
	// Callers is how many callers there are in all; they call through the limiters in turn.
	Callers int
	// For is how long they begin calls, at speed 1.
	For time.Duration
	// Seed varies how long calls take.
	Seed uint64
	// Speed divides all times. Zero is 1.
	Speed int
}

// Result is the outcome of a trial.
type Result struct {
	// Served counts the calls that were answered after [Warm].
	Served int
	// Refused and Attempts count from the start.
	Refused, Attempts int
}

// Share is a result beside that of an oracle.
type Share struct {
	// Goodput is the part of the oracle's answered calls.
	Goodput float64
	// Refused is the part of the attempts that were refused.
	Refused float64
}

// Of returns the result beside that of an oracle.
func (r Result) Of(oracle Result) Share {
	return Share{Goodput: float64(r.Served) / float64(max(oracle.Served, 1)), Refused: float64(r.Refused) / float64(max(r.Attempts, 1))}
}

// String returns the shares as people read them.
func (s Share) String() string {
	return fmt.Sprintf("serves %.3f of an oracle, %.2f %% refused", s.Goodput, 100*s.Refused)
}

// Recorded is a request for a pool that adapts within wide bounds, by the rule [limit.Controller].
func Recorded() limit.Request {
	return limit.Request{Key: "k", Adaptive: &limit.Bounds{Min: 5, Start: 20, Max: 200, Cooldown: 15 * time.Second, DecreaseFactor: 0.8, ScaleUp: 0.05}}
}

// Probing is like Recorded, for the rule [limit.Prober].
func Probing() limit.Request {
	return limit.Request{Key: "k", Adaptive: &limit.Bounds{Min: 5, Start: 20, Max: 200, Probing: true}}
}

// Run runs a trial until all calls have ended. A limiter that fails a call ends it with an error.
func (t Trial) Run(ctx context.Context, r limit.Request, limiters ...limit.Limiter) (Result, error) {
	p := &provider{trial: t, start: time.Now(), state: t.Shape.provider(t.Seed)}
	var callers sync.WaitGroup
	failed := make(chan error, t.Callers)
	for i := range t.Callers {
		l, random := limiters[i%len(limiters)], rand.New(rand.NewPCG(t.Seed, uint64(i))) //nolint:gosec // no secret: the same calls in each run
		request := r
		request.Tenant = fmt.Sprint("tenant", i%3)
		callers.Go(func() {
			for time.Since(p.start) < t.real(t.For) {
				takes := t.real(Call/2 + time.Duration(random.Int64N(int64(Call))))
				if err := p.call(ctx, l, request, takes); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	callers.Wait()
	select {
	case err := <-failed:
		return Result{}, err
	default:
		return p.result, nil
	}
}

// real returns a time of speed 1 at the speed of the trial.
func (t Trial) real(d time.Duration) time.Duration { return d / time.Duration(max(t.Speed, 1)) }

// provider is the other side.
type provider struct {
	trial Trial
	start time.Time

	mu     sync.Mutex
	state  state
	result Result
}

// now returns the time since the start at speed 1.
func (p *provider) now() time.Duration {
	return time.Since(p.start) * time.Duration(max(p.trial.Speed, 1))
}

// call makes attempts until one is answered, as the pipeline of modelgw does.
func (p *provider) call(ctx context.Context, l limit.Limiter, r limit.Request, takes time.Duration) error {
	for attempt := 0; ; attempt++ {
		r.Front = attempt > 0
		slot, err := l.Acquire(ctx, r)
		if err != nil {
			return err
		}
		answered, wait := p.attempt(slot, takes)
		switch {
		case !answered:
			l.Report(ctx, r.Key, limit.Report{Outcome: limit.RateLimited, Subject: "m", RetryAfter: wait})
		case attempt == 0:
			l.Report(ctx, r.Key, limit.Report{Outcome: limit.Clean, Subject: "m"})
		default:
			l.Report(ctx, r.Key, limit.Report{Outcome: limit.Retried, Subject: "m"})
		}
		slot.Release()
		if answered {
			return nil
		}
		time.Sleep(max(wait, p.trial.real(pause)))
	}
}

// attempt reports whether the provider took the call, and how long a caller that it refused is to wait.
func (p *provider) attempt(slot *limit.Slot, takes time.Duration) (answered bool, wait time.Duration) {
	p.mu.Lock()
	answered, wait = p.state.take(p.now())
	said := p.says()
	p.result.Attempts++
	if !answered {
		p.result.Refused++
		p.mu.Unlock()
		time.Sleep(p.trial.real(refusal))
		said.Refused = true
		slot.Observe(said)
		return false, p.trial.real(wait)
	}
	p.mu.Unlock()
	time.Sleep(takes)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.trial.Shape.Says == AtEnd {
		said = p.says()
	}
	slot.Observe(said)
	p.state.inFlight--
	if now := p.now(); now >= Warm && now < p.trial.For {
		p.result.Served++
	}
	return true, 0
}

// says is what the provider says of its limit now.
func (p *provider) says() (a limit.Allowances) {
	if p.trial.Shape.Says == Nothing {
		return a
	}
	now := p.now()
	most, left, full := p.state.allowance(now)
	said := limit.Allowance{Limit: most, Remaining: math.Floor(left), Full: p.start.Add(p.trial.real(full))}
	if p.trial.Shape.Tokens > 0 {
		a.Tokens = said
	} else {
		a.Requests = said
	}
	return a
}
