package effects

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/retry"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/telemetry"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/peers"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/waits"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/progress"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
)

// Run is the run of one pending effect. Only MayAsk blocks.
type Run interface {
	// MayAsk waits until this replica may request effects of the run. It returns false if the replica never may again.
	MayAsk(ctx context.Context) bool
	// Lost is called when an owner of effects refused the run because it knows a newer epoch, which it passes.
	Lost(epoch int64)
	// Deliver receives the answer of a pending effect.
	Deliver(p *Pending, a Answer)
	// Queued is called when a model call waits for its place among the open calls, and with nil when the wait is over.
	Queued(wait *agentv1.RunWait)
}

// Answer is the answer of a pending effect.
type Answer struct {
	// Outcomes are for the journal.
	Outcomes []*agentv1.Event
	// Wait is set if the effect could not be started or finished now; nil otherwise.
	Wait *agentv1.RunWait
	// Over is set if no further answer follows.
	Over bool
}

// Pending is the asking for one effect, until an answer is over.
type Pending struct {
	// Key is the effect's.
	Key string
	// Wanted is when the asking began.
	Wanted time.Time
	// Effect is the requested effect.
	Effect Effect

	caller *Caller
	run    Run
	of     *effectv1.Attribution
	ctx    context.Context //nolint:containedctx // the life of the asking
	cancel context.CancelFunc
	ticket *ticket // its place among the open model calls; nil for other effects

	mu       sync.Mutex
	noted    map[int64]struct{} // intents with a note
	deaf     bool               // no note is recorded any more
	started  bool
	stopping bool
	stopped  []int64 // intents that the owner was asked to stop one by one
}

// Begin starts to request an effect of a run, on behalf of the parties that of names. A model call waits for its place
// without a goroutine. If stopping is set, Begin first asks the owner to stop the effect or never to begin it;
// otherwise it does so for the intents in stopped.
func (c *Caller) Begin(key string, e Effect, r Run, of *effectv1.Attribution, stopping bool, stopped ...int64) *Pending {
	p := &Pending{Key: key, Wanted: time.Now(), Effect: e, caller: c, run: r, of: of, stopping: stopping, stopped: stopped}
	p.ctx, p.cancel = context.WithCancel(c.life)
	call, isModel := e.(*modelCall)
	if !isModel || stopping {
		p.start()
		return p
	}
	p.ticket = c.gate.ticket(call.account(), p.start)
	if !p.ticket.enter() {
		p.queued()
	}
	return p
}

// queued notes that the run waits for its place among the open model calls of an account.
func (p *Pending) queued() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.started && p.ctx.Err() == nil {
		p.run.Queued(waits.ForPlace(p.caller.gate.limit, p.Wanted))
	}
}

// start begins the asking, once.
func (p *Pending) start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.started || p.ctx.Err() != nil {
		return
	}
	p.started = true
	p.run.Queued(nil)
	p.caller.start(p.ask)
}

// Stop stops the effect. Its outcome is still delivered.
func (p *Pending) Stop() {
	p.mu.Lock()
	if p.stopping {
		p.mu.Unlock()
		return
	}
	p.stopping = true
	started := p.started
	p.mu.Unlock()
	if started {
		p.caller.start(func() { p.cancelEffect() })
	} else {
		p.start() // it begins by telling the owner never to begin
	}
}

// StopSome stops some intents of the effect, such as calls of a stage. Their outcomes are still delivered.
func (p *Pending) StopSome(intents ...int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	intents = slices.DeleteFunc(slices.Clone(intents), func(i int64) bool { return slices.Contains(p.stopped, i) })
	if len(intents) == 0 || p.stopping {
		return
	}
	p.stopped = append(p.stopped[:len(p.stopped):len(p.stopped)], intents...)
	if p.started {
		p.caller.start(func() { p.cancelEffect(intents...) })
	}
}

// Abandon stops the requests; the effect continues at its owner.
func (p *Pending) Abandon() {
	p.cancel()
	p.leave()
}

func (p *Pending) leave() {
	if p.ticket != nil {
		p.ticket.leave()
	}
}

func (p *Pending) isStopping() bool {
	stopping, _ := p.stops()
	return stopping
}

// stops reports whether all of the effect is to be stopped, or else which intents.
func (p *Pending) stops() (stopping bool, some []int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopping {
		return true, nil
	}
	return false, p.stopped
}

const (
	firstPause = 50 * time.Millisecond
	maxPause   = 5 * time.Second
)

// cancelEffect has the owner stop the effect, or some of its intents, until it has answered.
func (p *Pending) cancelEffect(intents ...int64) {
	for backoff := (retry.Backoff{First: firstPause, Max: maxPause}); ; {
		err := p.Effect.Cancel(p.ctx, intents...)
		if err == nil || p.ctx.Err() != nil {
			return
		}
		if !rpcerr.Transient(err) {
			p.caller.deps.Logger.Warn("cannot stop an effect", "key", p.Key, "error", err)
			return
		}
		if backoff.Wait(p.ctx) != nil {
			return
		}
	}
}

// ask calls the owner, and retries until there is an answer.
func (p *Pending) ask() {
	defer p.cancel()
	defer p.leave()
	defer p.unnote()
	defer p.caller.deps.Outages.Begin(peers.Call{
		Run: p.of.GetRun(), Eval: p.of.GetEval(), Services: p.Effect.Services(), Since: p.Wanted,
	})()
	if stopping, some := p.stops(); (stopping || len(some) > 0) && p.run.MayAsk(p.ctx) {
		p.cancelEffect(some...)
	}
	ctx, span := p.caller.deps.Traces.Step(p.ctx, p.of.GetRun(), nameOf(p.Effect), attribute.String("evalfleet.effect", p.Key))
	defer span.End()
	for backoff := (retry.Backoff{First: firstPause, Max: maxPause}); p.run.MayAsk(p.ctx); {
		outcomes, err := p.Effect.Do(ctx, p)
		switch {
		case p.ctx.Err() != nil:
			return // the asking has ended, and nothing is known of the effect
		case err == nil:
			p.run.Deliver(p, Answer{Outcomes: outcomes, Over: true})
			return
		case rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_NOT_OWNER):
			p.run.Lost(epochOf(err))
			return
		case rpcerr.Transient(err) && !rpcerr.NotStarted(err): // Its owner is unreachable.
			if backoff.Wait(p.ctx) != nil {
				return
			}
			continue
		}
		telemetry.Fail(span, strings.ToLower(rpcerr.ReasonName(rpcerr.Reason(err))))
		p.run.Deliver(p, p.failed(err))
		return
	}
}

// epochOf returns the epoch of a run as an owner of effects knows it; 0 if the error does not name it.
func epochOf(err error) int64 {
	fault, ok := rpcerr.As(err)
	if !ok {
		return 0
	}
	epoch, _ := strconv.ParseInt(fault.Metadata["epoch"], 10, 64) // 0 if there is none
	return epoch
}

// failed is the answer after an error that is not retryable: a wait, outcomes, or both if the effect is over and
// another is made after the wait ([agent.Repeatable]).
func (p *Pending) failed(err error) Answer {
	a := Answer{Over: true}
	if !p.isStopping() {
		a.Wait = waits.ForError(err, time.Now())
		if a.Wait == nil {
			a.Wait = undecided(p.Effect, err)
		}
	}
	if a.Wait == nil || agent.Repeatable(run.ErrorOf(err)) {
		p.logInternal(err)
		a.Outcomes = p.Effect.Failed(err)
	}
	return a
}

// undecided returns the wait of a run whose effect was lost with its processes more often than its owner allows. It is
// nil for other errors, and for effects whose policy decides what happens to lost ones.
func undecided(e Effect, err error) *agentv1.RunWait {
	if !rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_EFFECT_INDETERMINATE) {
		return nil
	}
	switch e.(type) {
	case *modelCall:
		return waits.ForDecision("a model call")
	case *creation:
		return waits.ForDecision("the making of a sandbox")
	default:
		return nil
	}
}

func (p *Pending) logInternal(err error) { LogInternal(p.caller.deps.Logger, p.of.GetRun(), err) }

// waited is how long the effect waited for its place until it began.
func (p *Pending) waited(began time.Time) time.Duration { return began.Sub(p.Wanted) }

// report delivers outcomes before the end.
func (p *Pending) report(outcomes ...*agentv1.Event) { p.run.Deliver(p, Answer{Outcomes: outcomes}) }

// note shows the progress of an open intent to watchers; nil removes it.
func (p *Pending) note(intent int64, known *effectv1.Note) {
	key, notes := p.noteKey(intent), p.caller.deps.Notes
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.deaf {
		return
	}
	if known == nil {
		delete(p.noted, intent)
		notes.Clear(key)
		return
	}
	if p.noted == nil {
		p.noted = map[int64]struct{}{}
	}
	p.noted[intent] = struct{}{}
	notes.Post(key, &agentv1.RunNote{Run: p.of.GetRun(), Intent: intent, Sample: p.of.GetSample(), Epoch: p.of.GetEpoch(), Note: known})
}

func (p *Pending) noteKey(intent int64) progress.Key {
	return progress.Key{Run: p.of.GetRun(), Eval: p.of.GetEval(), Intent: intent}
}

// unnote removes the notes of the intents. Later notes, such as those of a worker whose call continues, are dropped.
func (p *Pending) unnote() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deaf = true
	for intent := range p.noted {
		p.caller.deps.Notes.Clear(p.noteKey(intent))
	}
}
