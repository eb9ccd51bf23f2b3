package turn

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
)

// actor is a run that this replica owns.
type actor struct {
	engine *Engine

	mu      sync.Mutex
	mail    []mail
	driving bool
	clock   *time.Timer
	boxes   []string         // sandboxes whose leases are to be renewed
	subject string           // what the run waits for, where that has a name
	eval    string           // the evaluation that it belongs to; empty for none
	parked  *agentv1.RunWait // why the run is not driven, where its journal does not tell; nil when it is
	queued  *agentv1.RunWait // that a model call of the run waits for its place; nil when none does
	resting bool             // its journal says that it waits, and nothing is under way
	stepped bool             // a step since then went well, and had nothing to append
	tries   int              // steps in a row that failed

	// The rest belongs to the driver, of which there is one at a time.

	head    journal.Head
	away    time.Duration // how long nobody drove the run before; zero for no time that counts
	seen    time.Duration // what the engine had of uncounted time when the run got its actor, or at its last append
	adopted string        // why the run changed hands; an event of each epoch says so
	state   *run.State
	flights map[string]*flight
	// removing says that the run's sandboxes are to go.
	removing bool
	// lapses are those of the fence when the run was known to be this replica's: when it got its actor, or at the last append.
	lapses int
	// rowed is when the row was written last.
	rowed time.Time
	// unread says that the inbox holds a command that this version does not know.
	unread bool
	// faults counts steps in a row that failed for reasons of our own.
	faults int
	// tooLarge is why the journal refused what the last step decided, since an event was too large; nil when it did not.
	tooLarge *agentv1.RunError
	// again is when something that could not be done is to be tried again; zero for never.
	again time.Time
}

// mail is what a driver has to handle.
type mail struct {
	// flight is where it comes from; nil for clocks and commands.
	flight *flight
	// outcomes are what effects led to.
	outcomes []*agentv1.Event
	// over says that the flight has ended.
	over bool
	// wait says that the effect could not be done now.
	wait *agentv1.RunWait
	// inbox asks for a look at the inbox.
	inbox bool
	// arrived is a subject that the run may have waited for; empty for none.
	arrived string
	// fenced says that another replica owns the run.
	fenced bool
}

// post hands mail to the actor and starts its driver where none runs.
func (a *actor) post(m mail) {
	e := a.engine
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mail = append(a.mail, m)
	if a.driving {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	a.driving = true
	e.working.Go(a.drive)
}

// take returns the mail that is there. Without any the driver ends.
func (a *actor) take() []mail {
	a.mu.Lock()
	defer a.mu.Unlock()
	taken := a.mail
	a.mail = nil
	if len(taken) == 0 || a.engine.flights.Err() != nil {
		a.driving = false
		return nil
	}
	return taken
}

// drive handles mail until there is none.
func (a *actor) drive() {
	for taken := a.take(); taken != nil; taken = a.take() {
		// An append that has begun is not given up: it is either durable or it is not, and the step has to know.
		ctx := context.WithoutCancel(a.engine.flights)
		if err := a.step(ctx, taken); err != nil {
			a.recover(ctx, err)
		}
	}
}

// maxFaults is how often a step that fails for reasons of our own is tried again before the run is given up as failed.
const maxFaults = 3

// step handles mail: one pass of the effect protocol.
func (a *actor) step(ctx context.Context, all []mail) error {
	if err := fenced(all); err != nil {
		return err
	}
	if a.state == nil {
		if err := a.load(ctx); err != nil {
			return err
		}
	}
	s := a.state
	if s.Finished {
		a.engine.disown(a)
		return nil
	}
	if s.TooNew {
		a.engine.deps.Logger.Warn("the run was written by a later version, which has to go on with it", "run", s.Name)
		a.setBoxes(s)
		a.park(WaitVersion, "a later version of the server wrote its journal and has to go on with it", 0)
		a.state = nil
		return nil
	}
	d := &driver{actor: a, ctx: ctx, s: s, now: time.Now()}
	err := d.decide(all) //nolint:contextcheck // A driver has the context of its step.
	if err == nil {
		err = d.commit()
	}
	if err != nil {
		return err
	}
	if len(d.entries) > 0 {
		a.faults, a.tooLarge = 0, nil
	}
	a.unpark(len(d.entries) > 0)
	a.settle(d)
	return nil
}

// load folds the journal.
func (a *actor) load(ctx context.Context) error {
	a.engine.loads <- struct{}{}
	defer func() { <-a.engine.loads }()
	s, err := run.Fold(a.head.Name, a.engine.deps.Agents, journal.All(ctx, a.engine.deps.Store, a.head.Ref, 0))
	if err != nil {
		return err
	}
	if s.Seq < a.head.Seq {
		return fmt.Errorf("turn: the journal of %s ends at %d; it was at %d before", s.Name, s.Seq, a.head.Seq)
	}
	if s.Epoch > a.head.Epoch {
		return journal.ErrFenced // Another replica has written it since.
	}
	a.head.Seq, a.state = s.Seq, s
	a.mu.Lock()
	defer a.mu.Unlock()
	a.eval = s.Spec().GetAttribution().GetEval()
	return nil
}

// evalName is the evaluation that the run belongs to; empty for none.
func (a *actor) evalName() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.eval
}

// settle ends a step: flights for open intents, the clock, and what is kept in memory.
func (a *actor) settle(d *driver) {
	s := a.state
	a.setBoxes(s)
	a.setSubject(s.Wait)
	if subject := s.Wait.GetSubject(); subject != "" && a.engine.arrivals.since(s.Parent(), subject, d.now) {
		a.post(mail{arrived: subject}) // It came before it could know who waits for it.
	}
	if s.Finished {
		a.engine.disown(a)
		a.state = nil
		return
	}
	a.reconcile()
	if wake := a.wake(); !wake.IsZero() {
		a.setClock(wake.Sub(d.now))
	} else {
		a.stopClock()
	}
	if s.Phase == agentv1.RunState_RUN_STATE_WAITING && len(a.flights) == 0 {
		a.state = nil // it waits for long; the journal keeps it
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.resting = a.state == nil
}

// wake returns when the run is to be looked at by the clock.
func (a *actor) wake() time.Time {
	wake := a.state.Wake()
	for _, other := range []time.Time{a.again, a.overworked()} {
		if !other.IsZero() && (wake.IsZero() || other.Before(wake)) {
			wake = other
		}
	}
	return wake
}

func (a *actor) setSubject(wait *agentv1.RunWait) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.subject = wait.GetSubject()
}

func (a *actor) setQueued(wait *agentv1.RunWait) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.queued = wait
}

// waitsFor reports whether the run is of a project and waits for a subject.
func (a *actor) waitsFor(parent, subject string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.subject == subject && strings.HasPrefix(a.head.Name, parent+"/")
}

func (a *actor) setClock(in time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.clock == nil {
		a.clock = time.AfterFunc(max(0, in), func() { a.post(mail{inbox: true}) })
		return
	}
	a.clock.Reset(max(0, in))
}

func (a *actor) stopClock() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.clock != nil {
		a.clock.Stop()
	}
}
